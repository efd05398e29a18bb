"""How long the operator waits before it tries to connect again: typed pauses of brokers that are away for a while."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.resources import NOW

from penstock_operator.plans.broker_contact import BrokerContact
from penstock_operator.plans.reconnect_pause import next_pause, spread_pause

ANSWERS = BrokerContact.unknown(NOW).answered()


@pytest.mark.parametrize(
    ("pause", "away_seconds", "expected"),
    [
        pytest.param(0.5, 0, 1.0, id="doubled"),
        pytest.param(1.0, 1, 2.0, id="doubled-again"),
        pytest.param(2.0, 4, 2.0, id="not-longer-while-it-is-probably-starting"),
        pytest.param(2.0, 119, 2.0, id="until-the-grace-is-over"),
        pytest.param(2.0, 120, 4.0, id="then-it-grows"),
        pytest.param(8.0, 600, 10.0, id="to-ten-seconds"),
        pytest.param(10.0, 86_400, 10.0, id="and-no-further"),
    ],
)
def test_the_pause_after_an_attempt_in_vain(pause: float, away_seconds: float, expected: float) -> None:
    contact = ANSWERS.lost(NOW)
    assert next_pause(pause, contact, NOW + timedelta(seconds=away_seconds)) == expected


def test_a_broker_that_is_not_understood_is_asked_as_seldom() -> None:
    contact = ANSWERS.not_understood(NOW)
    assert next_pause(10.0, contact, NOW + timedelta(hours=1)) == 10.0


@pytest.mark.parametrize(("spread", "expected"), [(0.0, 9.5), (0.5, 7.125), (1.0, 4.75)])
def test_up_to_half_of_what_goes_beyond_the_first_pause_is_taken_off(spread: float, expected: float) -> None:
    assert spread_pause(10.0, spread) == expected
