"""The report of an audit: from a real broker over the observer's files to accounts, and planted faults by name."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's and pyarrow's types are not complete.

from __future__ import annotations

import asyncio
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observer.audit_site import Site, audited
from proton import Delivery
from pydantic.alias_generators import to_camel
from pyspark.sql import SparkSession
from support.proton_client import Subscribed, connected, publish

from penstock_api.management import Operation
from penstock_api.message_audit import TOTALS, AuditStart, AuditState, AuditTotals, EventKind
from penstock_api.message_operations import MessageSelection
from penstock_broker.queue import totals
from penstock_lag.audit.figures import AuditFigures, audit_figures
from penstock_lag.audit.report import AuditReport, FaultCount, as_text, make_report
from penstock_lag.audit.sources import AuditPaths, from_folders
from penstock_lag_rules.buckets import bucket_of
from penstock_lag_rules.message_accounts import clock_was_set

pa: Any = importlib.import_module("pyarrow")  # it ships no type information
pq: Any = importlib.import_module("pyarrow.parquet")


def consume(url: str) -> None:
    """Get all seven; accept two, reject one, release one; then go with three in flight."""
    with connected(url) as connection:
        receiver = connection.create_receiver("orders", name="billing", credit=7, options=Subscribed())
        for outcome in (Delivery.ACCEPTED, Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED):
            receiver.receive(timeout=60)
            receiver.settle(outcome)


def send_short_lived(url: str) -> None:
    with connected(url) as connection:
        publish(connection.create_sender("orders"), ["late"], id="late", ttl=0.001)


async def story(site: Site) -> None:
    """Two messages are there; then one of every way."""
    await site.send("there-1", "there-2")
    await site.manage(Operation.START_AUDIT, AuditStart(seconds=600))
    await site.poll()
    await site.send("a", "b", "c", "d", "e")
    await site.poll()
    await asyncio.to_thread(consume, site.broker.url)
    await site.poll()
    await site.manage(Operation.PURGE, MessageSelection(count=1))
    await asyncio.to_thread(send_short_lived, site.broker.url)
    await expired(site)
    await site.poll()
    await site.manage(Operation.STOP_AUDIT)
    await site.poll()
    await site.poll()
    site.ledger.seal(0)


async def expired(site: Site) -> None:
    """Until the broker has taken out the message that lived shortly."""
    while (await site.polled.poll()).subscriptions[0].expired == 0:
        await site.poll()


def report_of(spark: SparkSession, paths: AuditPaths) -> AuditReport:
    figures = audit_figures(spark, paths.audit.state, paths.files, paths.segments)
    return make_report(paths.audit.state, figures, paths.audit.is_complete)


def changed(paths: AuditPaths, folder: Path, change: Any) -> AuditPaths:
    """A copy of the files with other rows."""
    rows = [row for name in paths.files for row in pq.read_table(name).to_pylist()]
    schema = pq.read_schema(paths.files[0])
    counted = 0
    rows = change(rows)
    for ordinal, row in enumerate(rows):
        counted += row["kind"] not in (EventKind.PRESENT, EventKind.WAITING)
        row |= {"ordinal": ordinal, "counted": counted}
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "changed.parquet")
    state = paths.audit.state.model_copy(update={"records": len(rows)})
    audit = paths.audit.model_copy(update={"state": state, "records": len(rows)})
    return AuditPaths(audit, (str(folder / "changed.parquet"),), paths.segments)


def test_every_key_of_the_report_is_in_camel_case() -> None:
    """Also those of the totals; the text for a terminal has the words of the ledger."""
    totals = AuditTotals(dead_lettered=4)
    state = AuditState(
        audit="1-1-7", queue_name="q", subscription_name="s", instance_id="i", epoch=1, incarnation=7,
        started_ms=1, until_ms=9, ended_ms=9, ended_by="Time", records=4, begin=AuditTotals(), end=totals,
    )  # fmt: skip
    figures = AuditFigures(
        records=4, is_gapless=True, kinds={EventKind.DEAD_LETTERED: 4}, shapes={}, faulty=(), sojourns_us=(), rows=(),
        spans=(None,),
    )  # fmt: skip
    report = make_report(state, figures, is_complete=True)
    assert json.loads(report.model_dump_json(by_alias=True))["totals"] == {
        "enqueued": 0, "delivered": 0, "returned": 0, "acked": 0, "dropped": 0, "expired": 0, "deadLettered": 4,
        "purged": 0, "moved": 0,
    }  # fmt: skip
    assert "           4  dead_lettered\n" in as_text(report)


def test_an_audit_agrees_with_no_ledger_of_which_a_part_is_damaged() -> None:
    state = AuditState(
        audit="1-1-7", queue_name="q", subscription_name="s", instance_id="i", epoch=1, incarnation=7,
        started_ms=1, until_ms=9, ended_ms=9, ended_by="Time", records=0, begin=AuditTotals(), end=AuditTotals(),
    )  # fmt: skip
    figures = AuditFigures(
        records=0, is_gapless=True, kinds={}, shapes={}, faulty=(), sojourns_us=(), rows=(), spans=(None,)
    )
    report = make_report(state, figures, is_complete=True, damaged=("Segment s of the ledger is damaged.",))
    assert not report.agrees
    assert report.problems[0] == "Segment s of the ledger is damaged."


def test_a_message_id_cannot_control_the_terminal() -> None:
    """Senders choose them."""
    fault = FaultCount(fault="left more than once", count=1, messages=("m\x1b]0;title\x07\n",))
    report = AuditReport(
        agrees=False, audit="1-1-7", queue_name="q\x1b[2J", started_ms=1, records=4, messages=1, accounts={},
        faults=(fault,), totals=dict.fromkeys(map(to_camel, TOTALS), 0), ledger_rows=0,
    )  # fmt: skip
    text = as_text(report)
    assert text.replace("\n", "").isprintable()
    assert "FAULT: left more than once: m\ufffd]0;title\ufffd\ufffd\n" in text


@pytest.mark.spark
async def test_each_message_has_one_account_and_what_is_planted_is_named(tmp_path: Path, spark: SparkSession) -> None:
    async with audited(tmp_path) as site:
        await story(site)
    paths = from_folders([tmp_path / "ledger"], "shop/billing", None)
    report = report_of(spark, paths)
    assert report.problems == () and report.faults == ()
    assert report.accounts == {"accepted": 2, "expired": 1, "purged": 1, "rejected": 1, "waiting": 3}
    delivered, returned = report.totals["delivered"], report.totals["returned"]
    assert (delivered >= 7, delivered - returned) == (True, 3), "the client may ask for one message more"
    assert {name: count for name, count in report.totals.items() if name not in ("delivered", "returned")} == {
        "enqueued": 6, "acked": 2, "dropped": 1, "purged": 1, "expired": 1, "deadLettered": 0, "moved": 0,
    }  # fmt: skip
    assert (report.agrees, report.messages, len(report.sojourn)) == (True, 8, 3)
    assert report.ledger_rows >= 3
    assert as_text(report).endswith("Everything agrees.\n")

    lost = report_of(spark, changed(paths, tmp_path, without_the_end_of_the_first_accepted))
    assert [(each.fault, each.messages) for each in lost.faults] == [
        ("no account: it came, it did not leave, and it is not there", ("there-1",))
    ]
    assert lost.problems[0] == "The total acked grew by 2, but the records say 1."
    assert any("By the ledger's row of" in each for each in lost.problems)

    stepped = report_of(spark, with_a_clock_that_is_set(paths, tmp_path, 2, -3_600_000))
    assert (stepped.faults, stepped.agrees, len(stepped.problems)) == ((), False, 1)
    assert stepped.problems[0].startswith("The broker's clock was set back by 3600 s during the audit, so times can't")
    before = report_of(spark, with_a_clock_that_is_set(paths, tmp_path, 0, 60_000))
    assert not any("clock" in each for each in before.problems), "no message was counted before it"

    twice = report_of(spark, changed(paths, tmp_path, with_a_second_accept_and_a_late_delivery))
    assert [(each.fault, each.messages) for each in twice.faults] == [
        ("left more than once", ("there-1",)),
        ("was delivered after it had left", ("there-1",)),
    ]
    assert not twice.agrees

    short = paths.audit.model_copy(update={"records": paths.audit.records - 1, "is_complete": False})
    missing = report_of(spark, AuditPaths(short, paths.files[:-1], paths.segments))
    assert (missing.agrees, missing.faults) == (False, ())
    assert missing.problems[0].startswith("Records are missing: ")

    no_rows = report_of(spark, AuditPaths(paths.audit, paths.files, ()))
    assert no_rows.problems[0].startswith("No row of the ledger lies within the audit")


def with_a_clock_that_is_set(paths: AuditPaths, folder: Path, poll: int, step_ms: int) -> AuditPaths:
    """A copy of the ledger in which the clock was set before a poll of the audit, counted from its beginning."""
    tables = [pq.read_table(name) for name in paths.segments]
    rows = [row for table in tables for row in table.to_pylist()]
    polls = sorted({row["poll"] for row in rows if row["time_ms"] >= paths.audit.state.started_ms})
    for row in rows:
        row["time_ms"] += step_ms if row["poll"] >= polls[poll] else 0
        if row["kind"] == "broker":
            row["clock_step_ms"] = step_ms if row["poll"] == polls[poll] else 0
    ledger = folder / f"stepped{step_ms}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=tables[0].schema), ledger)
    return AuditPaths(paths.audit, paths.files, (str(ledger),))


@pytest.mark.parametrize(
    ("ended_ms", "steps_ms", "expected"),
    [
        (9_000, (), None),
        (9_000, (-3_600_000,), "The broker's clock was set back by 3600 s during the audit"),
        (9_000, (500, 1_000), "The broker's clock was set forward by 1.5 s during the audit"),
        (999, (), "The broker's clock was set back during the audit"),
    ],
)
def test_a_clock_that_was_set_during_an_audit_is_named(
    ended_ms: int, steps_ms: tuple[int, ...], expected: str | None
) -> None:
    state = AuditState(
        audit="1-1-7", queue_name="q", subscription_name="s", instance_id="i", epoch=1, incarnation=7,
        started_ms=1_000, until_ms=9_000, ended_ms=ended_ms, ended_by="Request", begin=AuditTotals(), end=AuditTotals(),
    )  # fmt: skip
    told = clock_was_set(state, steps_ms)
    assert told is None if expected is None else (told or "").startswith(f"{expected}, so times can't be compared")


def without_the_end_of_the_first_accepted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    at = next(at for at, row in enumerate(rows) if row["kind"] == EventKind.ACCEPTED)
    return rows[:at] + rows[at + 1 :]


def with_a_second_accept_and_a_late_delivery(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first = next(row for row in rows if row["kind"] == EventKind.ACCEPTED)
    return [*rows, {**first, "kind": int(EventKind.DELIVERED)}, dict(first)]


@given(st.integers(-1000, 10**12))
def test_the_report_has_the_brokers_buckets(microseconds: int) -> None:
    assert bucket_of(microseconds) == totals.bucket_of(microseconds)
