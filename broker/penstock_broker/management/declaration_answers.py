"""The answer to a declaration: the state of the entity, and what the declaration led to.

Source: docs/reference/management.md, docs/decisions/117-declared-again.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock_amqp.types.values import Value
from penstock_api.management import DeclarationOutcome, StatusCode
from penstock_broker.management.entity_states import StateDocument
from penstock_broker.management.responses import ManagementResponse
from penstock_broker.queue.queue import Queue

__all__ = ["answer", "shortened", "without_ages"]

_OF_THE_OUTCOME: Final = frozenset({"outcome", "blockedBy"})


def answer(outcome: DeclarationOutcome, state: StateDocument, blocked_by: str | None = None) -> ManagementResponse:
    """The response: 201 if the entity was made, else 200. `blocked_by`: what prevents a rebind."""
    body: dict[Value, Value] = {**state, "outcome": outcome.value}
    if blocked_by is not None:
        body["blockedBy"] = blocked_by
    made = outcome is DeclarationOutcome.CREATED
    return ManagementResponse(
        status=int(StatusCode.CREATED if made else StatusCode.OK),
        description=outcome.value,
        body={key: value for key, value in body.items() if value is not None},
    )


def shortened(response: ManagementResponse, attributes: frozenset[str]) -> ManagementResponse:
    """The response with these keys of the state, and what the declaration led to."""
    assert isinstance(response.body, dict)
    kept: dict[Value, Value] = {
        key: value for key, value in response.body.items() if key in attributes or key in _OF_THE_OUTCOME
    }
    return replace(response, body=kept)


def without_ages(state: StateDocument, queue: Queue) -> StateDocument:
    """The state without the two times that only a look at all deliveries in flight could tell, if there are any: an
    operator declares thousands of subscriptions again and again, and READ tells them.
    """
    return {**state, "oldestAvailableMs": None, "oldestHoldMs": None} if queue.in_flight else state
