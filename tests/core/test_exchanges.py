"""Declaring and deleting exchanges."""

from __future__ import annotations

import pytest

from penstock_core.declaration_rules import decide_exchange_declaration, decide_exchange_deletion
from penstock_core.reason import Reason
from penstock_core.terms import ExchangeType


@pytest.mark.parametrize("exchange_type", list(ExchangeType))
def test_every_type_can_be_declared(exchange_type: ExchangeType) -> None:
    assert decide_exchange_declaration("orders", exchange_type, None) is None
    assert decide_exchange_declaration("orders", exchange_type, exchange_type) is None


def test_a_type_never_changes() -> None:
    refused = decide_exchange_declaration("orders", ExchangeType.DIRECT, ExchangeType.TOPIC)
    assert refused is not None
    assert refused.reason is Reason.IMMUTABLE


def test_names_are_checked() -> None:
    temporary = decide_exchange_declaration("temporary-topic:x", ExchangeType.FANOUT, ExchangeType.FANOUT)
    assert temporary is not None
    assert temporary.reason is Reason.INVALID_NAME
    refused = decide_exchange_declaration("a/b", ExchangeType.TOPIC, None)
    assert refused is not None
    assert refused.reason is Reason.INVALID_NAME


@pytest.mark.parametrize(
    ("name", "bound", "if_unused", "why"),
    [
        ("orders", 0, True, None),
        ("orders", 2, True, Reason.BINDINGS_EXIST),
        ("orders", 2, False, None),
        ("amq.topic", 0, False, Reason.NOT_ALLOWED),
    ],
)
def test_deletion_of_an_exchange(name: str, bound: int, if_unused: bool, why: Reason | None) -> None:
    refused = decide_exchange_deletion(name, bound, if_unused=if_unused)
    assert (None if refused is None else refused.reason) is why
