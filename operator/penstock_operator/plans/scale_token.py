"""The Secret with a token for an autoscaler, which a Subscription or a Queue asks for by an annotation.

Ready does not depend on it. Source: docs/decisions/070-observer-tokens.md, docs/how-to/autoscaling.md.
"""

from __future__ import annotations

from typing import Protocol

from penstock_api.resources import Holding
from penstock_operator.children import scale_secret
from penstock_operator.children.scale_secret import ScaleAccess
from penstock_operator.plans.decisions import ApplyChild, BrokerView, ChildState, Report
from penstock_operator.plans.refusals import Refusal
from penstock_operator.plans.wanted_secret import secret_condition, with_secret_condition

__all__ = ["ScaleTokenView", "with_scale_token"]


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


def with_scale_token(view: ScaleTokenView, report: Report) -> ApplyChild | Report:
    """What to do after a declaration that has succeeded, with this report: write the Secret first if it is asked for,
    then report it, too.
    """
    if not scale_secret.is_wanted(view.resource):
        return report
    if view.scale is not None and view.scale_secret is ChildState.UNKNOWN:
        assert view.broker.broker is not None
        return ApplyChild(scale_secret.manifest(view.broker.broker, view.resource, view.scale))
    name = scale_secret.secret_name(view.resource)
    found = secret_condition(
        "ScaleToken",
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
    return with_secret_condition(report, found)
