"""Puts that end with their epoch: what a reader finds of them, what a later epoch does, and what compaction copies."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.log.log_steps import a_queue, opened
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import VOLATILE, Log
from penstock_broker.log.format.record_codec import decode_records
from penstock_broker.log.format.records import Put, VolatilePut


def test_the_record() -> None:
    record = bytes.fromhex(
        "18 02 0000 1b000000"  # type 24, flags 2, reserved, 27 bytes
        "05000000 00000000"  # route set 5, reserved
        "0900000000000000 6400000000000000"  # message 9, arrival 100
        "616263"  # abc
    )
    assert list(decode_records(memoryview(record))) == [VolatilePut(Put(5, 9, 100, b"abc", 2))]


def test_they_are_read_back_in_their_epoch_and_are_gone_in_the_next(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    lasting = log.next_incarnation()
    log.topology("queue", "lasting", b"{}", lasting)
    passing = log.next_incarnation()
    log.hold_volatile(passing)
    both = log.route_set((lasting, passing))
    durable = log.put(log.route_set((lasting,)), b"durable", 1)
    volatile = log.put_volatile(both, b"volatile", 2)
    log.write()
    assert [(put.message, put.payload) for put in log.read(passing, 1, volatile, 9, 99).puts] == [
        (volatile, b"volatile")
    ]
    found = log.read(lasting, 1, volatile, 9, 99).puts
    assert [(put.message, put.flags & VOLATILE) for put in found] == [(durable, 0), (volatile, VOLATILE)]
    log.ack(passing, volatile)
    log.write()
    log.crash()
    log, recovered = opened(tmp_path, files)
    assert [each.number for each in recovered.messages[lasting]] == [durable]
    assert list(recovered.messages) == [lasting]
    assert not recovered.lost
    assert log.next_message() > volatile
    assert [put.message for put in log.read(lasting, 1, volatile, 9, 99).puts] == [durable]
    log.crash()


def test_compaction_copies_those_of_this_epoch_and_leaves_those_of_earlier_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One message of ten stays; each second one of these is volatile."""
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    queue, route = a_queue(log)
    durable: list[int] = []
    volatile: list[int] = []
    for index in range(2000):
        is_volatile = index % 20 == 10
        number = (log.put_volatile if is_volatile else log.put)(route, bytes(400), index)
        if index % 10:
            log.ack(queue, number)
        else:
            (volatile if is_volatile else durable).append(number)
        log.write()
    compact(log)
    found = log.read(queue, 1, log.next_number, 999, 999_999).puts
    assert [put.message for put in found] == sorted(durable + volatile)
    assert [put.message for put in found if put.flags & VOLATILE] == volatile
    log.crash()
    log, recovered = opened(tmp_path, files)
    assert [each.number for each in recovered.messages[queue]] == durable
    for number in [each for at, each in enumerate(durable) if at % 8]:
        log.ack(queue, number)
    compact(log)
    rest = durable[::8]
    log.crash()
    log, recovered = opened(tmp_path, files)
    assert [each.number for each in recovered.messages[queue]] == rest
    assert not [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]
    log.crash()


def compact(log: Log) -> None:
    """Write a checkpoint, and let the log do what it wants; segments become few."""
    for _ in range(30):
        log.topology("exchange", "x", bytes(1000))
        log.write()
    log.sync()
    before = log.segments
    for _ in range(3000):
        if not log.wants_maintenance:
            break
        log.maintain(1000.0)
        log.write()
        log.sync()
        log.collect()
    assert log.segments <= max(6, before // 2)
