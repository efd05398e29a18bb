"""Reasons of conditions: which of them need a person's action, and that the documentation lists each."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock_api.resources import Condition as Stored
from penstock_core.reason import Reason as BrokerReason
from penstock_operator.plans.conditions import (
    NEEDS_A_PERSON,
    ConditionReason,
    ConditionStatus,
    StatusCondition,
    condition_reason,
    needs_a_person,
    ready_from,
    render,
)

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "operator.md").read_text()
UNREMARKABLE = {ConditionReason.READY, ConditionReason.PENDING, ConditionReason.REFUSED}


@pytest.mark.parametrize("reason", [reason for reason in ConditionReason if reason not in UNREMARKABLE])
def test_the_page_of_conditions_knows_every_reason(reason: ConditionReason) -> None:
    assert re.search(rf"\b{reason.value}\b", PAGE)


def test_what_needs_a_person_is_a_reason() -> None:
    assert {str(reason) for reason in ConditionReason} | {reason.value for reason in BrokerReason} >= NEEDS_A_PERSON


@pytest.mark.parametrize(
    "reason", ["BrokerNotFound", "ExchangeNotFound", "BrokerUnreachable", "BrokerStopped", "StorageFull", "PodNotReady"]
)
def test_what_passes_needs_nobody(reason: str) -> None:
    assert not needs_a_person(reason)


@pytest.mark.parametrize(
    ("given", "expected"), [("StorageFull", "StorageFull"), ("", "Refused"), (None, "Refused"), ("a b", "Refused")]
)
def test_a_word_that_kubernetes_does_not_take_is_replaced(given: str | None, expected: str) -> None:
    assert condition_reason(given) == expected


def rendered(message: str, before: list[Stored]) -> dict[str, object]:
    taken = StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.NAME_TAKEN, message)
    (found,) = render([taken], before=before, generation=2, now=datetime(2026, 5, 1, tzinfo=UTC))
    return found


@pytest.mark.parametrize("message", ["Secret main-ca is not Penstock's.", "x" * 5000, ""])
def test_a_message_that_names_the_page_stays_the_same_when_it_is_written_again(message: str) -> None:
    """Also if a plan takes it over from the status, as it does while a broker is away."""
    first = rendered(message, [])
    stored = Stored.model_validate(first)
    assert stored.message.endswith(" See docs/how-to/runbooks/reasons.md#NameTaken.")
    assert len(stored.message) <= 4096
    assert rendered(message, [stored]) == rendered(stored.message, [stored]) == first


def test_all_that_say_why_name_the_page() -> None:
    accepted = StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.NAME_TAKEN, "It is so.")
    shown = render(ready_from([accepted], ""), before=(), generation=1, now=datetime(2026, 5, 1, tzinfo=UTC))
    assert {str(it["type"]): str(it["message"]) for it in shown} == dict.fromkeys(
        ("Ready", "Accepted", "Stalled"), "It is so. See docs/how-to/runbooks/reasons.md#NameTaken."
    )
