"""How figures and names are written."""

from __future__ import annotations

import pytest

from penstock_page import text


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (7500, "2 h 5 min"),
        (180_000, "2 d 2 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: int | None, shown: str) -> None:
    assert text.duration(seconds) == shown


def test_counts_sizes_and_times() -> None:
    assert (text.count(1234567), text.count(None), text.millis(999), text.millis(61_000)) == (
        "1,234,567",
        "–",
        "999 ms",
        "1 min 1 s",
    )
    assert (text.size(1023), text.size(1024), text.size(3 * 1024**3)) == ("1023 B", "1.0 KiB", "3.0 GiB")
    assert text.day_and_clock(1_767_268_801_999) == "2026-01-01 12:00:01 UTC"
    assert text.clock(1_767_268_801_999) == "12:00:01"


def test_a_time_that_no_calendar_has_is_said_in_words() -> None:
    """Clients choose when a message is due."""
    assert text.day_and_clock(253_402_300_799_999) == "9999-12-31 23:59:59 UTC"
    assert text.day_and_clock(253_402_300_800_000) == "after the year 9999"
    assert text.day_and_clock((2**63 - 1) // 1000) == "after the year 9999"


def test_what_cannot_be_printed_is_replaced() -> None:
    """A name that reverses the direction of writing would look like another one."""
    assert text.printable("ord\u202eers\x00\x1b[2J\n") == "ord�ers��[2J�"
    assert text.printable_lines("a\n\tb\x07\u2066") == "a\n\tb��"
    assert text.printable("größe 数") == "größe 数"


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (3799, "3.7 s"),
        (59_999, "59.9 s"),
        (60_000, "1 min 0 s"),
    ],
)
def test_milliseconds_are_cut_to_what_a_person_reads(milliseconds: int, words: str) -> None:
    assert text.millis(milliseconds) == words
