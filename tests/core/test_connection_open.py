"""Open: decisions 13 and 15 (docs/decisions)."""

from __future__ import annotations

import pytest
from core.factories import ANN, BOB

from penstock_core.connection_open import (
    TAKEN_OVER,
    Admit,
    Capability,
    ClosePredecessor,
    Enforcement,
    Predecessor,
    Probe,
    ProbeResult,
    SoleDecision,
    decide_sole_connection,
    offer,
)
from penstock_core.reason import Reason, Refuse


def test_decision_15_the_full_table_in_order() -> None:
    assert offer(set(Capability)) == (
        "SHARED-SUBS",
        "ANONYMOUS-RELAY",
        "DELAYED_DELIVERY",
        "sole-connection-for-container",
    )


def test_decision_15_only_what_works() -> None:
    assert offer([Capability.SOLE_CONNECTION, Capability.SHARED_SUBS]) == (
        "SHARED-SUBS",
        "sole-connection-for-container",
    )


def opening(
    predecessor: Predecessor | None,
    *,
    asks_sole: bool = True,
    enforcement: Enforcement = Enforcement.REFUSE,
    user: str = ANN,
    may_use_others: bool = False,
) -> SoleDecision:
    return decide_sole_connection(
        asks_sole=asks_sole,
        enforcement=enforcement,
        user=user,
        may_use_others=may_use_others,
        predecessor=predecessor,
    )


def held(
    probe: ProbeResult, *, is_sole: bool = True, enforcement: Enforcement = Enforcement.CLOSE_EXISTING
) -> Predecessor:
    return Predecessor(is_sole=is_sole, enforcement=enforcement, user=ANN, probe=probe)


def test_decision_13_a_container_of_its_own_is_admitted() -> None:
    assert opening(None) == Admit()


def test_decision_13_without_the_capability_containers_may_repeat() -> None:
    assert opening(held(ProbeResult.ALIVE, is_sole=False), asks_sole=False) == Admit()


@pytest.mark.parametrize(("asks_sole", "is_sole"), [(True, False), (False, True), (True, True)])
def test_decision_13_the_predecessor_is_probed_first(asks_sole: bool, is_sole: bool) -> None:
    assert opening(held(ProbeResult.UNKNOWN, is_sole=is_sole), asks_sole=asks_sole) == Probe()


def test_decision_13_a_dead_predecessor_holds_nobody_up() -> None:
    assert opening(held(ProbeResult.DEAD), user=BOB) == ClosePredecessor(TAKEN_OVER)


def test_decision_13_a_live_predecessor_refuses_the_newcomer() -> None:
    decision = opening(held(ProbeResult.ALIVE, enforcement=Enforcement.REFUSE))
    assert isinstance(decision, Refuse)
    assert decision.reason is Reason.CONTAINER_IN_USE
    assert decision.condition.value == "amqp:invalid-field"
    assert decision.error_info()["invalid-field"] == "container-id"


def test_decision_13_the_policies_on_the_wire() -> None:
    assert [(each.name, each.value) for each in Enforcement] == [("REFUSE", 0), ("CLOSE_EXISTING", 1)]


def test_decision_13_close_existing() -> None:
    decision = opening(held(ProbeResult.ALIVE))
    assert isinstance(decision, ClosePredecessor)
    assert decision.told.condition.value == "amqp:resource-locked"
    assert decision.told.error_info()["sole-connection-enforcement"] is True


@pytest.mark.parametrize(
    ("older", "newer", "outcome"),
    [
        (Enforcement.CLOSE_EXISTING, Enforcement.REFUSE, ClosePredecessor),
        (Enforcement.CLOSE_EXISTING, None, ClosePredecessor),
        (Enforcement.REFUSE, Enforcement.CLOSE_EXISTING, Refuse),
        (Enforcement.REFUSE, None, Refuse),
        (None, Enforcement.CLOSE_EXISTING, ClosePredecessor),
        (None, Enforcement.REFUSE, Refuse),
    ],
)
def test_decision_13_of_two_policies_that_of_the_older_connection_counts(
    older: Enforcement | None, newer: Enforcement | None, outcome: type[SoleDecision]
) -> None:
    predecessor = held(
        ProbeResult.ALIVE, is_sole=older is not None, enforcement=older if older is not None else Enforcement.REFUSE
    )
    decision = opening(
        predecessor, asks_sole=newer is not None, enforcement=newer if newer is not None else Enforcement.REFUSE
    )
    assert isinstance(decision, outcome)


def test_decision_16_another_users_connection_is_not_closed_without_a_permission() -> None:
    alive = held(ProbeResult.ALIVE)
    assert isinstance(opening(alive, enforcement=Enforcement.CLOSE_EXISTING, user=BOB), Refuse)
    allowed = opening(alive, enforcement=Enforcement.CLOSE_EXISTING, user=BOB, may_use_others=True)
    assert isinstance(allowed, ClosePredecessor)
