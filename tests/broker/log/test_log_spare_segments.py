"""Segments in waiting: filled with zeros, recycled for good, given up when the disk is full."""

from pathlib import Path

from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log.disk.spare_segments import SpareSegments, number_of, segment_name

FOLDER = Path("/log")
SIZE = 16384


def spares(files: SimulatedFiles, wanted: int = 2, reserve: int = 0) -> SpareSegments:
    return SpareSegments(files, FOLDER, SIZE, reserve, wanted - reserve)


def test_a_spare_is_written_full_of_zeros() -> None:
    files = SimulatedFiles()
    pool = spares(files)
    assert pool.fill_one()
    spare = pool.take()
    assert spare is not None
    assert files.content(spare.path) == bytes(SIZE)


def test_a_recycled_segment_does_not_come_back_after_a_crash() -> None:
    """Its acks may have been recycled by then: what they acknowledged would live again."""
    files = SimulatedFiles()
    path = FOLDER / segment_name(1)
    handle = files.open(path, create=True)
    files.fsync_folder(FOLDER)
    spares(files).recycle(path, handle, SIZE)
    files.fsync_folder(FOLDER)
    files.crash(lambda length: length, names_kept=0)
    assert path not in files.paths()


def test_a_segment_of_another_size_is_deleted_for_good() -> None:
    files = SimulatedFiles()
    path = FOLDER / segment_name(1)
    handle = files.open(path, create=True)
    files.fsync_folder(FOLDER)
    pool = spares(files)
    pool.recycle(path, handle, SIZE * 2)
    files.fsync_folder(FOLDER)
    files.crash(lambda length: length, names_kept=0)
    assert files.paths() == [] and len(pool) == 0


def test_a_recycled_segment_is_not_handed_out_before_its_name_is_synced() -> None:
    files = SimulatedFiles()
    path = FOLDER / segment_name(1)
    handle = files.open(path, create=True)
    pool = spares(files)
    pool.recycle(path, handle, SIZE)
    assert pool.take() is None
    pool.names_are_synced()
    spare = pool.take()
    assert spare is not None and spare.handle == handle


def test_who_needs_a_spare_at_once_gets_a_recycled_one_whose_name_is_synced_on_the_spot() -> None:
    files = SimulatedFiles()
    path = FOLDER / segment_name(1)
    handle = files.open(path, create=True)
    pool = spares(files)
    pool.recycle(path, handle, SIZE)
    assert pool.fill_one()
    files.crash(lambda length: length, names_kept=0)
    assert path not in files.paths()


def test_the_next_run_takes_over_whole_spares_and_finishes_a_half_filled_one() -> None:
    files = SimulatedFiles()
    before = spares(files, wanted=1)
    assert before.fill_one()
    half = files.open(FOLDER / "spare-00000000000000ff.log", create=True)
    files.pwrite(half, bytes(4096), 0)
    pool = spares(files, wanted=2)
    pool.adopt(files.names(FOLDER))
    assert len(pool) == 1 and pool.lacking
    assert pool.fill_one() and not pool.lacking
    assert len(files.paths()) == 2, "the half filled one was continued"


def test_what_lacks_of_the_next_spare_grows_with_what_is_written_of_the_newest_segment() -> None:
    pool = spares(SimulatedFiles(), wanted=2, reserve=1)
    assert pool.fill_one()
    assert [pool.lag(used) for used in (0, SIZE // 4, SIZE // 2, SIZE * 3 // 4, SIZE)] == [
        0,
        SIZE // 3,
        SIZE * 2 // 3,
        SIZE,
        SIZE,
    ]


def test_nothing_lacks_when_enough_spares_are_there_or_can_not_be_made() -> None:
    files = SimulatedFiles()
    pool = spares(files, wanted=1)
    path = FOLDER / segment_name(1)
    assert [pool.lag(used) for used in (0, SIZE)] == [0, SIZE]
    assert pool.recycle(path, files.open(path, create=True), SIZE) is False
    assert pool.lag(SIZE) == 0, "a recycled one is as good as there"
    all_wanted = spares(SimulatedFiles(), wanted=1, reserve=1)
    assert all_wanted.fill_one()
    assert all_wanted.lag(SIZE) == 0, "no more than this are wanted"
    full = spares(files, wanted=2, reserve=1)
    files.space = 0
    assert not full.fill_one()
    assert full.lag(SIZE) == 0


def test_a_checkpoint_of_half_a_segment_or_more_finds_its_segments_in_the_reserve() -> None:
    pool = spares(SimulatedFiles(), wanted=3, reserve=2)
    kept: list[int] = []
    for checkpoint in (0, 4999, 5000, 9999, 10_000, 25_000, 0):
        pool.reserve_for(checkpoint, capacity=10_000)
        kept.append(pool.reserve)
    assert kept == [2, 2, 3, 3, 4, 5, 2]


def test_a_full_disk_is_noted_and_forgotten_when_there_is_room() -> None:
    files = SimulatedFiles()
    files.space = SIZE // 2
    pool = spares(files)
    assert not pool.fill_one() and pool.full
    files.space = SIZE * 2
    assert pool.fill_one() and not pool.full


def test_numbers_in_names_are_hexadecimal() -> None:
    assert segment_name(0x2A) == "segment-000000000000002a.log"
    assert number_of("segment-000000000000002a.log") == 42
