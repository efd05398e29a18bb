"""What a checkpoint says of deliveries: of messages that are there, and of queues that are."""

# pyright: reportPrivateUsage=false

from pathlib import Path

from broker.log.log_steps import a_queue

from penstock_broker.log import EndReason, Log, LogOptions, SyncChoice
from penstock_broker.log.disk.files import ReadOnlyFiles
from penstock_broker.log.inspection.record_dump import ListedRecord, Wanted, list_records

SMALL = LogOptions(segment_bytes=16384, sync=SyncChoice.INLINE)


def last_checkpoint(log: Log, folder: Path) -> list[ListedRecord]:
    """Begin segments until a checkpoint is written, and read it."""
    _, route = a_queue(log, "filler")
    before = log._writer.schedule.kept_from
    while log._writer.schedule.kept_from == before:
        log.put(route, bytes(1000), 0)
        log.write()
        log.sync()
    log.close()
    records = list(list_records(ReadOnlyFiles(), folder, Wanted()))
    [begin] = [at for at, each in enumerate(records) if each.type == "checkpointBegin"][-1:]
    [end] = [at for at, each in enumerate(records) if each.type == "checkpointEnd"][-1:]
    return records[begin:end]


def test_nothing_is_said_of_a_queue_that_ended_with_its_connection(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    queue = log.next_incarnation()
    log.hold_volatile(queue)
    number = log.put_volatile(log.route_set((queue,)), b"spilled", 0)
    log.delivered_up_to({queue: number})
    log.delivery_count(queue, number, 1)
    assert log.remark(queue, number, b"remark")
    log.write()
    log.end_volatile(queue)
    said = [each.type for each in last_checkpoint(log, tmp_path)]
    assert not {"deliveredUpTo", "count", "remark"}.intersection(said)


def test_a_failure_is_forgotten_with_a_message_that_left_in_the_same_turn(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    queue, route = a_queue(log)
    gone, left = log.put(route, b"gone", 0), log.put(route, b"left", 0)
    log.write()
    for number in (gone, left):
        log.delivery_count(queue, number, 1)
    log.ack(queue, gone, EndReason.DEAD_LETTERED)
    log.write()
    [said] = [each.fields for each in last_checkpoint(log, tmp_path) if each.type == "count"]
    assert said == {"counts": [f"q:{left}=1"]}


def test_what_other_queues_know_of_their_messages_stays_when_one_ends(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path, options=SMALL)
    (kept, kept_route), (ended, ended_route) = a_queue(log, "kept"), a_queue(log, "ended")
    for queue, route in ((kept, kept_route), (ended, ended_route)):
        number = log.put(route, b"failed", 0)
        log.delivery_count(queue, number, 2)
        assert log.remark(queue, number, b"remark")
    log.write()
    log.delete("queue", "ended")
    records = last_checkpoint(log, tmp_path)
    assert [each.fields["counts"] for each in records if each.type == "count"] == [["kept:1=2"]]
    assert [each.fields["queue"] for each in records if each.type == "remark"] == ["kept"]
