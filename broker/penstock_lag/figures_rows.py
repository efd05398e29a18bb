"""The figures of the rules from the rows that Spark has made. Pure.

Source: penstock_lag_rules.figures; penstock_lag.transforms.figures, which makes the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from penstock_lag.percentiles import added, bucket_of_rank, grown
from penstock_lag_rules.figures import Coverage, Figures, Growth, Percentiles, RepeatedMessage, Span, Standing, Subject

__all__ = ["figures_of"]

Values = Mapping[str, Any]  # Any: what a Spark row holds is known by its schema only


def figures_of(row: Values) -> Figures:
    """From a row as nested mappings (`Row.asDict(recursive=True)`). Raises KeyError for a field that is missing."""
    standing = row["standing"]
    return Figures(
        subject=Subject(
            ordinal=row["ordinal"],
            queue_name=row["queue_name"],
            owner_namespace=standing["owner_namespace"],
            owner_name=standing["owner_name"],
            owner_uid=standing["owner_uid"],
        ),
        standing=_standing(standing),
        coverage=Coverage(**row["coverage"]),
        window=_span(row["window"]),
        stretch=_span(row["stretch"]),
        recent=_span(row["recent"]),
        caught_up_ms=row["caught_up_ms"],
        progressed_ms=row["progressed_ms"],
        consumed_ms=row["consumed_ms"],
        percentiles=_percentiles(row),
    )


def _standing(row: Values) -> Standing:
    values = _taken(row, Standing)
    values["stranded"] = row["stranded"] or 0
    values["repeated"] = _repeated(row["repeated"], row["observed_ms"])
    return Standing(**values)


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


def _span(row: Values) -> Span:
    values = {name: row[name] for name in _SPAN}
    return Span(**values, growth=Growth(**_taken(row, Growth)))


_SPAN = tuple(field.name for field in fields(Span) if field.name != "growth")


def _percentiles(row: Values) -> Percentiles:
    sojourn, hold = grown(row["lives"]), added(row["hold"])
    return Percentiles(
        completions=sum(sojourn.values()),
        sojourn_p50=bucket_of_rank(sojourn, 50),
        sojourn_p95=bucket_of_rank(sojourn, 95),
        sojourn_p99=bucket_of_rank(sojourn, 99),
        hold_p99=bucket_of_rank(hold, 99),
    )


def _taken(row: Values, model: type[Any]) -> dict[str, Any]:
    return {field.name: row[field.name] for field in fields(model)}
