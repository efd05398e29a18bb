"""Loops over messages: each does what its twin in Python does for plain messages, and stops at the first that is not.
And two readers of single fields, which say nothing of a message that is not plain.

Entries, arrivals and held deliveries are those of `penstock_amqp.endpoint.events`, puts those of the broker's log.
"""

from collections.abc import Callable, Container
from typing import Any

def take_plain(
    batch: list[Any],
    at: int,
    prefix: bytes,
    count_at: int,
    is_narrow: bool,
    longest: int,
    number: int,
    now_us: int,
    expires_us: int,
    flags: int,
    entries: list[Any],
    deliveries: list[Any],
    presettled: list[Any],
    payloads: list[bytes] | None,
    /,
) -> tuple[int, int]:
    """Append an entry for each arrival of `batch` from `at` on that begins with `prefix`, names neither an expiry nor a
    group (`MessagePrefix.look`), and is at most `longest` bytes long; numbers count from `number`. Its delivery goes to
    `deliveries`, or to `presettled`, its message to `payloads`. Returns how many these were, and their bytes.
    """

def take_batches(
    sources: list[tuple[Any, list[Any]]],
    at: int,
    prefix: bytes,
    count_at: int,
    is_narrow: bool,
    longest: int,
    number: int,
    now_us: int,
    expires_us: int,
    flags: int,
    entries: list[Any],
    answered: list[Any],
    presettled: list[Any],
    payloads: list[bytes] | None,
    /,
) -> tuple[int, int]:
    """The same for the batches of `sources` from `at` on, each with whom it came from, up to the first batch with a
    message that does not begin so: nothing of that is taken. Each source goes with its deliveries to `answered`, and
    with those that are settled, if there are some, to `presettled`. Returns how many batches these were, and their
    bytes.
    """

def put_records(
    payloads: list[bytes], records: list[Any], type: int, route_set: int, number: int, arrival: int, /
) -> None:
    """Append the records of puts, each in two pieces: its head and its payload. Numbers count from `number`."""

def sent_runs(entries: list[Any], /) -> tuple[int, list[tuple[int, int]]]:
    """The bytes of these messages, and when they became available: a time, and how many in a row have it."""

def accepted_runs(
    batch: list[Any], flag: int, /
) -> tuple[int, list[int], list[tuple[int, int]], list[tuple[int, int]]]:
    """Of held deliveries: their bytes, the numbers of those that have `flag`, when they became available, and when they
    were sent, in runs.
    """

def read_puts(data: bytes, begin: int, end: int, type: int, kind: type[Any], found: list[Any], /) -> int:
    """Append the puts of a block from `begin` on, as tuples of `kind`, up to the first record of another type or one
    that goes beyond `end`; where that begins.
    """

def plain_entries(
    puts: list[Any],
    at: int,
    prefix: bytes,
    count_at: int,
    is_narrow: bool,
    special: int,
    ttl_us: int,
    flags: int,
    found: list[Any],
    /,
) -> int:
    """Append an entry for each put from `at` on that begins so (`take_plain`) and has no `special` flag; how many."""

def put_stretch(
    data: bytes, begin: int, end: int, type: int, others: bytes, /
) -> tuple[int, int, int, int, int, int, int, int] | None:
    """The puts of a block if they stand one after the other, with rising numbers, one route set and the same flags:
    where they begin and end, the first and last number, how many they are, the bytes of their payloads, the route set
    and the flags. None if not, if there are none, if a record has a type of `others`, or if one is not whole.
    """

def stretch_entries(
    data: bytes,
    begin: int,
    end: int,
    prefix: bytes,
    count_at: int,
    is_narrow: bool,
    ttl_us: int,
    flags: int,
    found: list[Any],
    /,
) -> int:
    """Append an entry for each put of a stretch (`put_stretch`) that begins so (`take_plain`); where the first begins
    that does not.
    """

def pageable(
    mask: int, wanted: int, in_parts: Container[int], entries: list[Any], at: int, ceiling: int, limit: int, /
) -> int:
    """How many entries from `at` on have these flags of `mask`, are plain bytes, not among `in_parts`, and have numbers
    that rise, from `ceiling` on and below `limit`.
    """

def tally(entries: list[Any], flag: int, /) -> tuple[int, int, int]:
    """Bytes of the messages, how many of them expire, and how many have the flag."""

def picked(
    data: bytes, start: int, section: int, wanted: dict[bytes, str], classes: tuple[Callable[[Any], Any] | None, ...], /
) -> dict[str, Any]:
    """The values of a section that is a map, by name, for those encoded keys that are `wanted` and present; sections
    are looked for from `start` on. `classes` (256) make values of numbers, by format code.

    NotImplemented if something on the way is not what clients usually send: then nothing is said of the message.
    """

def properties_field(
    data: bytes, start: int, position: int, classes: tuple[Callable[[Any], Any] | None, ...], /
) -> Any:
    """A field of the properties section; None if it, or the section, is absent; NotImplemented as for `picked`."""
