"""`hack/bench tls`: messages of 1 KiB at full speed, with TLS and without, through the same broker."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from benching import machine
from benching.brokers import penstock, topic
from benching.flow import BODIES, COLUMNS, chart, one_flow
from benching.results import Column, medians, relative
from benching.rounds import Job, interleaved, place, reported

__all__ = ["tls"]

TESTS = Path(__file__).resolve().parent.parent.parent / "tests"


def tls(seconds: float, rounds: int) -> int:
    """Measure and report; the exit code."""
    sys.path.insert(0, str(TESTS))
    from support.certificates import Authority

    with place() as folder:
        issued = Authority(folder).issue("localhost")
        certificates = {"certificate": str(issued.certificate), "key": str(issued.key)}
        config = folder / "broker.yaml"  # YAML can hold JSON
        config.write_text(json.dumps({"listeners": [{"name": "amqps", "address": "127.0.0.1:0", "tls": certificates}]}))
        with penstock(folder, config) as plain:
            before = machine.described(folder)
            secure = replace(plain, name="TLS", port=plain.tls_port)
            jobs = [
                Job(
                    case,
                    broker.name,
                    partial(one_flow, broker, topic("bench"), seconds, size=size, durable=durable, tls=on),
                )
                for case, size, durable in BODIES
                if size == 1024
                for broker, on in ((replace(plain, name="plain"), 0), (secure, 1))
            ]
            runs = relative(interleaved(jobs, rounds), "plain", "broker_us", "times")
    drawn = chart("Processor time of a message of 1 KiB", "us", medians(runs), "broker_us")
    columns = (*COLUMNS, Column("of plain", "times", ".2f"))
    return reported("tls", before, [(runs, columns)], {"tls": drawn}, heads=("case", "connection"))
