"""What a start says of itself, second by second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_broker.loop.start_progress import StartProgress


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Iterator[Seconds]:
    yield Seconds()


def test_it_says_how_much_of_the_log_is_read(seconds: Seconds) -> None:
    progress = StartProgress(seconds)
    assert progress.sentence() == "recovering, the log is being opened"
    progress.reading(4, 10)
    assert progress.sentence() == "recovering, 40 % of the log is read"
    progress.reading(10, 10)
    assert progress.sentence() == "recovering, 100 % of the log is read"


def test_then_it_says_how_many_queues_are_restored(seconds: Seconds) -> None:
    progress = StartProgress(seconds)
    progress.reading(10, 10)
    progress.restoring(3, 7)
    assert progress.sentence() == "recovering, the log is read; 3 of 7 queues are restored"


def test_an_empty_log_is_no_division_by_zero(seconds: Seconds) -> None:
    progress = StartProgress(seconds)
    progress.reading(0, 0)
    assert progress.sentence() == "recovering, the log is being opened"
    assert progress.seconds_left() is None


def test_the_time_left_follows_from_the_rate_so_far(seconds: Seconds) -> None:
    progress = StartProgress(seconds)
    assert progress.seconds_left() is None
    seconds.now = 106.0  # 6 s for a quarter
    progress.reading(25, 100)
    assert progress.seconds_left() == 18
    progress.restoring(0, 2)
    assert progress.seconds_left() is None


def test_it_is_stuck_when_nothing_has_advanced_for_a_minute(seconds: Seconds) -> None:
    progress = StartProgress(seconds)
    progress.reading(1, 10)
    seconds.now = 160.0
    assert not progress.is_stuck
    seconds.now = 161.5
    assert progress.is_stuck
    assert progress.sentence() == "recovering, 10 % of the log is read; nothing has advanced for 61 s"
    progress.reading(1, 10)
    assert progress.is_stuck, "the same figure again is no progress"
    progress.reading(2, 10)
    assert not progress.is_stuck


def test_restoring_the_first_queue_counts_as_progress(seconds: Seconds) -> None:
    progress = StartProgress(seconds)
    seconds.now = 170.0
    progress.restoring(0, 1)
    assert not progress.is_stuck
