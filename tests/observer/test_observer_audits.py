"""Audits: their records are fetched from a real broker and kept as Parquet files, with a limit of their own."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's own types are not complete, and pyarrow ships none.

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from observer.audit_site import DAY_MS, NAME, OWNER, Site, audited

from penstock_amqp.client.management import ManagementClient
from penstock_api.failure import Failure
from penstock_api.management import EntityType, Operation, SubscriptionDeclaration
from penstock_api.message_audit import AuditEvent, AuditStart, AuditState, AuditTotals, EventKind
from penstock_lag.audit.sources import from_folders, from_observers
from penstock_lag.observer_client import Observer, ObserverError
from penstock_observer.audit_fetch import AuditFetcher
from penstock_observer.audit_files import AuditFull, AuditStore
from penstock_observer.http import Api, make_app
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.secrets import TokenFile

TestServer.__test__ = False  # pytest would collect it by its name

FIRST_NAME = "psub:durable:global:accounts"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with audited(tmp_path) as site:
        yield site


async def test_an_audit_is_fetched_over_a_restart_of_the_observer(site: Site) -> None:
    await site.send("a")
    await site.manage(Operation.START_AUDIT, AuditStart(seconds=60))
    await site.send("b")
    await site.poll()
    site.restart_observer()
    await site.accept(1)
    await site.poll()
    await site.manage(Operation.STOP_AUDIT)
    await site.poll()
    await site.poll()
    assert site.rows() == [
        (0, "PRESENT", "a", 0),
        (1, "ENQUEUED", "b", 1),
        (2, "DELIVERED", "", 2),
        (3, "ACCEPTED", "", 3),
        (4, "WAITING", "", 3),
    ]
    (audit,) = site.store.listed()
    assert (audit.is_complete, audit.records, audit.state.ended_by) == (True, 5, "Request")
    assert (audit.state.namespace, audit.state.name, audit.state.queue_name) == ("shop", "billing", NAME)
    assert [path.name for path in site.folder.iterdir() if path.name.startswith(".")] == []


async def test_a_restart_of_the_broker_ends_the_audit_by_name(site: Site) -> None:
    await site.manage(Operation.START_AUDIT, AuditStart(seconds=60))
    await site.poll()
    site.broker.kill()
    site.broker.start()
    await site.polled.close()
    await site.poll()
    (audit,) = site.store.listed()
    assert (audit.is_complete, audit.state.ended_by) == (False, "Restart")
    await site.manage(Operation.START_AUDIT, AuditStart(seconds=60))
    await site.poll()
    assert [each.state.ended_by for each in site.store.listed()] == ["Restart", None]


async def test_what_a_report_needs_is_copied_from_the_observer(site: Site, tmp_path: Path) -> None:
    await site.manage(Operation.START_AUDIT, AuditStart(seconds=60))
    await site.send("a")
    await site.poll()
    await site.manage(Operation.STOP_AUDIT)
    await site.poll()
    await site.poll()
    site.ledger.seal(0)
    (tmp_path / "token").write_text("s3cret")
    (tmp_path / "copies").mkdir()
    place = BrokerPod("main", "shop", 0)
    results = ResultStore(tmp_path / "results", place, 1)
    api = Api(site.live, site.ledger, results, place, TokenFile(tmp_path / "token"), lambda: NOW, audits=site.store)
    async with TestServer(make_app(api)) as server:
        observer = Observer(str(server.make_url("")), "s3cret")
        copied = await asyncio.to_thread(from_observers, [observer], "shop/billing", None, tmp_path / "copies")
        with pytest.raises(Failure, match="there is no audit of 'shop/other'") as missing:
            await asyncio.to_thread(from_observers, [observer], "shop/other", None, tmp_path / "copies")
        assert missing.value.exit_code == 1  # the observer was asked
        with pytest.raises(ObserverError, match="there is no file '1' of an audit now"):
            await asyncio.to_thread(observer.get, "/v1/audits/1")
    there = from_folders([tmp_path / "ledger"], "billing", None)
    assert copied.audit.state == there.audit.state
    assert (
        (copied.audit.records, copied.audit.is_complete) == (there.audit.records, there.audit.is_complete) == (2, True)
    )
    assert copied.damaged == there.damaged == ()
    for copies, originals in ((copied.files, there.files), (copied.segments, there.segments)):
        assert [Path(each).read_bytes() for each in copies] == [Path(each).read_bytes() for each in originals] != []


async def test_a_damaged_segment_is_not_held_against_the_broker(site: Site, tmp_path: Path) -> None:
    """Without the name of its column `acked`, nothing would have been accepted, says the ledger. From a folder, and
    from an observer that serves it.
    """
    await site.manage(Operation.START_AUDIT, AuditStart(seconds=60))
    await site.send("a")
    await site.poll()
    await site.manage(Operation.STOP_AUDIT)
    await site.poll()
    await site.poll()
    site.ledger.seal(0)
    (segment,) = (path for path in (tmp_path / "ledger").iterdir() if path.suffix == ".parquet")
    _flip(segment, b"acked")
    (tmp_path / "token").write_text("s3cret")
    (tmp_path / "copies").mkdir()
    place = BrokerPod("main", "shop", 0)
    results = ResultStore(tmp_path / "results", place, 1)
    api = Api(site.live, site.ledger, results, place, TokenFile(tmp_path / "token"), lambda: NOW, audits=site.store)
    async with TestServer(make_app(api)) as server:
        observer = Observer(str(server.make_url("")), "s3cret")
        copied = await asyncio.to_thread(from_observers, [observer], "shop/billing", None, tmp_path / "copies")
    there = from_folders([tmp_path / "ledger"], "billing", None)
    told = (
        f"Segment {segment.name} of the ledger is not compared, because it is damaged: its footer does not agree with "
        "its checksum."
    )
    assert (copied.segments, copied.damaged) == (there.segments, there.damaged) == ((), (told,))


async def test_an_audit_that_is_too_large_does_not_keep_the_others_from_being_stored(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Both are on. That of the first name has more bytes already than all may have together, so it makes room for the
    other one, and does not come back.
    """
    client = await ManagementClient.connect(site.broker.management)
    await client.create(SubscriptionDeclaration(subscription_name="accounts", exchange="orders", owner=OWNER))
    for name in (FIRST_NAME, NAME):
        (await client.request(Operation.START_AUDIT, EntityType.SUBSCRIPTION, name, AuditStart(seconds=60))).check()
    await client.close()
    await site.poll()
    (large,) = [each for each in site.store.unfinished() if each.queue_name == FIRST_NAME]
    site.store = AuditStore(site.folder, 1000, DAY_MS)
    site.store.append(large, 0, events(100))
    site.fetcher = AuditFetcher(site.live, site.connect, site.store, 10)
    await site.send(*(f"a{number}" for number in range(101)))
    for _ in range(3):
        await site.poll()
        assert [(each.state.queue_name, each.records) for each in site.store.listed()] == [(NAME, 101)]
    assert caplog.text.count("the audit of psub:durable:global:accounts takes more than 1000 bytes") == 1


# -- the folder -----------------------------------------------------------------------------------------------------


def state(number: int, **changes: Any) -> AuditState:
    values: dict[str, Any] = {
        "audit": f"1-{number}-7", "queue_name": f"q{number}", "subscription_name": "s", "instance_id": "i", "epoch": 1,
        "incarnation": 7, "started_ms": number, "until_ms": number + 60_000, "begin": AuditTotals(),
    }  # fmt: skip
    return AuditState(**(values | changes))


def events(count: int) -> list[AuditEvent]:
    return [AuditEvent(EventKind.ENQUEUED, number, 5, 5, f"m{number}") for number in range(count)]


def test_the_oldest_audits_make_room(tmp_path: Path) -> None:
    store = AuditStore(tmp_path / "measured", 1 << 30, DAY_MS)
    store.append(state(1), 0, events(9))
    folder = tmp_path / "audit"
    store = AuditStore(folder, int(2.5 * store.listed()[0].bytes), DAY_MS)
    for number in (1, 2, 3):
        store.append(state(number), 0, events(9))
    assert [each.state.queue_name for each in store.listed()] == ["q1", "q2", "q3"]
    store.append(state(4), 0, events(9))
    assert [each.state.queue_name for each in store.listed()] == ["q2", "q3", "q4"]
    assert sorted(path.name[:3] for path in folder.glob("*.parquet")) == ["1-2", "1-3", "1-4"]


def test_an_audit_that_is_too_large_alone_is_not_stored_any_more(tmp_path: Path) -> None:
    store = AuditStore(tmp_path, 1000, DAY_MS)
    store.append(state(1), 0, events(9))
    with pytest.raises(AuditFull, match="the audit of q1 takes more than 1000 bytes"):
        store.append(state(1), 9, events(9))
    assert store.next_of("1-1-7") == 9


def test_an_audit_is_whole_after_a_failure_at_any_step_of_its_first_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The observer starts again, and the broker tells the same records once more, with those that came meanwhile."""
    steps = 0
    while True:
        folder = tmp_path / str(steps)
        store = AuditStore(folder, 1 << 30, DAY_MS)
        with monkeypatch.context() as patch, contextlib.suppress(OSError):
            patch.setattr(os, "fsync", _failing_after(steps))
            store.append(state(1), 0, events(9))
        is_over = store.next_of("1-1-7") == 9
        again = AuditStore(folder, 1 << 30, DAY_MS)
        stored = again.next_of("1-1-7")
        again.append(state(1, is_written=True, records=20), stored, events(20 - stored))
        (found,) = AuditStore(folder, 1 << 30, DAY_MS).listed()
        assert (found.records, found.is_complete) == (20, True), f"after {steps} steps"
        names = sorted(path.name for path in folder.iterdir())
        assert names == sorted([*found.files, "1-1-7.json"])
        if is_over:
            break
        steps += 1
    assert steps >= 4


def test_records_that_failed_and_come_again_with_others_are_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whichever sync of a file or of the folder, in an observer that goes on."""
    for steps in range(6):
        store = AuditStore(tmp_path / str(steps), 1 << 30, DAY_MS)
        store.append(state(1), 0, events(4))
        with monkeypatch.context() as patch, contextlib.suppress(OSError):
            patch.setattr(os, "fsync", _failing_after(steps))
            store.append(state(1), 4, events(5))
        stored = store.next_of("1-1-7")
        store.append(state(1, is_written=True, records=20), stored, events(20 - stored))
        (found,) = AuditStore(tmp_path / str(steps), 1 << 30, DAY_MS).listed()
        assert (found.records, found.is_complete) == (20, True), f"after {steps} steps"


def _failing_after(steps: int) -> Callable[[int], None]:
    sync, left = os.fsync, [steps]

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(5, "Input/output error")
        sync(descriptor)

    return fsync


def test_old_audits_go_with_the_next_one(tmp_path: Path) -> None:
    store = AuditStore(tmp_path, 1 << 30, DAY_MS)
    store.append(state(1), 0, events(1))
    store.append(state(2 + DAY_MS), 0, events(1))
    assert [each.state.queue_name for each in store.listed()] == [f"q{2 + DAY_MS}"]


def test_a_clock_set_forward_deletes_no_audit_of_which_the_ledger_has_rows(tmp_path: Path) -> None:
    """Another audit begins three days ahead; it goes once the ledger begins later."""
    begins = [500]
    store = AuditStore(tmp_path, 1 << 30, DAY_MS, lambda: begins[0])
    store.append(state(600), 0, events(1))
    store.append(state(700 + 3 * DAY_MS), 0, events(1))
    assert [each.state.started_ms for each in store.listed()] == [600, 700 + 3 * DAY_MS]
    begins[0] = 601
    store.append(state(800 + 3 * DAY_MS), 0, events(1))
    assert [each.state.started_ms for each in store.listed()] == [700 + 3 * DAY_MS, 800 + 3 * DAY_MS]


def test_a_gap_is_never_complete(tmp_path: Path) -> None:
    store = AuditStore(tmp_path, 1 << 30, DAY_MS)
    store.append(state(1), 0, events(3))
    store.append(state(1, is_written=True, records=7), 4, events(3))
    again = AuditStore(tmp_path, 1 << 30, DAY_MS)
    for each in (*store.listed(), *again.listed()):
        assert (each.records, each.is_complete) == (7, False)


def test_what_was_half_written_is_removed_and_what_is_strange_stays(tmp_path: Path) -> None:
    (tmp_path / ".1-1-7-000000000000-000000000008.parquet").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    store = AuditStore(tmp_path, 1 << 30, DAY_MS)
    assert store.listed() == ()
    assert store.path_of("notes.txt") is None
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def _with_damaged_state(folder: Path) -> None:
    (folder / "1-1-7.json").write_text("{")


def _with_another_state(folder: Path) -> None:
    (folder / "1-1-7.json").write_bytes((folder / "1-2-7.json").read_bytes())


def _without_state(folder: Path) -> None:
    (folder / "1-1-7.json").unlink()


def _with_a_file_of_other_bytes(folder: Path) -> None:
    next(folder.glob("1-1-*.parquet")).write_bytes(b"damaged")


def _with_other_bytes_in_a_column(folder: Path) -> None:
    """Of which Arrow says by an OSError that the disk gave something else."""
    path = next(folder.glob("1-1-*.parquet"))
    chunk = pq.read_metadata(path).row_group(0).column(6)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + chunk.total_compressed_size] = b"\xa5" * chunk.total_compressed_size
    path.write_bytes(content)


def _with_a_flipped_bit(folder: Path, of: bytes) -> None:
    """In the first place where this stands in the footer: there the columns are named."""
    _flip(next(folder.glob("1-1-*.parquet")), of)


def _flip(path: Path, of: bytes) -> None:
    content = bytearray(path.read_bytes())
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[content.index(of, begin)] ^= 1
    path.write_bytes(content)


def _with_a_flipped_bit_in_the_name_of_a_column(folder: Path) -> None:
    """Of one that the observer does not need. Without a checksum of the footer nothing would be seen of it."""
    _with_a_flipped_bit(folder, b"message_id")


def _with_a_flipped_bit_in_a_value(folder: Path) -> None:
    """The last of the running numbers, in a page that is not compressed."""
    path = next(folder.glob("1-1-*.parquet"))
    table: Any = pq.read_table(path)
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[content.rindex((9).to_bytes(8, "little"), 0, content.rindex(b"ordinal"))] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        _with_a_flipped_bit_in_the_name_of_a_column,
        _with_a_flipped_bit_in_a_value,
        _with_damaged_state,
        _with_another_state,
        _without_state,
        _with_a_file_of_other_bytes,
        _with_other_bytes_in_a_column,
    ],
)
def test_a_damaged_audit_is_told_once_and_goes_with_its_age(
    damage: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its records do not stay for ever."""
    store = AuditStore(tmp_path, 1 << 30, DAY_MS)
    store.append(state(1), 0, events(9))
    store.append(state(2), 0, events(9))
    damage(tmp_path)
    for path in tmp_path.glob("1-1-7*"):
        os.utime(path, (0, 0))  # written in 1970, as the others were by the broker's clock
    again = [AuditStore(tmp_path, 1 << 30, DAY_MS) for _ in range(3)]
    assert [[each.state.queue_name for each in one.listed()] for one in again] == [["q2"]] * 3
    assert caplog.text.count("the audit 1-1-7 is damaged, and its records are not used: ") == 1
    assert {path.name.endswith(".damaged") for path in tmp_path.glob("1-1-7*")} == {True}
    again[-1].append(state(3), 0, events(1))
    assert list(tmp_path.glob("1-1-7*")) != []
    again[-1].append(state(4, started_ms=2 + DAY_MS), 0, events(1))
    assert list(tmp_path.glob("1-1-7*")) == []


def test_a_report_is_not_made_of_a_damaged_file(tmp_path: Path) -> None:
    """What has lost the name of a column would be held against the broker: no message would have left by any way."""
    folder = tmp_path / "audit"
    store = AuditStore(folder, 1 << 30, DAY_MS)
    store.append(state(1), 0, events(9))
    (sound,) = from_folders([tmp_path], "q1", None).files
    _with_a_flipped_bit(folder, b"kind")
    assert "kind" not in pq.read_schema(sound).names
    with pytest.raises(
        Failure, match=r"1-1-7-000000000000-000000000008\.parquet is damaged: its footer does not agree"
    ):
        from_folders([tmp_path], "q1", None)


def test_damaged_audits_make_room_before_any_other(tmp_path: Path) -> None:
    """Also before one that began earlier."""
    store = AuditStore(tmp_path, 1 << 30, DAY_MS)
    for number in (1, 2, 3):
        store.append(state(number), 0, events(9))
    size = store.listed()[0].bytes
    for number in (1, 2):
        (tmp_path / f"1-{number}-7.json").unlink()
    os.utime(next(tmp_path.glob("1-2-7-*")), (0, 0))
    store = AuditStore(tmp_path, int(2.5 * size), DAY_MS)
    store.append(state(4), 0, events(9))
    assert sorted(path.name[:5] for path in tmp_path.glob("*parquet*")) == ["1-1-7", "1-3-7", "1-4-7"]
    store.append(state(5), 0, events(9))
    assert sorted(path.name[:5] for path in tmp_path.glob("*parquet*")) == ["1-3-7", "1-4-7", "1-5-7"]


def test_an_audit_that_the_disk_does_not_give_keeps_no_observer_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is it set aside, because the disk may give it tomorrow; unless the broker tells of it again."""
    read = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.name == "1-1-7.json":
            raise OSError(5, "Input/output error")
        return read(path)

    store = AuditStore(tmp_path, 1 << 30, DAY_MS)
    store.append(state(1), 0, events(9))
    store.append(state(2), 0, events(9))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", failing)
        without = AuditStore(tmp_path, 1 << 30, DAY_MS)
    assert [each.state.queue_name for each in without.listed()] == ["q2"]
    assert "the audit 1-1-7 is left out until the next start, because it can't be read: [Errno 5]" in caplog.text
    assert [each.state.queue_name for each in AuditStore(tmp_path, 1 << 30, DAY_MS).listed()] == ["q1", "q2"]
    without.append(state(1), 4, events(3))
    assert [(each.records, len(each.files)) for each in AuditStore(tmp_path, 1 << 30, DAY_MS).listed()] == [
        (7, 1),
        (9, 1),
    ]
