"""A line in a while."""

from __future__ import annotations

from penstock_broker.warning_throttle import MOST_SUBJECTS, PAUSE_MS, WarningIntervals


def test_each_subject_is_mentioned_once_a_minute() -> None:
    rarely = WarningIntervals()
    assert rarely.may_say("a", 0)
    assert not rarely.may_say("a", PAUSE_MS - 1)
    assert rarely.may_say("b", PAUSE_MS - 1)
    assert rarely.may_say("a", PAUSE_MS)


def test_subjects_do_not_pile_up() -> None:
    rarely = WarningIntervals()
    for number in range(MOST_SUBJECTS + 1):
        assert rarely.may_say(str(number), 0)
    assert rarely.may_say("0", 0), "forgotten with the others"
