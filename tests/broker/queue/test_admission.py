"""Who takes a message, asked together for a whole route."""

from __future__ import annotations

from typing import NoReturn

import pytest

from penstock_amqp.messages import message_head
from penstock_amqp.messages.message_codec import Message, Properties, encode_message
from penstock_amqp.types.values import Symbol, Value
from penstock_broker.queue.admission import Admission, AdmissionSet, IsForeign
from penstock_core.selector import Lookup, Selector, compile_selector


def selecting(text: str, is_foreign: IsForeign | None = None) -> Admission:
    selector = compile_selector(text)
    assert isinstance(selector, Selector)
    return Admission(selector, is_foreign)


def taking(selection: AdmissionSet[str], properties: dict[str, Value], subject: str | None = None) -> list[str]:
    data = encode_message(
        Message(properties=Properties(subject=subject), application_properties=properties, body="body")
    )
    return selection.taking(data, message_head.read_head(data), None)


def test_each_selector_is_asked() -> None:
    selection = AdmissionSet[str](
        [
            ("eu", selecting("region = 'eu'")),
            ("us", selecting("'us' = region")),
            ("also eu", selecting("region = 'eu'")),
            ("big", selecting("size > 3")),
            ("typed", selecting("JMSType = 'order'")),
        ]
    )
    assert taking(selection, {"region": "eu"}) == ["eu", "also eu"]
    assert taking(selection, {"region": "us", "size": 4}) == ["us", "big"]
    assert taking(selection, {"region": Symbol("eu")}) == ["eu", "also eu"]
    assert taking(selection, {"region": 1}, subject="order") == ["typed"]
    assert taking(selection, {}) == []


def test_no_local_is_asked_before_and_beside_a_selector() -> None:
    selection = AdmissionSet[str](
        [
            ("nobody's", Admission(None, lambda _: False)),
            ("everybody's", Admission(None, lambda _: True)),
            ("selected, own", selecting("region = 'eu'", lambda _: False)),
            ("selected, foreign", selecting("region = 'eu'", lambda _: True)),
        ]
    )
    assert taking(selection, {"region": "eu"}) == ["everybody's", "selected, foreign"]
    assert taking(selection, {"region": "us"}) == ["everybody's"]


def test_a_thousand_equalities_are_not_evaluated() -> None:
    def never(_: Lookup) -> NoReturn:
        pytest.fail("an indexed selector was evaluated")

    values = [f"r{number}" for number in range(1000)]
    selectors = [Selector(f"region = '{value}'", ("region",), never, ("region", value)) for value in values]
    selection = AdmissionSet([(each.text, Admission(each, None)) for each in selectors])
    assert taking(selection, {"region": "r7"}) == ["region = 'r7'"]
    assert taking(selection, {"region": "elsewhere"}) == []


def test_what_cannot_be_read_is_selected_by_nobody() -> None:
    selection = AdmissionSet([("eu", selecting("region <> 'x'")), ("foreign", Admission(None, lambda _: True))])
    data = b"\x00\x53\x74\xc1\x09\x02\xa1\x06region"  # a map that ends within its only pair
    assert selection.taking(data, message_head.read_head(b"\x00\x53\x77\x40"), None) == ["foreign"]
