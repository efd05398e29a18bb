"""`hack/bench peers`: the same client on Penstock, Artemis, RabbitMQ and Broker-J, in turn: flow, waiting producers,
latency, consumers with little credit. Every broker has one durable queue. Whether a broker syncs before it accepts is
seen by strace.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benching import machine
from benching.brokers import Broker
from benching.flow import BODIES, chart, one_flow
from benching.flow import COLUMNS as FLOW_COLUMNS
from benching.little_credit import CASES as CREDIT_CASES
from benching.little_credit import COLUMNS as CREDIT_COLUMNS
from benching.little_credit import little_credit_jobs
from benching.open_loop import COLUMNS as LATENCY_COLUMNS
from benching.open_loop import RATES, latency_chart, latency_jobs
from benching.peer_archives import Missing
from benching.peer_brokers import STARTERS
from benching.results import Column, medians, relative
from benching.rounds import Job, interleaved, place, reported
from benching.sync_calls import sync_calls
from benching.sync_senders import COLUMNS as SYNC_COLUMNS
from benching.sync_senders import ECHO, LIMIT, SENDERS, sync_jobs
from benching.sync_senders import chart as sync_chart

__all__ = ["peers"]

WARM_SECONDS, QUICK_WARM_SECONDS = 20, 3
"""A virtual machine compiles what runs often: before that a broker on one is not what it will be."""
TRACED_SECONDS = 2
OF_OURS = Column("of Penstock's", "of_penstock", ".0%")


def peers(
    seconds: float, rounds: int, only: Sequence[str], *, quick: bool, waiting_only: bool, disk_milliseconds: int
) -> int:
    """Measure and report; the exit code. `only`: which peers are wanted, by a part of their names; empty: all.

    `waiting_only`: no flow and no latency. `disk_milliseconds`: what each write of the disk takes longer.
    """
    notes: dict[str, object] = {}
    with place(disk_milliseconds) as folder, ExitStack() as running:
        before = machine.described(folder)
        brokers: list[Broker] = []
        for name, start in STARTERS.items():
            if only and name != "Penstock" and not any(part.lower() in name.lower() for part in only):
                continue
            print(f"  starting {name}", flush=True)
            try:
                brokers.append(running.enter_context(start(folder)))
            except Missing as missing:
                notes[name] = f"not measured: {missing}"
                print(f"  {name}: {notes[name]}", flush=True)
        for broker in brokers:
            notes[broker.name] = _looked_at(broker, QUICK_WARM_SECONDS if quick else WARM_SECONDS)
            print(f"  {broker.name}: {notes[broker.name]}", flush=True)
        runs = interleaved(_jobs(folder, brokers, seconds, quick=quick, waiting_only=waiting_only), rounds)
    full = [run for run in runs if run.case in {case for case, _, _ in BODIES}]
    waiting = [run for run in runs if run.case.endswith(" waiting")]
    credit = [run for run in runs if run.case in {case for case, _, _ in CREDIT_CASES}]
    paced = [run for run in runs if run not in full and run not in waiting and run not in credit]
    full = relative(full, "Penstock", "rate", "of_penstock")
    waiting = relative(relative(waiting, "Penstock", "rate", "of_penstock"), LIMIT, "rate", "share")
    waiting = relative(waiting, ECHO, "rate", "of_echo")
    parts = [
        (full, (FLOW_COLUMNS[0], OF_OURS, *FLOW_COLUMNS[1:])),
        (waiting, (SYNC_COLUMNS[0], OF_OURS, *SYNC_COLUMNS[1:])),
        (paced, LATENCY_COLUMNS),
        (credit, CREDIT_COLUMNS),
    ]
    charts = {
        "peers-flow": chart("Messages of 1 producer and 1 consumer", "per second", medians(full), "rate"),
        "peers-cpu": chart("Processor time of a message, 1 producer and 1 consumer", "us", medians(full), "broker_us"),
        "peers-sync": sync_chart(medians(waiting)),
        "peers-latency": latency_chart(medians(paced), "p99"),
    }
    if waiting_only:
        shown = "peers-sync"
        return reported("peers-waiting", before, parts[1:2], {f"{shown}-waiting": charts[shown]}, notes)
    return reported("peers", before, parts, charts, notes)


def _looked_at(broker: Broker, seconds: float) -> str:
    began = time.monotonic()
    for durable in (0, 1):
        one_flow(broker, dict(broker.queue), seconds / 2, durable=durable)
    warm = f"warmed up for {time.monotonic() - began:.0f} s"
    return "; ".join(filter(None, (str(sync_calls(broker, TRACED_SECONDS)), warm, broker.note)))


def _jobs(folder: Path, brokers: Sequence[Broker], seconds: float, *, quick: bool, waiting_only: bool) -> list[Job]:
    reached: list[tuple[Broker, Mapping[str, str]]] = [(broker, broker.queue) for broker in brokers]
    waiting = sync_jobs(folder, reached, SENDERS[:3], seconds)
    if waiting_only:
        return waiting
    flows = [
        Job(case, broker.name, partial(one_flow, broker, dict(broker.queue), seconds, size=size, durable=durable))
        for case, size, durable in BODIES
        if not quick or size == 1024
        for broker in brokers
    ]
    latency = latency_jobs(reached, RATES[:2] if quick else RATES, seconds)
    return [*flows, *waiting, *latency, *little_credit_jobs(brokers, seconds)]
