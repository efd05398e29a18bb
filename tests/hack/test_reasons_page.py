"""docs/how-to/runbooks/reasons.md has a line for every reason of the operator that asks somebody to do something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock_operator.plans.conditions import (
    NEEDS_A_PERSON,
    ConditionReason,
    ConditionStatus,
    StatusCondition,
    told,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "runbooks" / "reasons.md"
FINE = frozenset(
    {
        "Ready",
        "Accepted",
        "Declared",
        "Adopted",
        "Rebound",
        "InSync",
        "Serving",
        "Pinned",
        "CertificateValid",
        "TakeoversEnded",
        "Scheduled",
        "Written",
        "Granted",
        "WithinThresholds",
        "Current",
    }
)
"""Reasons that say that all is well. A new reason is either one of them or has a line on the page."""

ROW = re.compile(r'^\| <a id="(\w+)"></a>`(\w+)` \| (?:yes|no) \| (.+) \|$', re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))
LINES = {reason: what for _, reason, what in ROWS}


def test_every_reason_that_is_not_fine_says_what_to_do() -> None:
    own = {str(reason) for reason in ConditionReason}
    assert (own - FINE) | NEEDS_A_PERSON == set(LINES)


def test_each_line_has_the_anchor_of_its_reason() -> None:
    assert [anchor for anchor, reason, _ in ROWS if anchor != reason] == []


@pytest.mark.parametrize("reason", sorted(NEEDS_A_PERSON))
def test_the_message_of_a_condition_names_a_line_that_there_is(reason: str) -> None:
    message = told(StatusCondition("Stalled", ConditionStatus.TRUE, reason, "It is so."))
    found = re.fullmatch(r"It is so\. See (docs/[\w/-]+\.md)#(\w+)\.", message)
    assert found is not None
    page = (ROOT / found[1]).read_text(encoding="utf-8")
    assert page.count(f'<a id="{found[2]}"></a>`{reason}`') == 1


@pytest.mark.parametrize("reason", sorted(FINE))
def test_the_message_of_a_good_state_names_no_page(reason: str) -> None:
    assert told(StatusCondition("Ready", ConditionStatus.TRUE, reason, "It is so.")) == "It is so."


def test_what_needs_a_person_tells_this_person_something() -> None:
    """More than "wait": a reason with which a resource is Stalled goes on by nothing else."""
    silent = [reason for reason in NEEDS_A_PERSON if LINES[reason].startswith("wait")]
    assert silent == []
