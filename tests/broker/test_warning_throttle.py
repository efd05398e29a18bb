"""A line in a while."""

from __future__ import annotations

import logging

import pytest

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


def test_what_is_left_out_in_a_second_is_told_once_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """Twenty lines of 25; the count comes without a further line."""
    caplog.set_level(logging.INFO)
    now_ms = 0
    throttle = WarningThrottle(lambda: now_ms, logging.INFO, "logins")
    for number in range(25):
        throttle.warn("login %d", number)
    throttle.flush()
    assert [each.getMessage() for each in caplog.records] == [f"login {number}" for number in range(20)]
    caplog.clear()
    now_ms = 1000
    throttle.flush()
    throttle.flush()
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("INFO", "5 more logins were left out")]
