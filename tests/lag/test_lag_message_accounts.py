"""The rules of a conservation audit: random histories are right as they are, and every planted fault is named."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_api.message_audit import COUNTED, ENDS, TOTALS, AuditEvent, AuditState, AuditTotals, EndedBy, EventKind
from penstock_lag_rules.message_accounts import (
    Account,
    Fault,
    LedgerTotals,
    Span,
    account_of,
    by_message,
    compared_with_ledger,
    compared_with_totals,
    faults_of,
    grown,
    shape_of,
    unfinished,
)

PRESENT, ENQUEUED, DELIVERED, RETURNED = (
    EventKind.PRESENT,
    EventKind.ENQUEUED,
    EventKind.DELIVERED,
    EventKind.RETURNED,
)
ACCEPTED, WAITING, MOVED = EventKind.ACCEPTED, EventKind.WAITING, EventKind.MOVED


def state(begin: AuditTotals, end: AuditTotals, ended_by: str = "Time", records: int = 0) -> AuditState:
    return AuditState(
        audit="1-1000-7", queue_name="q", subscription_name="s", instance_id="i", epoch=1, incarnation=7,
        started_ms=1000, until_ms=2000, ended_ms=2000, ended_by=ended_by, is_written=True, records=records,
        begin=begin, end=end,
    )  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[AuditEvent]:
    """What a broker without faults writes of some messages, whose records are mixed."""
    ways: list[list[EventKind]] = []
    for _ in range(draw(st.integers(1, 8))):
        way = [draw(st.sampled_from([PRESENT, ENQUEUED]))]
        for _ in range(draw(st.integers(0, 3))):
            way += [DELIVERED, RETURNED]
        end = draw(st.sampled_from([*ENDS, WAITING]))
        way += [DELIVERED, end] if end is ACCEPTED else [end]
        ways.append(way)
    order = draw(st.permutations([number for number, way in enumerate(ways) for _ in way]))
    left = [iter(way) for way in ways]
    events = [AuditEvent(next(left[number]), number, 1_000_000 + at, 0, "") for at, number in enumerate(order)]
    return sorted(events, key=lambda event: event.kind is WAITING)  # these are written at the end


def totals(events: list[AuditEvent], begin: AuditTotals) -> AuditTotals:
    """How the queue stands after these events."""
    kinds = Counter(event.kind for event in events)
    counted = {name: getattr(begin, name) + growth for name, growth in grown(kinds).items()}
    return AuditTotals(depth=kinds[WAITING], **counted)


def begins(events: list[AuditEvent]) -> AuditTotals:
    present = sum(event.kind is PRESENT for event in events)
    return AuditTotals(depth=present, enqueued=40 + present, acked=40, delivered=41)


def faults(events: list[AuditEvent]) -> set[Fault]:
    return {fault for each in by_message(events).values() for fault in faults_of(shape_of(each), EndedBy.TIME)}


@given(histories())
def test_a_broker_without_faults_has_one_account_for_each_message(events: list[AuditEvent]) -> None:
    begin = begins(events)
    assert faults(events) == set()
    assert compared_with_totals(state(begin, totals(events, begin)), Counter(each.kind for each in events)) == []
    ends = Counter(account_of(shape_of(each)).name for each in by_message(events).values())
    assert ends == Counter(EventKind(each.kind).name for each in events if each.kind in (*ENDS, WAITING))


@given(histories(), st.data())
def test_a_lost_message_is_named(events: list[AuditEvent], data: st.DataObject) -> None:
    """Its end was never written: neither has it left, nor is it there."""
    begin = begins(events)
    at = data.draw(st.sampled_from([at for at, each in enumerate(events) if each.kind in (*ENDS, WAITING)]))
    less = [each for place, each in enumerate(events) if place != at]
    assert Fault.NO_ACCOUNT in faults(less)
    told = compared_with_totals(state(begin, totals(events, begin)), Counter(each.kind for each in less))
    assert len(told) == 1


@given(histories(), st.data())
def test_a_second_end_is_named(events: list[AuditEvent], data: st.DataObject) -> None:
    begin = begins(events)
    ended = data.draw(st.sampled_from([each for each in events if each.kind in (*ENDS, WAITING)]))
    more = [*events, ended._replace(kind=ACCEPTED)]
    found = faults(more)
    assert (Fault.LEFT_AND_WAITING if ended.kind is WAITING else Fault.TWO_ENDS) in found
    told = compared_with_totals(state(begin, totals(events, begin)), Counter(each.kind for each in more))
    assert len(told) == 1 and told[0].startswith("The total acked grew by ")


@given(histories(), st.data())
def test_a_delivery_after_the_end_is_named(events: list[AuditEvent], data: st.DataObject) -> None:
    gone = [each for each in events if each.kind in ENDS]
    if gone:
        ended = data.draw(st.sampled_from(gone))
        assert faults([*events, ended._replace(kind=DELIVERED)]) == {Fault.DELIVERED_AFTER_END}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([DELIVERED, ACCEPTED], {Fault.NEVER_CAME}),
        ([DELIVERED], {Fault.NEVER_CAME}),  # no account is missing of what never came
        ([PRESENT, ENQUEUED, WAITING], {Fault.CAME_TWICE}),
        ([ENQUEUED, WAITING, WAITING], {Fault.CAME_TWICE}),
        ([ENQUEUED, ACCEPTED], {Fault.ACCEPTED_UNDELIVERED}),
        ([PRESENT, ACCEPTED], set[Fault]()),
        ([ACCEPTED, PRESENT], set[Fault]()),
    ],
)
def test_faults_of_one_message(kinds: list[EventKind], expected: set[Fault]) -> None:
    assert faults([AuditEvent(kind, 1, 0, 0, "") for kind in kinds]) == expected


def test_what_a_queue_takes_along_has_an_account() -> None:
    shape = shape_of([AuditEvent(PRESENT, 1, 0, 0, "")])
    assert faults_of(shape, EndedBy.QUEUE_ENDED) == ()
    assert account_of(shape) is Account.ENDED_WITH_QUEUE


@given(histories(), st.data())
def test_every_row_of_the_ledger_shows_one_moment(events: list[AuditEvent], data: st.DataObject) -> None:
    """Rows of true moments agree; one in which any total is other by one is named with that total."""
    begin = begins(events)
    counted = [each for each in events if each.kind in COUNTED]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(counted)), min_size=1, max_size=4)))
    rows: list[LedgerTotals] = []
    for cut in cuts:
        shown = totals(counted[:cut], begin)
        rows.append(LedgerTotals(1000 + cut, {name: getattr(shown, name) for name in TOTALS}))
    assert [row.since(begin) for row in rows] == cuts
    borders = [0, *cuts, len(counted)]
    spans = [span(counted[a:b]) for a, b in pairwise(borders)]
    assert compared_with_ledger(begin, rows, spans) == []
    at, name = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.sampled_from(TOTALS))
    rows[at] = replace(rows[at], totals={**rows[at].totals, name: rows[at].totals[name] + 1})
    (told,) = compared_with_ledger(begin, rows, spans)
    assert f"the total {name} had grown by" in told


def span(events: list[AuditEvent]) -> Span | None:
    if not events:
        return None
    return Span(Counter(each.kind for each in events), events[0].time_us, events[-1].time_us)


def test_a_row_that_shows_what_is_old_or_still_to_come_is_named() -> None:
    begin = AuditTotals()
    none = dict.fromkeys(TOTALS, 0)
    old = LedgerTotals(100_000, none)
    (told,) = compared_with_ledger(begin, [old], [None, Span({ENQUEUED: 1}, 69_999_000, 69_999_000)])
    assert told == "The ledger's row of 100000 ms does not show what happened at 69999000 us."
    early = LedgerTotals(100_000, none | {"enqueued": 1})
    (told,) = compared_with_ledger(begin, [early], [Span({ENQUEUED: 1}, 100_001_000, 100_001_000), None])
    assert told == "The ledger's row of 100000 ms shows what happened later, at 100001000 us."


@pytest.mark.parametrize(
    ("ended_by", "records", "is_complete", "expected"),
    [
        ("Time", 3, True, ""),
        ("Request", 3, True, ""),
        ("Overflow", 3, True, "The audit is not complete: its buffer was full after 3 records"),
        ("Restart", 3, True, "The audit is not complete: the broker was restarted while it was on."),
        ("Forgotten", 3, True, "The audit is not complete: the broker gave up the rest"),
        ("Magic", 3, True, "The audit ended for a reason that this release does not know: Magic."),
        ("Time", 2, True, "Records are missing: 3 were written, 2 are here."),
        ("Time", 3, False, "The observer has not fetched all records yet"),
    ],
)
def test_what_is_not_complete_says_so(ended_by: str, records: int, is_complete: bool, expected: str) -> None:
    told = unfinished(state(AuditTotals(), AuditTotals(), ended_by, 3), records, is_complete)
    assert len(told) == bool(expected) and "".join(told).startswith(expected)
