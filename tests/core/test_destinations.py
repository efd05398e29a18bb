"""Where a policy may send messages: docs/reference/management.md."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from penstock_core.address import ExchangeAddress, QueueAddress
from penstock_core.destinations import FoundDestination, MakeQueue, MissingDestination, decide_destination
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import ExchangeType


@dataclass(frozen=True)
class Names:
    """A queue `jobs`, an exchange `orders`."""

    def has_queue(self, name: str) -> bool:
        return name == "jobs"

    def exchange_type(self, name: str) -> ExchangeType | None:
        return ExchangeType.TOPIC if name == "orders" else None


@pytest.mark.parametrize(
    ("address", "answer"),
    [
        ("jobs", FoundDestination(QueueAddress("jobs"))),
        ("queue://jobs", FoundDestination(QueueAddress("jobs"))),
        ("orders", FoundDestination(ExchangeAddress("orders", ExchangeType.TOPIC, None))),
        ("orders/dead.eu", FoundDestination(ExchangeAddress("orders", ExchangeType.TOPIC, "dead.eu"))),
        ("dead", MakeQueue("dead")),
        ("queue://dead", MakeQueue("dead")),
        ("later/dead", MissingDestination("later/dead")),
        ("topic://later", MissingDestination("topic://later")),
    ],
)
def test_what_a_destination_means(address: str, answer: object) -> None:
    assert decide_destination(address, Names()) == answer


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("psub:durable:global:orders", Reason.NOT_ALLOWED),
        ("$management", Reason.INVALID_ADDRESS),
        ("", Reason.INVALID_ADDRESS),
        ("$dead", Reason.INVALID_NAME),
    ],
)
def test_where_nobody_may_send(address: str, reason: Reason) -> None:
    refused = decide_destination(address, Names())
    assert isinstance(refused, Refuse)
    assert refused.reason is reason
