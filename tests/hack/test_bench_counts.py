"""What `hack/bench count` calls too dear, and what it counts again before it says so."""

from __future__ import annotations

import pytest
from benching.counting import Figures, compare, excesses, smallest
from benching.scenarios import Scenario

BASELINE: Figures = {
    "1024 B that go from a deep backlog": {"instructions": 15000.0, "calls": 0.08, "fdatasyncs": 0.0},
    "1024 B that go from a small backlog": {"instructions": 14000.0, "calls": 0.08, "fdatasyncs": 0.0},
}
DEEP = "1024 B that go from a deep backlog"
SMALL = "1024 B that go from a small backlog"


def figures(instructions: float, calls: float = 0.08, fdatasyncs: float = 0.0, small: float = 14000.0) -> Figures:
    return {
        DEEP: {"instructions": instructions, "calls": calls, "fdatasyncs": fdatasyncs},
        SMALL: {"instructions": small, "calls": 0.08, "fdatasyncs": 0.0},
    }


class Recount:
    """Gives these figures for the deep backlog, one after the other, and keeps what was asked for."""

    def __init__(self, *instructions: float) -> None:
        self._instructions = list(instructions)
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, scenarios: tuple[Scenario, ...]) -> Figures:
        self.asked.append(tuple(each.name for each in scenarios))
        return {DEEP: figures(self._instructions.pop(0))[DEEP]}


@pytest.mark.parametrize(
    ("counted", "found"),
    [
        (figures(15300), []),
        (figures(15301), [DEEP]),
        (figures(15000, calls=0.0866), []),  # a fiftieth and five calls in a thousand messages
        (figures(15000, calls=0.0867), [DEEP]),
        (figures(15000, fdatasyncs=0.005), []),
        (figures(15000, fdatasyncs=0.0051), [DEEP]),
        (figures(14900, small=11000), [DEEP]),  # 1.35 of the same in memory
        (figures(14500, small=11000), []),  # 1.32: within a fiftieth of 1.3
    ],
)
def test_what_exceeds_the_baseline(counted: Figures, found: list[str]) -> None:
    assert [each.scenario for each in excesses(counted, BASELINE)] == found


def test_the_smaller_figure_stands_of_each_that_was_counted_again() -> None:
    again = {DEEP: {"instructions": 15100.0, "calls": 0.09, "fdatasyncs": 0.0}}
    assert smallest(figures(16900), again) == figures(15100)


def test_a_scenario_that_is_dear_once_passes() -> None:
    recount = Recount(15100)
    assert compare(figures(16900), BASELINE, recount) == 0
    assert recount.asked == [(DEEP,)]


def test_a_scenario_that_is_dear_three_times_fails(capsys: pytest.CaptureFixture[str]) -> None:
    recount = Recount(16200, 16300)
    assert compare(figures(16900), BASELINE, recount) == 1
    assert recount.asked == [(DEEP,), (DEEP,)]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"MORE THAN THE BASELINE: {DEEP}: instructions 1.62e+04 where it has 1.5e+04"


def test_nothing_is_counted_again_without_need() -> None:
    recount = Recount()
    assert compare(figures(15000), BASELINE, recount) == 0
    assert not recount.asked


def test_a_scenario_without_a_baseline_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(figures(15000), {}, Recount()) == 1
    assert capsys.readouterr().out == f"NOT IN THE BASELINE: {DEEP}, {SMALL}\n"
