"""Each sync, checksum and ordering that the log relies on is switched off in turn, and a test of crashes or damage goes
red; with all of them on, the same tests are green.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from broker.log import test_log_compaction as compaction
from broker.log import test_log_sync
from broker.log.crash_trials import Course
from broker.log.log_steps import a_queue, opened, settle, whole
from broker.log.reliances import OFF
from broker.log.simulated_files import SimulatedFiles
from broker.log.test_log_disk_faults import Sixteen, segment
from broker.log.test_log_recover import Filled, fates, open_log

from penstock_broker.log import Log, SyncChoice

SEEDS: Final = (8, 1, 2, 3, 4)


def crashes(folder: Path, every: int = 6) -> None:
    """Kills, power failures and failed syncs at many steps of a course of traffic."""
    for seed in SEEDS:
        Course(folder / str(seed), every=every, seed=seed).run()


def taken_while_copied(folder: Path) -> None:
    compaction.test_what_is_taken_while_it_is_copied_does_not_come_back(compaction.Sparse(folder))


def checkpoint_without_sync(folder: Path) -> None:
    """Topology is synced. Then the log goes on, unsynced, over a checkpoint and further; and the power fails."""
    files = SimulatedFiles()
    log, _ = opened(folder, files)
    for index in range(20):
        log.topology("exchange", f"early {index}", bytes(100))
    log.write()
    log.sync()
    for _ in range(80):
        log.topology("exchange", "later", bytes(1000))
        log.write()
        log.maintain(1000)
        log.collect()
    log.crash()
    files.crash(lambda length: 0, 99)
    log, recovered = opened(folder, files)
    log.close()
    assert {each.key for each in recovered.documents} >= {f"early {index}" for index in range(20)}


def taken_behind_its_copy(folder: Path) -> None:
    sparse = compaction.Sparse(folder)
    compaction.test_a_message_taken_behind_its_copy_does_not_come_back_with_the_old_segment(sparse)


def mounted_anew(folder: Path) -> None:
    test_log_sync.test_a_volume_that_is_mounted_anew_still_says_that_the_log_failed(
        folder, "fdatasync", SyncChoice.INLINE
    )


def moved_parts_unsynced(folder: Path) -> None:
    compaction.test_a_crash_before_moved_parts_are_synced_loses_no_body(folder)


def flipped_bits(folder: Path) -> None:
    """One bit of each block but the last in turn: it is damage, and the message in it is lost, and no other."""
    sixteen = Sixteen(folder)
    for index, number in enumerate(sixteen.messages[:-1]):
        if not index:
            continue  # its bytes are zeros, which stand in other places too
        disk = sixteen.files
        sixteen.files = disk.copy()
        (path,) = [each for each in disk.paths() if bytes([index]) * 3000 in sixteen.files.content(each)]
        content = sixteen.files.content(path)
        content[content.index(bytes([index]) * 3000) + 1500] ^= 1
        recovered = sixteen.reopened()
        assert len(recovered.damage) == 1
        found = {each.number: whole(each.payload) for each in recovered.messages[sixteen.queue]}
        expected = {each: bytes([at]) * 3000 for at, each in enumerate(sixteen.messages) if each != number}
        assert found == expected
        sixteen.files = disk


def flipped_bit_before_compaction(folder: Path) -> None:
    """In a message that is alive in a segment that is to be rewritten: it must not get a new checksum."""
    sparse = compaction.Sparse(folder)
    payload = list(sparse.live.values())[1]
    (path,) = [each for each in sparse.files.paths() if payload in sparse.files.content(each)][:1]
    content = sparse.files.content(path)
    content[content.index(payload) + 200] ^= 1
    compaction.settle_synced(sparse.log)
    sparse.log.close()
    log, recovered = opened(folder, sparse.files)
    log.close()
    for each in recovered.messages[sparse.queue]:
        assert whole(each.payload) == sparse.live[each.number]
    assert recovered.damage


def flipped_bit_in_a_header(folder: Path) -> None:
    """In the log's id, of which the second copy is sound."""
    filled = Filled(folder, blocks=3, synced=3)
    filled.files.content(segment(folder, 1))[32] ^= 1
    assert filled.found() == filled.messages


def cut_and_then_damage(folder: Path) -> None:
    """A power failure leaves blocks behind a lost one, which are cut. New, shorter blocks end before them. Then a bad
    sector takes the new blocks: what was cut must not come in their place.
    """
    filled = Filled(folder, blocks=5, synced=2, size=1000)
    lost = filled.ends[1]
    filled.files.crash(fates(False, True, True), names_kept=0)
    log, _ = open_log(folder, filled.files)
    route = log.route_set((filled.incarnation,))
    log.put(route, b"in the bad sector", 0)
    log.write()
    behind = [log.put(route, bytes(3700), 0) for _ in range(3)]  # do not fit into the first segment
    log.write()
    log.sync()
    log.close()
    filled.files.content(segment(folder, 1))[lost : lost + 512] = bytes(512)
    recovered = filled.reopened()
    assert recovered.damage
    found = [each.number for each in recovered.messages[filled.incarnation]]
    assert found == [*filled.messages[:2], *behind]


def spare_with_blocks_of_another_log(folder: Path) -> None:
    """A segment is begun in a file with blocks of another log, at the places where blocks of this one would be next."""

    def filled(name: str, log_id: bytes, before_next: Callable[[SimulatedFiles], None], blocks: int) -> SimulatedFiles:
        files = SimulatedFiles()
        log, _ = open_log(folder / name, files, log_id)
        settle_spares(log)
        _, route = a_queue(log)
        for index in range(blocks):
            if index == 4:
                before_next(files)
            log.put(route, name.encode() * 300, 0)
            log.write()
            log.sync()
        log.crash()
        return files

    other = filled("theirs", b"\2" * 16, lambda files: None, 12)
    content = bytes(other.content(segment(folder / "theirs", 2)))

    def plant(files: SimulatedFiles) -> None:
        for path in files.paths():
            if path.name.startswith("spare-"):
                files.content(path)[:] = content

    own = filled("thisis", b"\1" * 16, plant, 9)
    log, recovered = open_log(folder / "thisis", own)
    log.close()
    (messages,) = recovered.messages.values()
    assert len(messages) == 9
    assert {bytes(each.payload) for each in messages} == {b"thisis" * 300}


def settle_spares(log: Log) -> None:
    """Until the spare segments are there."""
    settle(log)


RED: Final[dict[str, Callable[[Path], None]]] = {
    "blocks are synced before they are promised": crashes,
    "a former segment is synced with the newest": crashes,
    "a failed sync is not repeated": crashes,
    "the name of a new segment is synced": crashes,
    "the new name of a recycled segment is synced": crashes,
    "the name of the file that says that the log failed is synced": mounted_anew,
    "recovery syncs what it has read": crashes,
    "recovery syncs names": crashes,
    "recovery writes again what may be in memory only": crashes,
    "recovery wipes what it cuts": cut_and_then_damage,
    "a block has a checksum": flipped_bits,
    "the checksum begins with the log's id": spare_with_blocks_of_another_log,
    "a block that is read again has its checksum checked": flipped_bit_before_compaction,
    "a segment's header has a checksum": flipped_bit_in_a_header,
    "what a block says was synced is no torn tail": flipped_bits,
    "a torn tail is no damage": crashes,
    "a segment is recycled when the block that freed it, or the record of its end, is synced": crashes,
    "a segment is recycled when the record of its end is synced": crashes,
    "a segment is recycled when the checkpoint behind it, or the record of its end, is synced": checkpoint_without_sync,
    "acks stay as long as the puts that they name": crashes,
    "acks that keep segments are written again before these are free": crashes,
    "a segment is recycled when its acks that were written again, or the record of its end, are synced": crashes,
    "acks of copies name the older puts too": taken_behind_its_copy,
    "a segment is recycled when its moved parts of bodies, or the record of its end, are synced": moved_parts_unsynced,
    "compaction notes acks, or sees by the tallies that it did not": taken_while_copied,
    "a body keeps the segments that it lies in": crashes,
    "a route set is defined in each segment that uses it": crashes,
    "numbers are reserved before they are used": crashes,
    "a restart of the machine is told from one of the process": crashes,
    "what recovery concludes of deliveries is written": crashes,
}
"""By what is switched off, the test that goes red."""

_END: Final = "the record of the segment's end is written behind it, and synced before the file goes"
GREEN: Final = {
    "a segment is over when the block that freed it is synced": _END,
    "a segment is over when the checkpoint behind it is synced": _END,
    "a segment is over when its acks that were written again are synced": _END,
    "a segment is over when its parts of bodies that were moved are synced": _END,
    "compaction notes acks": "it sees by the tallies if one is lacking, and leaves the segment alone",
    "the zeros of a spare segment are synced": "it only makes later syncs cheap",
    "recovery deletes segments behind the cut": "each later start would cut them again",
}
"""What nothing relies on, and why it is done."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)


def test_everything_that_can_be_switched_off_is_in_one_table() -> None:
    assert OFF.keys() == RED.keys() | GREEN.keys()


@pytest.mark.parametrize("shown_by", list(dict.fromkeys(RED.values())))
def test_with_everything_on_it_is_green(shown_by: Callable[[Path], None], tmp_path: Path) -> None:
    if shown_by is crashes:
        crashes(tmp_path, every=30)
    else:
        shown_by(tmp_path)


@pytest.mark.parametrize("name", RED)
def test_without_it_a_test_is_red(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OFF[name](monkeypatch)
    try:
        RED[name](tmp_path)
    except Exception:
        return  # of any kind: the log itself may stumble
    pytest.fail("nothing noticed it")


@pytest.mark.parametrize("name", GREEN)
def test_without_it_nothing_is_lost(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OFF[name](monkeypatch)
    Course(tmp_path, every=30).run()
