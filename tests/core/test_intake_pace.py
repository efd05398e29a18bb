"""Whom the messages of a queue wait for, and what producers get meanwhile.

Source: docs/decisions/090-intake-pace.md.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.intake_pace import LEAST_GRANT, QueueProgress, credit_for, progress

BEHIND, CAUGHT_UP, LEFT_TO_CONSUMERS = QueueProgress

COUNT = st.integers(0, 10_000_000)


@pytest.mark.parametrize(
    ("waiting", "waited_us", "was_behind", "unwanted_us", "expected"),
    [
        pytest.param(0, 0, False, 1, CAUGHT_UP, id="nothing waits"),
        pytest.param(1, 60_000_000, False, 1, LEFT_TO_CONSUMERS, id="nobody takes it"),
        pytest.param(1_000_000, 60_000_000, True, 4_001, LEFT_TO_CONSUMERS, id="nobody has taken any for long"),
        pytest.param(1_000_000, 60_000_000, True, 4_000, BEHIND, id="nobody takes any for a moment"),
        pytest.param(1_000_000, 60_000_000, False, 1, LEFT_TO_CONSUMERS, id="nobody takes any of many"),
        pytest.param(64, 60_000_000, True, 0, CAUGHT_UP, id="few, though for long"),
        pytest.param(65, 8_001, False, 0, BEHIND, id="for more than eight milliseconds"),
        pytest.param(65, 8_000, False, 0, CAUGHT_UP, id="for eight milliseconds"),
        pytest.param(65, 4_001, True, 0, BEHIND, id="on the way back"),
        pytest.param(65, 4_000, True, 0, CAUGHT_UP, id="back"),
        pytest.param(1_000_000, 0, False, 0, CAUGHT_UP, id="many that came together"),
    ],
)
def test_whom_messages_wait_for(
    waiting: int, waited_us: int, was_behind: bool, unwanted_us: int, expected: QueueProgress
) -> None:
    assert progress(waiting, waited_us, was_behind=was_behind, unwanted_us=unwanted_us) is expected


@given(COUNT, COUNT, st.booleans(), st.integers(4_001, 10_000_000))
def test_nobody_is_paced_where_no_consumer_has_wanted_more_for_long(
    waiting: int, waited_us: int, was_behind: bool, unwanted_us: int
) -> None:
    assert progress(waiting, waited_us, was_behind=was_behind, unwanted_us=unwanted_us) is not BEHIND


@given(COUNT, COUNT, COUNT)
def test_a_queue_that_was_behind_is_so_at_least_as_long(waiting: int, waited_us: int, unwanted_us: int) -> None:
    if progress(waiting, waited_us, was_behind=False, unwanted_us=unwanted_us) is BEHIND:
        assert progress(waiting, waited_us, was_behind=True, unwanted_us=unwanted_us) is BEHIND


@given(st.lists(COUNT, min_size=64, max_size=64), st.lists(st.booleans(), min_size=64) | st.just([True] * 64))
def test_who_waits_for_a_queue_has_earned_a_grant_after_64_turns_whatever_the_queue_does(
    delivered: list[int], behind: list[bool]
) -> None:
    turns = zip(delivered, behind, strict=False)
    assert sum(credit_for(count, is_behind=is_behind) for count, is_behind in turns) >= LEAST_GRANT


@given(st.integers(2, 10_000_000))
def test_what_waits_becomes_less_while_a_queue_is_behind(delivered: int) -> None:
    assert credit_for(delivered, is_behind=True) <= delivered / 2


@given(COUNT)
def test_a_queue_that_has_caught_up_lets_more_come_than_consumers_got(delivered: int) -> None:
    assert credit_for(delivered, is_behind=False) > delivered
