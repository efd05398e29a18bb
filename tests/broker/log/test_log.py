"""The log as the broker uses it, on the real file system and on one that fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue, settle
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import EndReason, FolderLocked, Log, LogOptions, RecordTooLarge, SyncChoice

SMALL = LogOptions(segment_bytes=16384, sync=SyncChoice.INLINE)


def test_what_was_put_and_not_acked_is_there_again(tmp_path: Path) -> None:
    log, before = Log.open(tmp_path, options=SMALL)
    assert before.documents == () and before.messages == {} and not before.clean
    incarnation, route = a_queue(log)
    log.topology("exchange", "orders", b'{"type":"Topic"}')
    first, second, third = (log.put(route, text, 7, 1) for text in (b"one", b"two", b"three"))
    log.write()
    log.ack(incarnation, second)
    log.ack(incarnation, third, EndReason.EXPIRED)
    log.close()
    log, after = Log.open(tmp_path, options=SMALL)
    log.close()
    assert after.clean and after.epoch == 1
    assert {(item.kind, item.key, item.payload) for item in after.documents} == {
        ("queue", "q", b""),
        ("exchange", "orders", b'{"type":"Topic"}'),
    }
    [message] = after.messages[incarnation]
    assert (message.number, message.payload, message.arrival, message.flags) == (first, b"one", 7, 1)
    assert (message.delivered, message.deliveries) == (False, 0)


def test_one_turn_is_one_block_and_an_empty_turn_none(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    _, route = a_queue(log)
    start = log.sequence
    log.put(route, b"1", 0)
    log.put(route, b"2", 0)
    assert log.write() == start + 1
    assert log.write() == start + 1
    log.close()


def test_a_rebind_drops_the_messages_and_a_deletion_the_queue(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    _, route = a_queue(log, "rebound")
    gone, gone_route = a_queue(log, "deleted")
    log.put(route, b"old", 0)
    log.put(gone_route, b"old", 0)
    rebound, route = a_queue(log, "rebound")
    kept = log.put(route, b"new", 0)
    log.delete("queue", "deleted")
    log.delete("queue", "never was")
    log.ack(gone, kept)
    log.close()
    log, after = Log.open(tmp_path, options=SMALL)
    log.close()
    assert [item.number for item in after.messages[rebound]] == [kept]
    assert set(after.messages) == {rebound}


def test_numbers_are_never_given_twice(tmp_path: Path) -> None:
    seen: set[int] = set()
    incarnations: set[int] = set()
    for _ in range(4):
        log, _ = Log.open(tmp_path, options=SMALL)
        _, route = a_queue(log)
        for number in (log.next_message(), log.put(route, b"", 0), log.next_message()):
            assert number not in seen
            seen.add(number)
        incarnation = log.next_incarnation()
        assert incarnation not in incarnations
        incarnations.add(incarnation)
        log.close()


def test_numbers_are_never_given_twice_where_checkpoints_are_too_large_to_be_written(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    for index in range(100):  # a checkpoint of them pays after 2.4 MB
        log.topology("exchange", f"e{index}", bytes(3000))
    _, route = a_queue(log)
    last = 0
    for _ in range(20):
        for _ in range(100_000):
            last = log.next_incarnation()
        for _ in range(10):
            log.put(route, bytes(1000), 0)
        log.write()
    log.crash()
    log, _ = Log.open(tmp_path, options=SMALL)
    assert log.next_incarnation() > last
    log.close()


def test_what_was_concluded_from_a_power_failure_holds_in_later_lives(tmp_path: Path) -> None:
    """After it every message may have been delivered. A life that is killed at once must not take that back."""
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=SMALL)
    incarnation, route = a_queue(log)
    log.put(route, b"x", 0)
    settle(log)
    log.crash()
    files.crash(lambda length: length, names_kept=0)
    for life in range(3):
        log, recovered = Log.open(tmp_path, files=files, options=SMALL)
        assert [message.delivered for message in recovered.messages[incarnation]] == [True], life
        log.crash()
        files.kill()


def test_each_start_begins_a_higher_epoch_also_after_a_crash(tmp_path: Path) -> None:
    files = SimulatedFiles()
    epochs: list[int] = []
    for _ in range(4):
        log, recovered = Log.open(tmp_path, files=files, options=SMALL)
        assert recovered.epoch == (epochs[-1] if epochs else 0), "it was synced before anything else"
        epochs.append(log.epoch)
        log.close()
        files.crash(lambda length: 0, names_kept=0)
    assert epochs == [1, 2, 3, 4]


def test_a_second_broker_is_told_who_has_the_folder(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    with pytest.raises(FolderLocked, match=f"in use by process {os.getpid()}$"):
        Log.open(tmp_path, options=SMALL)
    log.close()
    again, _ = Log.open(tmp_path, options=SMALL)
    again.close()


def test_the_lock_ends_with_the_process(tmp_path: Path) -> None:
    code = (
        "import os, pathlib; from penstock_broker.log import *;"
        f"Log.open(pathlib.Path({str(tmp_path)!r}), options=LogOptions(segment_bytes=16384)); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    log, recovered = Log.open(tmp_path, options=SMALL)
    assert not recovered.clean and recovered.epoch == 1
    log.close()


def test_a_crash_gives_the_folder_free_and_leaves_what_was_not_written(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    incarnation, route = a_queue(log)
    kept = log.put(route, b"written", 0)
    log.write()
    log.put(route, b"pending", 0)
    log.crash()
    log, after = Log.open(tmp_path, options=SMALL)
    log.close()
    assert not after.clean
    assert [item.number for item in after.messages[incarnation]] == [kept]


def test_a_turn_larger_than_a_segment_is_split(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    incarnation, route = a_queue(log)
    numbers = [log.put(route, bytes([index]) * 3000, index) for index in range(20)]
    log.ack(incarnation, numbers[3])
    log.close()
    log, after = Log.open(tmp_path, options=SMALL)
    assert [item.number for item in after.messages[incarnation]] == numbers[:3] + numbers[4:]
    assert all(item.payload == bytes([item.arrival]) * 3000 for item in after.messages[incarnation])
    for item in after.messages[incarnation]:
        log.ack(incarnation, item.number)
    settle(log)
    assert log.segments <= 2
    log.close()


def test_many_acks_in_one_turn_become_several_records(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    incarnation, route = a_queue(log)
    numbers = [log.put(route, b"", 0) for _ in range(3000)]
    log.write()
    for number in numbers[::2]:
        log.ack(incarnation, number)
    log.close()
    log, after = Log.open(tmp_path, options=SMALL)
    log.close()
    assert [item.number for item in after.messages[incarnation]] == numbers[1::2]


def test_queues_that_lose_the_same_messages_in_any_order_keep_the_others(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    queues = [a_queue(log, name)[0] for name in ("one", "two", "three", "four")]
    route = log.route_set(tuple(queues))
    assert [log.put(route, b"", 0) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    log.write()
    for queue, numbers in zip(queues, ([4, 2, 3], [4, 2, 3], [2, 3, 4], [6, 1]), strict=True):
        log.ack_many(queue, numbers)
    log.close()
    log, after = Log.open(tmp_path, options=SMALL)
    log.close()
    left = [[item.number for item in after.messages[queue]] for queue in queues]
    assert left == [[1, 5, 6], [1, 5, 6], [1, 5, 6], [2, 3, 4, 5]]


def test_too_large_is_said_at_once(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    with pytest.raises(RecordTooLarge):
        log.topology("queue", "q", bytes(9000), 77)
    log.close()


def test_segment_sizes_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 4096"):
        LogOptions(segment_bytes=20000)


def test_a_failed_write_ends_durable_work(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=SMALL)
    _, route = a_queue(log)
    log.write()
    files.broken.add("pwrite")
    log.put(route, b"x", 0)
    sequence = log.write()
    files.broken.clear()
    log.request_sync()
    log.collect()
    assert log.failed is not None and log.failed.startswith("writing failed")
    assert log.synced < sequence
    log.close()


def test_a_folder_of_another_segment_size_goes_on_with_the_new_one(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    incarnation, route = a_queue(log)
    first = log.put(route, b"x" * 5000, 0)
    log.close()
    larger = LogOptions(segment_bytes=32768, sync=SyncChoice.INLINE)
    log, _ = Log.open(tmp_path, options=larger)
    route = log.route_set((incarnation,))
    numbers = [log.put(route, b"y" * 9000, 0) for _ in range(4)]
    log.close()
    log, after = Log.open(tmp_path, options=larger)
    log.close()
    assert [item.number for item in after.messages[incarnation]] == [first, *numbers]
