"""Ledgers that are read where they are: the same document as over HTTP, and what is no ledger is said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lag.observer_server import KEEP, fill, serving, token_file
from observer.samples import START_MS, a_poll, a_subscription
from pyspark.sql import SparkSession

from penstock_api.failure import Failure, Misuse
from penstock_api.state_documents import DurationHistogram
from penstock_lag.ledger import folders
from penstock_lag.ledger.folders import list_ledgers, rows_in
from penstock_lag.ledger.windows import AbsentBroker, Chosen, PresentBroker
from penstock_lag.main import run
from penstock_lag.rollups.files import about_of
from penstock_lag.session import Needs
from penstock_lag.settings import LagJobSettings
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.rows import RowOrigin

Session = Callable[[Needs], AbstractContextManager[SparkSession]]


def settings(folder: Path, **changes: Any) -> LagJobSettings:
    """A run that stores nothing."""
    values: dict[str, Any] = {
        "observers": (),
        "broker": "main",
        "namespace": "shop",
        "run_name": "run-1",
        "publish": False,
        "patience_seconds": 0,
        "output": folder / "result.json",
    }
    return LagJobSettings(**(values | changes))


@pytest.mark.spark
def test_a_folder_gives_the_document_of_its_observer(spark: SparkSession, tmp_path: Path) -> None:
    """Byte for byte, by path and by address; other files in the folder are left alone."""
    session: Session = lambda _: nullcontext(spark)  # noqa: E731
    sojourn = DurationHistogram(indexes=(3,), counts=(30,), sum_ms=60)
    polls = [
        a_poll(
            START_MS + 10_000 * step,
            a_subscription(depth=step, ready=step, enqueued=9 * step, acked=8 * step, delivered=8 * step),
            a_subscription("bills", sojourn=sojourn if step else DurationHistogram()),
        )
        for step in range(7)
    ]
    with serving(tmp_path, polls) as served:
        run(settings(tmp_path, observers=(served.url,), token_file=token_file(tmp_path)), session)
        expected = (tmp_path / "result.json").read_bytes()
        folder = served.api.ledger.folder
        (folder / ".0000000003-000000000099-000000000100.parquet").write_bytes(b"half")
        (folder / "notes.txt").write_text("x")
        for path in (str(folder), folder.as_uri()):
            run(settings(tmp_path, ledgers=(path,)), session)
            assert (tmp_path / "result.json").read_bytes() == expected
        assert [lag["messages"] for lag in json.loads(expected)["subscriptions"]] == [0, 6]
        assert rows_in([str(folder)]) == 21
        assert rows_in(["s3a://bucket/ledger"]) is None


@pytest.mark.spark
@pytest.mark.parametrize("read_first", [8, 2_000, 65_536])
def test_an_address_says_of_its_segments_what_the_folder_says(
    read_first: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times, rows, sizes and whose they are, also if a footer is longer than what is read first."""
    monkeypatch.setattr(folders, "TAIL_BYTES", read_first)
    polls = [a_poll(START_MS + 10_000 * step, a_subscription(depth=step)) for step in range(7)]
    with serving(tmp_path, polls) as served:
        folder = served.api.ledger.folder
        (of_folder,) = list_ledgers(spark, [str(folder)], "main", "shop")
        (of_address,) = list_ledgers(spark, [folder.as_uri()], "main", "shop")
        assert isinstance(of_folder.broker, PresentBroker)
        assert of_address.broker == of_folder.broker
        found = sorted(of_folder.broker.listing.segments, key=lambda segment: segment.name)
        assert found == list(served.api.ledger.segments)
        damaged = folder / "0000000003-000000000099-000000000100.parquet"
        for content in (b"", b"PAR1", b"<html></html>", b"x" * 9 + b"\xff\xff\xff\x7fPAR1"):
            damaged.write_bytes(content)
            for path in (str(folder), folder.as_uri()):
                (found_now,) = list_ledgers(spark, [path], "main", "shop")
                assert found_now.broker == of_folder.broker
                assert [each.name for each in found_now.damaged] == [damaged.name]
                assert found_now.damaged[Chosen(0, damaged.name)].startswith(f"{damaged.name} can't be read: ")
        for segment in served.api.ledger.segments:
            (folder / segment.name).unlink()
        with pytest.raises(Failure, match=r"^file:.*099-000000000100\.parquet can't be read: "):
            list_ledgers(spark, [folder.as_uri()], "main", "shop")


@pytest.mark.spark
def test_a_damaged_segment_is_left_out_of_a_folder_as_of_what_an_observer_serves(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The second of four has a spoilt page, and Spark fails; then its end is cut off, too. The result names it, the
    document is that of a run over HTTP, and the rollup of the hour does not look whole.
    """
    session: Session = lambda _: nullcontext(spark)  # noqa: E731
    polls = [
        a_poll(START_MS + 10_000 * step, a_subscription(depth=1, ready=1, enqueued=step, acked=step, delivered=step))
        for step in (*range(12), 400)
    ]
    with serving(tmp_path, polls, rows_per_segment=6) as served:
        folder = served.api.ledger.folder
        spoilt = folder / served.api.ledger.segments[1].name
        whole = spoilt.read_bytes()
        spoilt.write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])
        as_of = datetime.fromtimestamp((START_MS + 110_000) / 1000, UTC)
        run(settings(tmp_path, observers=(served.url,), token_file=token_file(tmp_path), as_of=as_of), session)
        expected = (tmp_path / "result.json").read_bytes()
        rollups = tmp_path / "kept"
        run(settings(tmp_path, ledgers=(str(folder),), as_of=as_of, rollups=rollups), session)
        assert (tmp_path / "result.json").read_bytes() == expected
        spoilt.write_bytes(whole[:-100])
        run(settings(tmp_path, ledgers=(folder.as_uri(),), as_of=as_of), session)
    told = f"main-0: segment {spoilt.name} is not read, because it is damaged: {spoilt.name} can't be read: "
    without_pages, without_end = json.loads(expected), json.loads((tmp_path / "result.json").read_bytes())
    assert [sentence[: len(told)] for sentence in without_pages["missing"]] == [told]
    assert [sentence.startswith(told) for sentence in without_end["missing"]] == [False, True]
    assert without_end["missing"][0] == "main-0: rows 7 to 12 of its ledger are gone"
    assert without_end["subscriptions"] == without_pages["subscriptions"]
    (lag,) = without_pages["subscriptions"]
    assert (lag["messages"], lag["arrivalPerMinute"], lag["settledPerMinute"]) == (1, 6, 6)
    (hour,) = sorted(rollups.glob("hour-*.parquet"))
    missing = about_of(hour).missing
    assert [sentence[: len(told)] for sentence in missing[:1]] == [told]


@pytest.mark.spark
def test_a_segment_that_its_place_does_not_give_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's file systems keep checksums beside a file; those of the second of four don't fit. As a file that may not
    be read, it is named, by path and by address, and the others are evaluated.
    """
    session: Session = lambda _: nullcontext(spark)  # noqa: E731
    polls = [
        a_poll(START_MS + 10_000 * step, a_subscription(depth=1, ready=1, enqueued=step, acked=step, delivered=step))
        for step in range(12)
    ]
    with serving(tmp_path, polls, rows_per_segment=6) as served:
        folder = served.api.ledger.folder
        spoilt = folder / served.api.ledger.segments[1].name
        sums = b"crc\0" + (512).to_bytes(4, "big") + bytes(4 * (spoilt.stat().st_size // 512 + 1))
        (folder / f".{spoilt.name}.crc").write_bytes(sums)
        found: list[Any] = []
        for path in (str(folder), folder.as_uri()):
            run(settings(tmp_path, ledgers=(path,)), session)
            found.append(json.loads((tmp_path / "result.json").read_bytes()))
    for document in found:
        told = f"main-0: segment {spoilt.name} is not read, because it is damaged: {spoilt.name} can't be read: "
        assert any(sentence.startswith(told) for sentence in document["missing"])
        (lag,) = document["subscriptions"]
        assert (lag["messages"], lag["arrivalPerMinute"], lag["settledPerMinute"]) == (1, 6, 6)


@pytest.mark.spark
def test_what_is_no_ledger_of_this_broker_is_said(spark: SparkSession, tmp_path: Path) -> None:
    """An empty folder, another broker's, a file with another name than its rows, and no folder."""
    with serving(tmp_path, [a_poll(START_MS), a_poll(START_MS + 10_000)]) as served:
        folder = str(served.api.ledger.folder)
        (tmp_path / "empty").mkdir()
        reasons = [
            one.broker.reason if isinstance(one.broker, AbsentBroker) else ""
            for one in list_ledgers(spark, [folder, str(tmp_path / "empty"), folder], "main", "shop")
        ]
        assert reasons == [
            "",
            f"{tmp_path / 'empty'} has no segment of a ledger",
            f"{folder} is the ledger of main-0, not of main-2; check the order of --ledger",
        ]
        renamed = tmp_path / "renamed"
        renamed.mkdir()
        (segment,) = served.api.ledger.segments
        shutil.copy(served.api.ledger.folder / segment.name, renamed / "0000000003-000000000001-000000000001.parquet")
        with pytest.raises(Failure, match="has 2 rows, and its name has room for 1"):
            list_ledgers(spark, [str(renamed)], "main", "shop")
    with pytest.raises(Failure, match=r"absent can't be listed: .*FileNotFoundException"):
        list_ledgers(spark, [str(tmp_path / "absent")], "main", "shop")


@pytest.mark.spark
def test_the_ledger_of_a_broker_of_this_name_in_another_namespace_gives_no_figures(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By path and by address; also if only some segments of it were copied among one's own. One of an earlier release
    does not say its namespace, and is read.
    """
    session: Session = lambda _: nullcontext(spark)  # noqa: E731
    polls = [a_poll(START_MS + 10_000 * step, a_subscription(depth=1, ready=1)) for step in range(7)]
    folders: dict[str, Path] = {}
    for namespace in ("shop", "test", ""):
        folder = folders[namespace] = tmp_path / f"of-{namespace}"
        ledger = Ledger(folder, RowOrigin("main", 0, 10_000, namespace), SealLimits(3600, 5, 10**9), KEEP)
        fill(ledger, polls)
        ledger.close()
    mixed = tmp_path / "mixed"
    shutil.copytree(folders["test"], mixed)
    (segment, *_) = sorted(folders["shop"].glob("*.parquet"))
    shutil.copy(segment, mixed / segment.name)
    for path in (str(folders["shop"]), folders["shop"].as_uri(), str(mixed)):
        run(settings(tmp_path, ledgers=(path,), namespace="test"), session)
        document = json.loads((tmp_path / "result.json").read_bytes())
        assert (document["subscriptions"], document["segments"], document["reportingBrokers"]) == ([], [], 0)
        assert document["missing"] == [
            f"main-0: {path} is the ledger of shop/main-0, not of test/main-0; check --ledger and --namespace"
        ]
    for namespace in ("test", ""):
        run(settings(tmp_path, ledgers=(str(folders[namespace]),), namespace="test"), session)
        document = json.loads((tmp_path / "result.json").read_bytes())
        assert ([lag["messages"] for lag in document["subscriptions"]], document["missing"]) == ([1], [])


def test_a_folder_alone_has_nobody_who_stores_the_result(tmp_path: Path) -> None:
    """Said before anything is tried."""
    with pytest.raises(Misuse, match="--ledger can't be used"):
        settings(tmp_path, ledgers=("/data",), publish=True)
    with pytest.raises(Misuse, match="there is no ledger to read"):
        settings(tmp_path)
