"""The messages of a queue that failed repeatedly: which are kept, in which order, and whether one is in flight."""

from __future__ import annotations

import pytest

from penstock_amqp.endpoint.events import Entry
from penstock_amqp.messages.message_codec import Message, Properties, decode_message, encode_message
from penstock_amqp.types.values import ULong
from penstock_broker.queue.redelivery import Redelivery


def entry(number: int) -> Entry:
    return (number, b"", 0, 0, 0)


def fail(known: Redelivery, number: int, times: int = 1) -> None:
    for _ in range(times):
        known.attempts[number] = known.attempts.get(number, 0) + 1
        known.repeated.failed(entry(number))


def worst(known: Redelivery, most: int) -> list[tuple[int, int]]:
    """Numbers and failed deliveries."""
    return [(each[0], failed) for each, failed in known.repeated.worst(most)]


def test_the_one_that_failed_most_comes_first_then_the_oldest() -> None:
    known = Redelivery()
    fail(known, 1)
    assert not known.repeated
    fail(known, 9, 2)
    fail(known, 3, 4)
    fail(known, 2, 2)
    assert worst(known, 5) == [(3, 4), (2, 2), (9, 2)]
    assert worst(known, 2) == [(3, 4), (2, 2)]


def test_what_has_left_is_forgotten() -> None:
    known = Redelivery()
    fail(known, 1, 2)
    known.repeated.sent(1)
    known.forget(1)
    known.forget(2)
    assert (worst(known, 5), known.repeated.is_in_flight(1)) == ([], False)
    fail(known, 1)
    assert worst(known, 5) == []


@pytest.mark.parametrize(
    ("failed", "is_seen", "count"), [(0, False, 0), (0, True, 1), (1, False, 1), (3, False, 3), (3, True, 3)]
)
def test_the_delivery_count_of_the_next_delivery(failed: int, is_seen: bool, count: int) -> None:
    """Decision 032: the attempts that count, and at least 1 if a consumer may have seen the message."""
    known = Redelivery()
    fail(known, 7, failed)
    if is_seen:
        known.seen.note(7)
    assert known.delivery_count(7) == count
    assert known.delivery_count(8) == 0


def test_a_message_is_in_flight_from_when_it_is_sent_until_it_fails_or_comes_back() -> None:
    known = Redelivery()
    known.repeated.sent(1)
    assert not known.repeated.is_in_flight(1)  # it has not failed repeatedly
    fail(known, 1, 2)
    assert not known.repeated.is_in_flight(1)
    known.repeated.sent(1)
    assert known.repeated.is_in_flight(1)
    known.repeated.came_back(1)
    assert not known.repeated.is_in_flight(1)
    known.repeated.sent(1)
    fail(known, 1)
    assert not known.repeated.is_in_flight(1)


def test_of_very_many_the_worst_are_kept_and_one_that_was_left_out_returns() -> None:
    known = Redelivery()
    for number in range(1, 65):
        fail(known, number, 3)
    assert worst(known, 1000) == [(number, 3) for number in range(1, 65)]
    for number in (1, 64):
        known.repeated.sent(number)
    fail(known, 65, 2)
    assert [number for number in (1, 64) if known.repeated.is_in_flight(number)] == [1]
    assert worst(known, 1000) == [(number, 3) for number in range(1, 33)]
    fail(known, 65, 5)
    assert worst(known, 2) == [(65, 7), (1, 3)]


@pytest.mark.parametrize("identifier", ["ID:1", "\N{EARTH GLOBE ASIA-AUSTRALIA}" * 40_000, b"x" * 40_000, 7, None])
def test_of_long_messages_only_the_ids_are_kept(identifier: str | bytes | int | None) -> None:
    """64 of them in each of 10,000 queues, of a megabyte each, would be 640 GB."""
    known = Redelivery()
    wide = ULong(identifier) if isinstance(identifier, int) else identifier
    data = encode_message(Message(properties=Properties(message_id=wide, subject="s" * 1000), body="b" * 100_000))
    for count in (1, 2, 3):
        known.attempts[5] = count
        known.repeated.failed((5, data, 1, 2, 3))
    (((number, kept, *times), failed),) = known.repeated.worst(1)
    assert (number, times, failed) == (5, [1, 2, 3], 3)
    assert len(kept) < 1100
    told = decode_message(kept).properties.message_id if kept else None
    assert told == (identifier[:255] if isinstance(identifier, str | bytes) else identifier)


def test_a_short_message_is_kept_as_it_is() -> None:
    known = Redelivery()
    known.attempts[5] = 2
    entry = (5, encode_message(Message(body="b" * 400)), 1, 2, 3)
    known.repeated.failed(entry)
    assert known.repeated.worst(1)[0][0] is entry


def test_at_the_end_nothing_is_known() -> None:
    known = Redelivery()
    fail(known, 1, 2)
    known.seen.note(1)
    known.excluded.exclude("a consumer", 2)
    piles = known.take_all()
    # Number 1 is the second bit of the first piece. What somebody refused is kept for all and for each.
    assert piles == [{0: 0b10}, {1: 2}, {0: 0b100}, {0: 0b100}]
    assert (known.attempts, known.seen, known.excluded, worst(known, 5)) == ({}, {}, {}, [])
    fail(known, 1, 2)
    assert worst(known, 5) == [(1, 2)]
