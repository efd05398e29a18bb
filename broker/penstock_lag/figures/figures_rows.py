"""The figures of the rules from what Spark found: the pieces of each subscription, and single rows of the ledger. Pure.

Source: penstock_lag_rules.figures; penstock_lag.figures.spans.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock_lag.figures.consumers import ConsumersAt, consumer_work
from penstock_lag.figures.percentiles import Counts, Histogram, added, grown
from penstock_lag.figures.spans import Subscription
from penstock_lag_rules.buckets import bucket_of_rank
from penstock_lag_rules.figures import (
    Coverage,
    Duration,
    Figures,
    Percentiles,
    RepeatedMessage,
    Standing,
    Subject,
    Work,
)
from penstock_lag_rules.history import expires_in_ms

__all__ = ["figures_of"]

Values = Mapping[str, Any]  # Any: what a row holds is known by the ledger's schema only


def figures_of(found: Subscription, rows: Mapping[int, Values], coverage: Coverage) -> Figures:
    """Of one subscription. In: the rows of its broker by `seq`, those at least that `found.seqs()` names. Raises
    KeyError if one is missing.
    """
    last = rows[found.starts["last_seq"]]
    return Figures(
        subject=Subject(
            ordinal=last["ordinal"],
            queue_name=last["queue_name"],
            owner_namespace=last["owner_namespace"],
            owner_name=last["owner_name"],
            owner_uid=last["owner_uid"],
        ),
        standing=_standing(last),
        coverage=coverage,
        window=found.window,
        stretch=found.stretch,
        recent=found.recent,
        caught_up_ms=found.starts["caught_up_ms"],
        progressed_ms=found.progressed_ms,
        consumed_ms=found.consumed_ms,
        percentiles=_percentiles(found, rows),
        wait=_duration("wait", found, rows),
        hold=_duration("hold", found, rows),
        consumers=consumer_work(
            (_consumers_at(life.first_sojourn_seq, rows), _consumers_at(life.last_sojourn_seq, rows))
            for life in found.lives
        ),
        work=Work(
            intervals=found.starts["worked_intervals"],
            accepted=found.starts["worked_accepted"],
            consumer_ms=found.starts["worked_consumer_ms"],
        ),
        lives=len(found.lives),
    )


def _standing(row: Values) -> Standing:
    now_ms = row["time_ms"]
    return Standing(
        observed_ms=now_ms,
        depth=row["depth"],
        ready=row["ready"],
        in_flight=row["in_flight"],
        scheduled=row["scheduled"],
        stranded=row["stranded"] or 0,
        age_ms=_since(row["oldest_available_ms"], now_ms),
        hold_ms=_since(row["oldest_hold_ms"], now_ms),
        expires_in_ms=expires_in_ms(row["first_expires_ms"], row["last_expires_ms"], now_ms),
        consumers=row["consumers"],
        credit=row["credit"],
        usable_consumers=row["usable_consumers"],
        unused_since_ms=row["unused_since_ms"],
        repeated=_repeated(row["repeated"], now_ms),
    )


def _since(then_ms: int | None, now_ms: int) -> int | None:
    """Not known if the clock went back behind it."""
    return None if then_ms is None or then_ms > now_ms else now_ms - then_ms


def _repeated(text: str | None, observed_ms: int) -> tuple[RepeatedMessage, ...]:
    """From the ledger's JSON. An age is never negative, also if the broker's clock went back."""
    messages: list[Values] = [] if text is None else json.loads(text)
    return tuple(
        RepeatedMessage(
            id=message["id"],
            delivery_count=message["deliveryCount"],
            age_ms=max(observed_ms - message["availableMs"], 0),
        )
        for message in messages
    )


def _percentiles(found: Subscription, rows: Mapping[int, Values]) -> Percentiles:
    sojourn = _grown("sojourn", found, rows)
    hold = added(_histogram("hold", found.lives[-1].hold_seq, rows))
    return Percentiles(
        completions=sum(sojourn.values()),
        sojourn_p50=bucket_of_rank(sojourn, 50),
        sojourn_p95=bucket_of_rank(sojourn, 95),
        sojourn_p99=bucket_of_rank(sojourn, 99),
        hold_p99=bucket_of_rank(hold, 99),
    )


def _duration(name: str, found: Subscription, rows: Mapping[int, Values]) -> Duration:
    counts = _grown(name, found, rows)
    ends = [(life.first_sojourn_seq, life.last_sojourn_seq) for life in found.lives]
    sum_ms = sum(_sum_ms(name, last, rows) - _sum_ms(name, first, rows) for first, last in ends)
    return Duration(sum(counts.values()), max(sum_ms, 0), bucket_of_rank(counts, 95))


def _grown(name: str, found: Subscription, rows: Mapping[int, Values]) -> Counts:
    return grown(
        {
            "first": _histogram(name, life.first_sojourn_seq, rows),
            "last": _histogram(name, life.last_sojourn_seq, rows),
        }
        for life in found.lives
    )


def _consumers_at(seq: int | None, rows: Mapping[int, Values]) -> ConsumersAt | None:
    return None if seq is None else ConsumersAt.of(rows[seq]["time_ms"], rows[seq]["consumer_totals"])


def _sum_ms(name: str, seq: int | None, rows: Mapping[int, Values]) -> int:
    return 0 if seq is None else rows[seq][f"{name}_sum_ms"] or 0


def _histogram(name: str, seq: int | None, rows: Mapping[int, Values]) -> Histogram | None:
    if seq is None:
        return None
    return {"indexes": rows[seq][f"{name}_indexes"], "counts": rows[seq][f"{name}_counts"]}
