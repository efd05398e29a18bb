"""How many requests may be on the way: typed answers of an API server, and the limit after all of them."""

from __future__ import annotations

import pytest

from penstock_operator.plans.request_window import RequestWindow


@pytest.mark.parametrize(
    ("answers", "limit"),
    [
        pytest.param([], 8, id="it-begins-with-eight"),
        pytest.param([0.005] * 8, 9, id="as-many-soon-answers-as-it-has-make-room-for-one-more"),
        pytest.param([0.005] * 16, 9, id="not-yet-enough"),
        pytest.param([0.005] * 17, 10, id="then-for-another"),
        pytest.param([0.005] * 10_000, 64, id="never-more-than-64"),
        pytest.param([3.0] * 17, 10, id="far-away-is-not-overloaded"),
        pytest.param([0.005, *[0.1] * 16], 10, id="a-tenth-of-a-second-is-soon"),
        pytest.param([0.005, *[0.3] * 100], 8, id="neither-soon-nor-slow-changes-nothing"),
        pytest.param([*[0.005] * 10_000, 0.6], 32, id="a-slow-answer-halves-it"),
        pytest.param([*[0.005] * 10_000, 0.6, 0.6], 16, id="and-another"),
        pytest.param([*[0.005] * 10_000, *[9.0] * 100], 8, id="never-below-eight"),
        pytest.param([*[1.0] * 10_000, 3.9], 64, id="below-four-times-the-fastest-is-not-slow"),
        pytest.param([*[1.0] * 10_000, 4.1], 32, id="beyond-is-slow"),
        pytest.param([0.005, *[0.4] * 10_000], 8, id="the-fastest-is-not-forgotten"),
    ],
)
def test_the_limit_follows_the_answers(answers: list[float], limit: int) -> None:
    window = RequestWindow()
    for seconds in answers:
        window.answered(seconds)
    assert window.limit == limit


def test_after_a_refusal_eight() -> None:
    window = RequestWindow()
    for _ in range(10_000):
        window.answered(0.001)
    window.refused()
    assert window.limit == 8
