"""`hack/bench fanout`: durable messages of 1 KiB to 1, 10, 100 and 1,000 durable subscriptions of one exchange.

Each subscription has a consumer with a connection of its own. The price of a further copy is what a message costs the
broker more than with one subscription, for each of the others; if selectors leave one copy, it is the price of a
further subscription that does not get the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benching import machine
from benching.brokers import Broker, penstock, topic
from benching.flow import COLOURS
from benching.log_chart import Line, LogChart
from benching.results import Column, Run, medians
from benching.rounds import Job, interleaved, load, place, reported

__all__ = ["SUBSCRIPTIONS", "fanout", "further_copies"]

SUBSCRIPTIONS = (1, 10, 100, 1_000)
SELECTORS: dict[str, dict[str, str]] = {
    "no selector": {},
    "equality, all match": {"selector": "colour = 'red'"},
    "equality, one matches": {"selector": "colour = 'red'", "others": "colour = 'blue-%d'"},
}
COLUMNS = (
    Column("messages/s", "messages", ",.0f"),
    Column("copies/s", "rate", ",.0f"),
    Column("broker us/message", "message_us", ",.1f"),
    Column("us for each further subscription", "further_us", ".2f"),
)


def fanout(subscriptions: Sequence[int], seconds: float, rounds: int) -> int:
    """Measure and report; the exit code."""
    with place() as folder, penstock(folder) as broker:
        before = machine.described(folder)
        jobs = [
            Job(f"{count:,}", kind, partial(_one, broker, count, number, seconds))
            for count in subscriptions
            for number, kind in enumerate(SELECTORS)
        ]
        runs = further_copies(interleaved(jobs, rounds))
    points = [
        Line(
            kind,
            colour,
            [
                (int(row.case.replace(",", "")), row.figures["message_us"])
                for row in medians(runs)
                if row.broker == kind and row.figures
            ],
        )
        for kind, colour in zip(SELECTORS, COLOURS, strict=False)
    ]
    title = "Processor time of a message against the subscriptions of the exchange"
    drawn = LogChart(title, "durable subscriptions", (0, 3), (0, 5), " us").drawn(points)
    return reported("fanout", before, [(runs, COLUMNS)], {"fanout": drawn}, heads=("subscriptions", "selectors"))


def further_copies(runs: Sequence[Run]) -> list[Run]:
    """With the price of each further subscription: against one subscription in the same round."""
    alone = {(run.round, run.broker): run.figures["message_us"] for run in runs if run.case == "1" and run.figures}
    found: list[Run] = []
    for run in runs:
        others, first = int(run.case.replace(",", "")) - 1, alone.get((run.round, run.broker))
        figures = run.figures
        if others and first is not None and figures:
            figures = {**figures, "further_us": (figures["message_us"] - first) / others}
        found.append(Run(run.round, run.broker, run.case, figures))
    return found


def _one(broker: Broker, count: int, number: int, seconds: float) -> dict[str, float]:
    options = {**topic(f"fan-{count}-{number}"), **list(SELECTORS.values())[number]}
    options["name"] = f"fan-{count}-{number}-%d|global"
    copies = 1 if "others" in options else count
    found = load(
        broker, {**options, "receivers": count, "copies": copies, "warmup": 0, "seconds": seconds, "window": 100}
    )
    part = found.whole
    return {
        "messages": part.accepted / part.seconds,
        "rate": part.received / part.seconds,
        "message_us": part.broker_cpu / part.accepted * 1e6,
    }
