"""The declaration of a resource that may be declared, the same for every kind: a broker that does not answer, or one
that is too old for what the resource uses; else the declaration is sent, and a refusal of the broker is reported.

Source: docs/decisions/061-different-releases.md, docs/decisions/097-outages.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from penstock_api.management import (
    DeclarationOutcome,
    EntityType,
    ExchangeDeclaration,
    QueueDeclaration,
    SubscriptionDeclaration,
)
from penstock_api.resources import Declaring
from penstock_operator.manifest import Manifest
from penstock_operator.plans import conditions, outage
from penstock_operator.plans.acceptance import (
    ACCEPTED,
    declaration_refused,
    not_connected,
    retry_of,
    terms_not_known,
)
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import BrokerReply, BrokerView, DeclareEntity, KeepStatus, Report, Retry

__all__ = ["DeclaringView", "declaration_report", "declaration_step", "declared_as"]

Declaration: TypeAlias = ExchangeDeclaration | SubscriptionDeclaration | QueueDeclaration


_DECLARED_AS: Final = {
    DeclarationOutcome.ADOPTED.value: ConditionReason.ADOPTED,
    DeclarationOutcome.REBOUND.value: ConditionReason.REBOUND,
}


class DeclaringView(Protocol):
    """What of a view the step depends on."""

    @property
    def resource(self) -> Declaring:
        """What is to be declared."""
        ...

    @property
    def broker(self) -> BrokerView:
        """The Broker on which it is declared."""
        ...

    @property
    def reply(self) -> BrokerReply | None:
        """The broker's reply to the declaration of this reconcile."""
        ...


def declaration_step(
    view: DeclaringView,
    kind: str,
    entity: EntityType,
    name: str | None,
    details: Manifest,
    wanted: Callable[[], Declaration],
) -> DeclareEntity | KeepStatus | Report | BrokerReply:
    """What to do until the broker has taken the declaration: send it, keep the status, or report why it can't be sent
    or was refused, by the condition `kind` (Bound or Declared). The reply, if the broker has taken it.

    `name`: how the broker is to call the entity, None if the declaration says it. `details`: of the status.
    """
    unknown = not_connected(view.broker, kind)
    if unknown is not None:
        if outage.keeps_status(view.broker, view.resource, kind):
            return KeepStatus()
        # What is new or changed waits for the end of the first attempt, and does not tell of the attempt.
        is_awaited = view.broker.is_awaited
        return KeepStatus(Retry.BACKOFF) if is_awaited else declaration_report((ACCEPTED, unknown), details)
    reply = view.reply
    if reply is not None:
        if reply.is_success:
            return reply
        refused = declaration_refused(view.broker, kind, reply)
        return declaration_report((ACCEPTED, refused), details, retry_of(refused))
    body = wanted()
    problem = terms_not_known(view.broker, body)
    if problem is not None:
        too_old = StatusCondition(kind, ConditionStatus.FALSE, ConditionReason.BROKER_TOO_OLD, problem)
        return declaration_report((ACCEPTED, too_old), details)
    return DeclareEntity(entity, name, body)


def declaration_report(found: Sequence[StatusCondition], details: Manifest, retry: Retry = Retry.RESYNC) -> Report:
    """The report of a resource with these conditions, and Ready in front of them."""
    return Report(conditions.ready_from(found, "Declared on the broker."), details, retry)


def declared_as(reply: BrokerReply) -> ConditionReason:
    """What became of a declaration that the broker has taken: the reason of condition Bound or Declared."""
    return _DECLARED_AS.get(str(reply.body.get("outcome")), ConditionReason.DECLARED)
