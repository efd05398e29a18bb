"""A line in a while."""

from __future__ import annotations

from penstock_broker.warning_throttle import MOST_SUBJECTS, PAUSE_MS, WarningThrottle


def test_each_subject_is_mentioned_once_a_minute() -> None:
    now_ms = 0
    throttle = WarningThrottle(lambda: now_ms)
    assert throttle.may_warn("a")
    now_ms = PAUSE_MS - 1
    assert not throttle.may_warn("a")
    assert throttle.may_warn("b")
    now_ms = PAUSE_MS
    assert throttle.may_warn("a")


def test_subjects_do_not_pile_up() -> None:
    throttle = WarningThrottle(lambda: 0)
    for number in range(MOST_SUBJECTS + 1):
        assert throttle.may_warn(str(number))
    assert throttle.may_warn("0"), "forgotten with the others"
