"""A seeded short form of hack/soak/fuzz: the same inputs every time, about two minutes in all."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.running import fuzz
from fuzz.targets import SEEDS, TARGETS

SEED = 20_261_121
RUNS = {
    "selector": 60_000,
    "value": 200_000,
    "frame": 60_000,
    "forwarded": 200_000,
    "dialogue": 80_000,
    "conversation": 12_000,
}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_the_seeds_themselves_break_nothing(target: str) -> None:
    for data in SEEDS[target]:
        TARGETS[target](data)


@pytest.mark.fuzz
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_no_input_breaks_a_promise(target: str, tmp_path: Path) -> None:
    outcome = fuzz(target, tmp_path, seed=SEED, runs=RUNS[target])
    assert not outcome.finding, outcome.finding
    assert outcome.runs >= RUNS[target]
