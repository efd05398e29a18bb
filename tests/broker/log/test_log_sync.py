"""When what was written is synced, by each back end, and what follows from an fdatasync that fails."""

import os
import select
import threading
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import Log, LogOptions, SyncChoice, lock_folder
from penstock_broker.log.disk.syncers import AioSyncer, InlineSyncer, ThreadSyncer

SMALL = LogOptions(segment_bytes=16384, sync=SyncChoice.INLINE)


@pytest.mark.parametrize("choice", [SyncChoice.AUTO, SyncChoice.AIO, SyncChoice.THREAD, SyncChoice.INLINE])
def test_the_descriptor_tells_when_a_sync_has_ended(tmp_path: Path, choice: SyncChoice) -> None:
    log, _ = Log.open(tmp_path, options=LogOptions(segment_bytes=16384, sync=choice))
    _, route = a_queue(log)
    log.put(route, b"x", 0)
    sequence = log.write()
    assert log.synced < sequence
    log.request_sync()
    poll = select.epoll()
    poll.register(log.descriptor, select.EPOLLIN)
    while log.synced < sequence:
        assert poll.poll(60)
        log.collect()
    poll.close()
    log.close()


@pytest.mark.parametrize("choice", [SyncChoice.AIO, SyncChoice.THREAD, SyncChoice.INLINE])
def test_that_a_sync_has_ended_can_be_seen_without_the_descriptor(tmp_path: Path, choice: SyncChoice) -> None:
    log, _ = Log.open(tmp_path, options=LogOptions(segment_bytes=16384, sync=choice))
    _, route = a_queue(log)
    log.put(route, b"x", 0)
    sequence = log.write()
    log.collect()  # the start's own
    assert not log.sync_may_have_ended
    log.request_sync()
    poll = select.epoll()
    poll.register(log.descriptor, select.EPOLLIN)
    while not log.sync_may_have_ended:  # the thread may have told of the start's own sync only now
        assert poll.poll(60)
    poll.close()
    assert log.collect() == sequence
    assert not log.sync_may_have_ended
    log.close()


def test_a_failed_sync_is_never_repeated_and_nothing_is_promised_after_it(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=SMALL)
    _, route = a_queue(log)
    log.put(route, b"x", 0)
    sequence = log.write()
    files.broken.add("fdatasync")
    log.request_sync()
    log.collect()
    assert log.failed is not None and "fdatasync failed" in log.failed
    assert log.synced < sequence
    files.broken.clear()
    calls = files.synced_calls
    log.put(route, b"y", 0)
    later = log.write()
    log.request_sync()
    log.collect()
    log.maintain(1000)
    assert files.synced_calls == calls
    assert log.synced < sequence <= later
    assert not log.accepts_publishing()
    log.close()


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
def test_what_is_delivered_after_a_failure_counts_as_delivered_in_the_next_run_and_in_no_later_one(
    tmp_path: Path, call: str
) -> None:
    """A broker goes on delivering what it has, and can't write it down any more."""
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=SMALL)
    queue, route = a_queue(log)
    first = log.put(route, b"x", 0)
    log.write()
    log.sync()
    files.broken.add(call)
    a_queue(log, "another")
    log.write()
    log.request_sync()
    log.collect()
    assert log.failed is not None
    log.delivered_up_to({queue: first})
    log.write()
    log.close()
    files.kill()

    log, recovered = Log.open(tmp_path, files=files, options=SMALL)
    assert [message.delivered for message in recovered.messages[queue]] == [True]
    second = log.put(log.route_set((queue,)), b"y", 0)
    log.write()
    log.crash()
    files.kill()

    log, recovered = Log.open(tmp_path, files=files, options=SMALL)
    found = [(message.number, message.delivered) for message in recovered.messages[queue]]
    assert found == [(first, True), (second, False)]
    log.close()


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
@pytest.mark.parametrize("choice", [SyncChoice.INLINE, SyncChoice.THREAD])
def test_a_volume_that_is_mounted_anew_still_says_that_the_log_failed(
    tmp_path: Path, call: str, choice: SyncChoice
) -> None:
    """The machine has not restarted since, so that only the file says that what was delivered is not known."""
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=LogOptions(segment_bytes=16384, sync=choice))
    queue, route = a_queue(log)
    first = log.put(route, b"x", 0)
    log.write()
    log.sync()
    files.broken.add(call)
    a_queue(log, "another")
    log.write()
    log.request_sync()
    log.sync()
    assert log.failed is not None and call in log.failed
    log.close()
    files.mount_anew()

    log, recovered = Log.open(tmp_path, files=files, options=SMALL)
    assert [(message.number, message.delivered) for message in recovered.messages[queue]] == [(first, True)]
    log.close()


def test_that_the_mark_of_a_failure_can_not_be_synced_changes_nothing(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=SMALL)
    queue, route = a_queue(log)
    first = log.put(route, b"x", 0)
    log.write()
    log.sync()
    files.broken |= {"fdatasync", "fsync_folder"}
    a_queue(log, "another")
    log.write()
    log.request_sync()
    log.collect()
    log.collect()  # the end of the sync of that file
    assert log.failed is not None and "fdatasync failed" in log.failed
    assert not log.failure_file.is_missing
    log.close()
    files.kill()

    log, recovered = Log.open(tmp_path, files=files, options=SMALL)
    assert [(message.number, message.delivered) for message in recovered.messages[queue]] == [(first, True)]
    log.close()


def test_a_disk_that_takes_no_file_either_fails_the_log_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=SMALL)
    queue, route = a_queue(log)
    first = log.put(route, b"x", 0)
    log.write()
    log.sync()
    files.broken |= {"pwrite", "create"}
    log.delivered_up_to({queue: first})
    log.write()
    assert log.failed is not None
    assert "failed can't be made, so messages of durable queues are not delivered" in caplog.text
    assert log.failure_file.is_missing
    files.broken.discard("create")
    log.failure_file.leave()
    assert not log.failure_file.is_missing
    log.close()


@pytest.mark.parametrize("make", [AioSyncer, ThreadSyncer, InlineSyncer])
def test_whatever_goes_wrong_in_a_sync_its_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: type[AioSyncer | ThreadSyncer | InlineSyncer]
) -> None:
    files = SimulatedFiles()
    syncer = make(files)

    def fails(folder: Path) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(files, "fsync_folder", fails)
    syncer.submit_folder(-2, tmp_path)
    [(token, error)] = syncer.wait()
    assert token == -2
    assert str(error) == "[Errno 5] a sync could not be done: ValueError('a mistake')"
    syncer.close()


def test_names_are_synced_in_place_if_no_thread_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    syncer = AioSyncer(files)
    files.open(tmp_path / "a", create=True)

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    syncer.submit_folder(-2, tmp_path)
    monkeypatch.undo()
    assert syncer.wait() == [(-2, None)]
    files.crash(lambda length: 0, 0)
    assert files.paths() == [tmp_path / "a"]
    syncer.close()


def test_the_name_of_a_new_folder_is_synced_in_the_one_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    os.close(lock_folder(tmp_path / "data" / "log"))
    assert synced == [str(tmp_path), str(tmp_path / "data")]
    synced.clear()
    os.close(lock_folder(tmp_path / "data" / "log"))
    assert synced == []
