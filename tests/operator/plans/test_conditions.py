"""Reasons of conditions: which of them need a person's action, and that the documentation lists each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock_core.reason import Reason as BrokerReason
from penstock_operator.plans.conditions import NEEDS_A_PERSON, ConditionReason, condition_reason, needs_a_person

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
