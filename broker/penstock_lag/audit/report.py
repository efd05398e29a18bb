"""The report of an audit: what became of each message, whether all counts agree, and exact percentiles. Pure.

Source: docs/how-to/audit.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic.alias_generators import to_camel

from penstock_api.message_audit import TOTALS, AuditState, EndedBy
from penstock_api.observer_api import ObserverModel
from penstock_lag.audit.figures import PERCENTS, AuditFigures
from penstock_lag.columns import for_terminal
from penstock_lag.figures.percentiles import Histogram
from penstock_lag.figures.percentiles import grown as histogram_growth
from penstock_lag_rules.buckets import bucket_of, bucket_of_rank, midpoint_ms
from penstock_lag_rules.message_accounts import (
    account_of,
    clock_was_set,
    compared_with_ledger,
    compared_with_totals,
    faults_of,
    grown,
    unfinished,
)

__all__ = ["AuditReport", "as_text", "make_report"]

MAX_PROBLEMS: Final = 50


class FaultCount(ObserverModel):
    """Messages with one fault; `messages` are some of them, by message-id, or `#` and the number."""

    fault: str
    count: int
    messages: tuple[str, ...]


class Sojourn(ObserverModel):
    """One percentile of the time from available to accepted."""

    percent: int
    exact_ms: float
    histogram_ms: int | None = None


class AuditReport(ObserverModel):
    """What an audit proves. `agrees`: every message has exactly one account, and nothing differs or is missing."""

    version: int = 1
    agrees: bool
    audit: str
    queue_name: str
    namespace: str | None = None
    name: str | None = None
    started_ms: int
    ended_ms: int | None = None
    ended_by: str | None = None
    records: int
    messages: int
    accounts: dict[str, int]
    faults: tuple[FaultCount, ...] = ()
    totals: dict[str, int]
    """By how much the records say that each of `TOTALS` grew; the keys are in camelCase, like all others."""
    ledger_rows: int
    sojourn: tuple[Sojourn, ...] = ()
    longest_sojourn_ms: float | None = None
    problems: tuple[str, ...] = ()


def make_report(
    state: AuditState, figures: AuditFigures, is_complete: bool, damaged: Sequence[str] = ()
) -> AuditReport:
    """Judge the figures of an audit. `is_complete`: the observer has fetched all records. `damaged`: sentences about
    segments of the ledger that were not compared; then it does not agree, because something is missing.
    """
    ended_by = EndedBy(state.ended_by) if state.ended_by in {each.value for each in EndedBy} else EndedBy.TIME
    missing = unfinished(state, figures.records, is_complete)
    if figures.records and not figures.is_gapless and not missing:
        missing.append("Records are missing, or are there twice.")
    accounts: dict[str, int] = {}
    for shape, count in figures.shapes.items():
        if not faults_of(shape, ended_by):
            account = account_of(shape).value
            accounts[account] = accounts.get(account, 0) + count
    sojourn = _sojourn(state, figures)
    # Where records are missing, all else would differ too, and say nothing.
    problems = missing or [*damaged, *_differences(state, figures, sojourn)]
    faulty = () if missing else figures.faulty
    faults = tuple(FaultCount(fault=each.fault.value, count=each.count, messages=each.messages) for each in faulty)
    return AuditReport(
        agrees=not problems and not faults,
        audit=state.audit,
        queue_name=state.queue_name,
        namespace=state.namespace,
        name=state.name,
        started_ms=state.started_ms,
        ended_ms=state.ended_ms,
        ended_by=state.ended_by,
        records=figures.records,
        messages=sum(figures.shapes.values()),
        accounts=dict(sorted(accounts.items())),
        faults=faults,
        totals={to_camel(name): growth for name, growth in grown(figures.kinds).items()},
        ledger_rows=len(figures.rows),
        sojourn=sojourn,
        longest_sojourn_ms=figures.sojourns_us[-1] / 1000 if figures.sojourns_us else None,
        problems=tuple(problems[:MAX_PROBLEMS]),
    )


def _differences(state: AuditState, figures: AuditFigures, sojourn: tuple[Sojourn, ...]) -> list[str]:
    told = compared_with_totals(state, figures.kinds)
    clock = clock_was_set(state, figures.clock_steps_ms)
    if clock is not None:
        return [*told, clock]
    if not figures.rows:
        told.append(
            "No row of the ledger lies within the audit: wait until the observer has finished a segment, or audit for "
            "longer than its interval."
        )
    told += compared_with_ledger(state.begin, figures.rows, figures.spans)
    counts = _histogram(state)
    for each in sojourn:
        by_histogram = bucket_of_rank(counts, each.percent)
        exact = bucket_of(round(each.exact_ms * 1000))
        if by_histogram != exact:
            told.append(
                f"The sojourn of {each.percent} % is {each.exact_ms:g} ms by the records, in bucket {exact}; the "
                f"histogram has it in bucket {by_histogram}."
            )
    return told


def _sojourn(state: AuditState, figures: AuditFigures) -> tuple[Sojourn, ...]:
    counts = _histogram(state)
    found: list[Sojourn] = []
    for percent, exact_us in zip(PERCENTS, figures.sojourns_us, strict=False):
        bucket = bucket_of_rank(counts, percent)
        middle = None if bucket is None else midpoint_ms(bucket)
        found.append(Sojourn(percent=percent, exact_ms=exact_us / 1000, histogram_ms=middle))
    return tuple(found)


def _histogram(state: AuditState) -> dict[int, int]:
    """By bucket, the messages that were accepted during the audit."""
    if state.end is None:
        return {}
    first, last = (
        Histogram(indexes=each.sojourn.indexes, counts=each.sojourn.counts) for each in (state.begin, state.end)
    )
    return dict(histogram_growth([{"first": first, "last": last}]))


def as_text(report: AuditReport) -> str:
    """The report for a terminal; lines end with a newline."""
    whose = report.queue_name if report.name is None else f"{report.namespace}/{report.name} ({report.queue_name})"
    seconds = "" if report.ended_ms is None else f", {(report.ended_ms - report.started_ms) / 1000:g} s"
    lines = [f"audit {report.audit} of {whose}{seconds}, ended by {report.ended_by}"]
    lines.append(f"{report.messages} messages, {report.records} records")
    lines += [f"  {count:>10}  {account}" for account, count in report.accounts.items()]
    for fault in report.faults:
        lines.append(f"  {fault.count:>10}  FAULT: {fault.fault}: {', '.join(fault.messages)}")
    lines.append(f"totals by the records, compared with the broker and with {report.ledger_rows} rows of the ledger")
    growths = [(name, report.totals[to_camel(name)]) for name in TOTALS]
    lines += [f"  {growth:>10}  {name}" for name, growth in growths if growth]
    for each in report.sojourn:
        lines.append(f"sojourn p{each.percent}: {each.exact_ms:g} ms exactly, {each.histogram_ms} ms by the histogram")
    lines += [f"DIFFERENCE: {problem}" for problem in report.problems]
    lines.append("Everything agrees." if report.agrees else "It does not agree, or is not complete.")
    return for_terminal(lines)
