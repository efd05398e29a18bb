"""The Secret with a token for an autoscaler, which a Subscription or a Queue asks for by an annotation.

Ready does not depend on it. That the status has the condition ScaleToken is how the operator knows that there may be a
Secret, when the annotation is gone: it never lists Secrets. So the condition stays while nothing can be found out.
Source: docs/decisions/070-observer-tokens.md, docs/how-to/autoscaling.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol, TypeVar

from penstock_api.resources import Condition, Holding
from penstock_operator.children import scale_secret
from penstock_operator.children.scale_secret import ScaleAccess
from penstock_operator.plans.conditions import ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import ApplyChild, BrokerView, ChildState, Decision, DeleteChild, Report
from penstock_operator.plans.refusals import Refusal
from penstock_operator.plans.wanted_secret import secret_condition, with_secret_condition

__all__ = ["ScaleTokenView", "with_known_scale_token", "with_scale_token"]

_CONDITION: Final = "ScaleToken"

DecisionT = TypeVar("DecisionT", bound=Decision)


class ScaleTokenView(Protocol):
    """What of a view the Secret depends on."""

    @property
    def resource(self) -> Holding:
        """Who asks for the Secret, or does not."""
        ...

    @property
    def broker(self) -> BrokerView:
        """The Broker that has its queue."""
        ...

    @property
    def scale(self) -> ScaleAccess | None:
        """What the token is made with; None if the Broker's observer may not know such tokens."""
        ...

    @property
    def scale_secret(self) -> ChildState:
        """The Secret."""
        ...

    @property
    def scale_refusal(self) -> Refusal | None:
        """Why the API server does not take it."""
        ...


def with_scale_token(view: ScaleTokenView, report: Report) -> ApplyChild | DeleteChild | Report:
    """What to do after a declaration that has succeeded, with this report: write the Secret first if it is asked for,
    or delete it if it is not any more, then report it, too.
    """
    name = scale_secret.secret_name(view.resource)
    if not scale_secret.is_wanted(view.resource):
        if view.scale_secret is ChildState.UNKNOWN and _shown(view.resource) is not None:
            return DeleteChild("Secret", name)
        # A Secret whose deletion was refused still has a token that is good.
        return with_secret_condition(report, _found(view, name)) if view.scale_secret is ChildState.REFUSED else report
    if view.scale is not None and view.scale_secret is ChildState.UNKNOWN:
        assert view.broker.broker is not None
        return ApplyChild(scale_secret.manifest(view.broker.broker, view.resource, view.scale))
    return with_secret_condition(report, _found(view, name))


def with_known_scale_token(resource: Holding, decision: DecisionT) -> DecisionT | Report:
    """What was decided before a declaration has succeeded; a report says of the Secret what the status does."""
    if not isinstance(decision, Report):
        return decision
    shown = _shown(resource)
    if shown is None or any(condition.type == _CONDITION for condition in decision.conditions):
        return decision
    kept = StatusCondition(_CONDITION, ConditionStatus(shown.status), shown.reason, shown.message)
    return replace(decision, conditions=(*decision.conditions, kept))


def _shown(resource: Holding) -> Condition | None:
    return next((each for each in resource.status.conditions if each.type == _CONDITION), None)


def _found(view: ScaleTokenView, name: str) -> StatusCondition:
    return secret_condition(
        _CONDITION,
        name,
        view.resource.kind,
        view.scale_secret,
        view.scale_refusal,
        written=f"The Secret {name} has the token.",
        pending=(
            "The observer of the Broker has not shown yet that it knows tokens of subscriptions. An observer of an "
            "earlier release does not: set `spec.image` of the Broker to a newer image."
        ),
    )
