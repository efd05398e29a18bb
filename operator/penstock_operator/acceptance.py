"""What Exchanges and Subscriptions have in common before they are declared: Accepted, and the pause. Pure.

Knows neither kind; `exchanges` and `subscriptions` decide with it. Source: docs/operator.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock_api import resources_base
from penstock_api.resources import Broker
from penstock_operator import access, names
from penstock_operator.conditions import Condition, Truth
from penstock_operator.reasons import Reason

__all__ = ["ACCEPTED", "broker_problem", "paused", "refuse"]

ACCEPTED: Final = Condition(
    "Accepted", Truth.TRUE, Reason.ACCEPTED, "The spec is valid and its references may be followed."
)


def refuse(reason: Reason, message: str) -> Condition:
    """The spec can't be declared as it stands."""
    return Condition("Accepted", Truth.FALSE, reason, message)


def broker_problem(namespace: str, key: tuple[str, str], broker: Broker | None) -> Condition | None:
    """Why a resource of `namespace` may not use the Broker that it names by (namespace, name); None if it may.

    A Broker elsewhere that allows nothing looks like one that is not there: its reader may not see which.
    """
    if broker is not None and access.is_allowed(namespace, broker):
        return None
    home, name = key
    if home != namespace:
        return refuse(
            Reason.NAMESPACE_NOT_ALLOWED,
            f"Broker {home}/{name} is not there, or its `allowedNamespaces` does not name {namespace}.",
        )
    return refuse(Reason.BROKER_NOT_FOUND, f"There is no Broker {name} in this namespace; make it.")


def paused(before: Iterable[resources_base.Condition], *, but: frozenset[str] = frozenset()) -> tuple[Condition, ...]:
    """The conditions as they were, without the types in `but`, and the one that says that nothing is changed."""
    kept = (
        Condition(one.type, Truth(one.status), one.reason, one.message)
        for one in before
        if one.type != "ReconciliationPaused" and one.type not in but
    )
    said = f"Nothing is changed on the broker while the annotation `{names.PAUSED}` is set."
    return (*kept, Condition("ReconciliationPaused", Truth.TRUE, Reason.PAUSED_BY_ANNOTATION, said))
