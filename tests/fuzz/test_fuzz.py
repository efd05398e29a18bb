"""A seeded short form of hack/soak/fuzz: the same inputs every time, about two minutes in all."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.running import fuzz
from fuzz.targets import OFFERED, SEEDS, TARGETS, answer

from penstock_amqp.sasl.mechanisms import LookUpKeys, Verify
from penstock_amqp.sasl.server import Authenticated, SaslServer

SEED = 20_261_121
RUNS = {
    "selector": 15_000,
    "value": 50_000,
    "frame": 15_000,
    "forwarded": 50_000,
    "fields": 50_000,
    "dialogue": 20_000,
    "conversation": 4_000,
}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_the_seeds_themselves_break_nothing(target: str) -> None:
    for data in SEEDS[target]:
        TARGETS[target](data)


def test_every_dialogue_that_is_meant_to_end_well_does() -> None:
    let_in: list[str] = []
    for data in SEEDS["dialogue"]:
        server = SaslServer(OFFERED, without_sasl=True)
        result = server.feed(data)
        while isinstance(result, Verify | LookUpKeys):
            result = server.answer(answer(result))
        if isinstance(result, Authenticated):
            let_in.append(f"{result.mechanism} {result.user}")
    assert let_in == [
        "PLAIN guest",
        "ANONYMOUS anonymous",
        "SCRAM-SHA-256 user",
        "XOAUTH2 guest",
        "EXTERNAL certified",
        "None anonymous",
    ]


@pytest.mark.fuzz
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_no_input_breaks_a_promise(target: str, tmp_path: Path) -> None:
    outcome = fuzz(target, tmp_path, seed=SEED, runs=RUNS[target])
    assert not outcome.finding, outcome.finding
    assert outcome.runs >= RUNS[target]
