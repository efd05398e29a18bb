"""How many writes may be on the way: typed answers of an API server, and the limit after each."""

from __future__ import annotations

import pytest

from penstock_operator.plans.write_window import WriteWindow


@pytest.mark.parametrize(
    ("answers", "limits"),
    [
        pytest.param([0.005] * 6, [2, 2, 3, 3, 3, 4], id="each-round-of-soon-answers-makes-room-for-one-more"),
        pytest.param([0.1, 0.1, 0.1], [2, 2, 3], id="a-tenth-of-a-second-is-soon"),
        pytest.param([0.3] * 4, [1, 1, 1, 1], id="what-is-neither-soon-nor-slow-changes-nothing"),
        pytest.param([0.005, 0.005, 0.005, 0.6], [2, 2, 3, 1], id="a-slow-answer-halves-it"),
        pytest.param([9.0, 9.0], [1, 1], id="never-below-one"),
    ],
)
def test_the_limit_follows_the_answers(answers: list[float], limits: list[int]) -> None:
    window, found = WriteWindow(), list[int]()
    for seconds in answers:
        window.answered(seconds)
        found.append(window.limit)
    assert found == limits


def test_never_more_than_eight() -> None:
    window = WriteWindow()
    for _ in range(1_000):
        window.answered(0.001)
    assert window.limit == 8


def test_after_a_refusal_one() -> None:
    window = WriteWindow()
    for _ in range(1_000):
        window.answered(0.001)
    window.refused()
    assert window.limit == 1
    window.answered(0.001)
    assert window.limit == 2
