"""Management bodies: from documents to AMQP and from AMQP to plain Python."""

from __future__ import annotations

import uuid

import pytest

from penstock_amqp.errors import EncodeError
from penstock_amqp.types.plain_values import to_plain, to_wire
from penstock_amqp.types.values import Array, Described, Float32, Int, Symbol, Timestamp, UByte, ULong, Value
from penstock_api.management import Deletion, EntityType, QueueLimits, SubscriptionDeclaration


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (UByte(7), 7),
        (ULong(2**63), 2**63),
        (Timestamp(5), 5),
        (Float32(0.5), 0.5),
        (Symbol("a"), "a"),
        (b"x", b"x"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Described(ULong(1), Int(2)), 2),
        (Array(0xA3, (Symbol("a"), Symbol("b"))), ["a", "b"]),
        ({Symbol("k"): [Int(1), {UByte(2): None}]}, {"k": [1, {"2": None}]}),
    ],
)
def test_what_was_decoded_becomes_plain(value: Value, plain: object) -> None:
    result = to_plain(value)
    assert result == plain
    assert type(result) is type(plain)


def test_documents_become_maps_of_their_aliases() -> None:
    declaration = SubscriptionDeclaration(subscription_name="s", exchange="x", limits=QueueLimits(max_bytes=5))
    wire = to_wire(declaration)
    assert isinstance(wire, dict)
    assert wire["subscriptionName"] == "s"
    assert wire["limits"] == {"maxBytes": 5}  # what is at its default is not sent
    assert "selector" not in wire
    assert to_wire([Deletion(), {"type": EntityType.QUEUE}]) == [
        {},
        {"type": "penstock.queue"},
    ]


def test_what_amqp_cannot_carry_is_refused() -> None:
    with pytest.raises(EncodeError):
        to_wire({"a": {1, 2}})
