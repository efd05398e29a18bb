"""Container-ids that keep changing hands, as a condition of the Broker. Pure.

The broker counts; here it is put into words, with a remedy. Figures are rounded down to 1, 2 or 5 times a power of
ten: a fight may go on for days, and status is not written at each blow. Source: decision 13 of the design,
docs/management.md.
"""

from __future__ import annotations

from penstock_api.management import BrokerState
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition

__all__ = ["TYPE", "condition", "shown"]

TYPE = "ContainersContested"


def shown(state: BrokerState) -> tuple[tuple[str, int], ...]:
    """Ids and rounded takeovers, in the order of the ids: what the condition says, and no more."""
    return tuple(sorted((each.container_id, _rounded(each.takeovers)) for each in state.contested_containers))


def condition(state: BrokerState) -> StatusCondition | None:
    """Only while there are some."""
    found = shown(state)
    if not found:
        return None
    who = ", ".join(f"{name!r} (at least {count} times)" for name, count in found)
    # The ids last: they are the clients' choice, and what is too long is cut off.
    message = (
        "Programs that share a container-id keep closing each other's connections or stealing each other's links. Give "
        "each pod a ClientID of its own, or none; pods that share a subscription need none if it is `scope: Global`. "
        f"It is about {who}."
    )
    return StatusCondition(TYPE, ConditionStatus.TRUE, ConditionReason.TAKEOVERS_REPEATED, message)


def _rounded(count: int) -> int:
    """The highest of 1, 2, 5, 10, 20, 50... that is not above `count`, which is at least 1."""
    power: int = 10 ** (len(str(count)) - 1)
    return next(step * power for step in (5, 2, 1) if step * power <= count)
