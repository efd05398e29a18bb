"""Figures with few words, for the tests of rules and documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from penstock_lag_rules.figures import Coverage, Figures, Growth, Percentiles, Span, Standing, Subject

END_MS = 1_700_000_300_000


def span(elapsed_ms: int, **changes: Any) -> Span:
    """A span of BUSY: as many messages come as are accepted, ten a second."""
    count = elapsed_ms // 100
    growth = Growth(enqueued=count, delivered=count, acked=count)
    made = Span(
        elapsed_ms=elapsed_ms,
        snapshots=elapsed_ms // 10_000 + 1,
        first_depth=500,
        first_age_ms=70_000,
        falls=3,
        min_depth=450,
        min_ready=350,
        min_in_flight=90,
        min_consumers=2,
        min_credit=0,
        max_credit=10,
        growth=growth,
    )
    return replace(made, **changes)


BUSY = Figures(
    subject=Subject(ordinal=0, queue_name="psub:durable:global:orders"),
    standing=Standing(
        observed_ms=END_MS,
        depth=500,
        ready=400,
        in_flight=100,
        age_ms=70_000,
        hold_ms=5_000,
        consumers=2,
        credit=0,
        usable_consumers=2,
    ),
    coverage=Coverage(last_poll_ms=END_MS, elapsed_ms=300_000, polls=31, interval_ms=10_000),
    window=span(300_000),
    stretch=span(300_000),
    recent=span(60_000),
    caught_up_ms=None,
    progressed_ms=END_MS,
    consumed_ms=END_MS,
    percentiles=Percentiles(completions=3_000, sojourn_p50=100, sojourn_p95=120, sojourn_p99=130, hold_p99=80),
)
"""A standing backlog that no rule matches: two consumers, as much comes as goes."""


def figures(**parts: Any) -> Figures:
    """BUSY with changes. A dictionary changes fields of that part, and one under `growth` fields of its growth."""
    made: Figures = _changed(BUSY, parts)
    return made


def _changed(record: Any, changes: dict[str, Any]) -> Any:  # Any: the records have no common base
    found = {name: _changed_part(getattr(record, name), value) for name, value in changes.items()}
    return replace(record, **found)


def _changed_part(part: Any, change: Any) -> Any:
    return _changed(part, cast("dict[str, Any]", change)) if isinstance(change, dict) else change
