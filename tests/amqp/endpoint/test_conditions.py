"""The engine's own errors, in the words of AMQP."""

from __future__ import annotations

import pytest

from penstock_amqp.endpoint.conditions import Fault, fault_of
from penstock_amqp.endpoint.events import AmqpError

FLOW, TRANSFER, DISPOSITION, DETACH = 0x13, 0x14, 0x15, 0x16


@pytest.mark.parametrize(
    ("said", "description", "told", "codes"),
    [
        ("amqp:invalid-field", "no such handle: 4", "amqp:session:unattached-handle", {FLOW, TRANSFER, DETACH}),
        ("amqp:session:window-violation", "incoming", "amqp:session:window-violation", {TRANSFER}),
        ("amqp:session:invalid-field", "sequencing error", "amqp:invalid-field", {TRANSFER}),
        ("amqp:not allowed", "illegal delivery range: 5-3", "amqp:not-allowed", {DISPOSITION}),
        ("amqp:not-allowed", "no such channel: 9", "amqp:not-allowed", set[int]()),
        ("amqp:invalid-field", "link name already attached: x", "amqp:invalid-field", set[int]()),
    ],
)
def test_each_is_told_by_a_condition_of_the_specification(
    said: str, description: str, told: str, codes: set[int]
) -> None:
    """2.8.15 to 2.8.17: conditions; of those of a session, the frames that can have caused it."""
    assert fault_of(AmqpError(said, description)) == Fault(AmqpError(told, description), frozenset(codes))
