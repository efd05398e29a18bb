"""Numbers, durations, times and names as a person reads them.

Pure. Names, identifiers and bodies come from clients: whatever cannot be printed, also the characters that reverse the
direction of writing, is shown as U+FFFD, so that a name cannot look like another one. HTML is escaped elsewhere, by the
templates.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["clock", "count", "day_and_clock", "duration", "millis", "printable", "printable_lines", "size"]

ABSENT: Final = "–"
MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86400
YEAR_10000_MS: Final = 253_402_300_800_000


def count(value: int | None) -> str:
    """An integer with a comma between thousands; a dash if it is not known."""
    return ABSENT if value is None else f"{value:,}"


def duration(seconds: int | None) -> str:
    """Seconds with the two largest units, such as 2 h 5 min; a dash if they are not known."""
    if seconds is None:
        return ABSENT
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min {seconds % MINUTE} s"
    if seconds < DAY:
        return f"{seconds // HOUR} h {seconds % HOUR // MINUTE} min"
    return f"{seconds // DAY} d {seconds % DAY // HOUR} h"


def millis(milliseconds: int | None) -> str:
    """Milliseconds below a second, seconds with a decimal below a minute, else as `duration`; a dash if they are not
    known.
    """
    if milliseconds is None:
        return ABSENT
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds, rest = divmod(milliseconds, 1000)
    return f"{seconds}.{rest // 100} s" if seconds < MINUTE else duration(seconds)


def size(octets: int) -> str:
    """Bytes with a unit."""
    amount = float(octets)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def clock(milliseconds: int) -> str:
    """Hours, minutes and seconds in UTC of a time since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%H:%M:%S")


def day_and_clock(milliseconds: int) -> str:
    """Day and time in UTC of a time since 1970; a client can choose one that no calendar has."""
    if milliseconds >= YEAR_10000_MS:
        return "after the year 9999"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def printable(value: object) -> str:
    """On one line, what cannot be printed replaced."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(value))


def printable_lines(value: object) -> str:
    """The same for text of several lines: line ends and tabs stay."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in str(value))
