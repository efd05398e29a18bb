"""The reply to a declaration: the state of the entity, and what the declaration led to.

Source: docs/reference/management.md, docs/decisions/117-declared-again.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock_amqp.types.values import Value
from penstock_api.management import DeclarationOutcome, StatusCode
from penstock_broker.management.entity_states import StateDocument
from penstock_broker.management.replies import ManagementReply
from penstock_broker.queue.queue import Queue

__all__ = ["declaration_reply", "shortened", "without_ages"]

_OF_THE_OUTCOME: Final = frozenset({"outcome", "blockedBy"})


def declaration_reply(
    outcome: DeclarationOutcome, state: StateDocument, blocked_by: str | None = None
) -> ManagementReply:
    """The reply: 201 if the entity was made, else 200. `blocked_by`: what prevents a rebind."""
    body: dict[Value, Value] = {**state, "outcome": outcome.value}
    if blocked_by is not None:
        body["blockedBy"] = blocked_by
    made = outcome is DeclarationOutcome.CREATED
    return ManagementReply(
        status=int(StatusCode.CREATED if made else StatusCode.OK),
        description=outcome.value,
        body={key: value for key, value in body.items() if value is not None},
    )


def shortened(reply: ManagementReply, attributes: frozenset[str]) -> ManagementReply:
    """The reply with these keys of the state, and what the declaration led to."""
    assert isinstance(reply.body, dict)
    kept: dict[Value, Value] = {
        key: value for key, value in reply.body.items() if key in attributes or key in _OF_THE_OUTCOME
    }
    return replace(reply, body=kept)


def without_ages(state: StateDocument, queue: Queue) -> StateDocument:
    """The state without the two times that only a look at all deliveries in flight could tell, if there are any: an
    operator declares thousands of subscriptions again and again, and READ tells them.
    """
    return {**state, "oldestAvailableMs": None, "oldestHoldMs": None} if queue.in_flight else state
