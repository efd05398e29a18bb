"""Bodies of AMQP and JMS messages, typed by hand from the specification."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_api.message_operations import PeekedMessage
from penstock_page.bodies import Header, shown_message


def a_message(body: str, form: str = "Hexadecimal", kind: str | None = None, **changes: Any) -> PeekedMessage:
    """As the broker's PEEK gives it."""
    values: dict[str, Any] = {
        "number": 7,
        "state": "Ready",
        "durable": True,
        "priority": 4,
        "size_bytes": 100,
        "available_ms": 0,
        "body": body,
        "body_form": form,
        "body_kind": kind,
    }
    return PeekedMessage(**(values | changes))


def jms(number: int) -> dict[str, Any]:
    """The annotation of a JMS client."""
    return {"annotations": {"x-opt-jms-msg-type": number}}


@pytest.mark.parametrize(
    ("message", "form", "body"),
    [
        pytest.param(a_message("hello", "Text", "Text", **jms(5)), "JMS TextMessage, text", "hello", id="JMS text"),
        pytest.param(a_message("hello", "Text"), "AMQP, text", "hello", id="text of an earlier release"),
        # map8, 7 bytes with its count, 2 items: str8 "a", smallint 5
        pytest.param(
            a_message("c10602a1016154" + "05", kind="Value", **jms(2)),
            "JMS MapMessage, map of 1",
            '{\n  "a": 5\n}',
            id="JMS map",
        ),
        # list8 with boolean true, null and vbin8 0xff
        pytest.param(
            a_message("c006034140a001ff", kind="Value", **jms(3)),
            "JMS StreamMessage, list of 3",
            '[\n  true,\n  null,\n  "ff"\n]',
            id="JMS stream",
        ),
        pytest.param(a_message("5441", kind="Value"), "AMQP, int", "65", id="AMQP int"),
        pytest.param(a_message("40", kind="Value"), "AMQP, null", "null", id="AMQP null"),
        # The same bytes as content are bytes, although they could be read as an int.
        pytest.param(
            a_message("5441", kind="Bytes", **jms(4)),
            "JMS BytesMessage, 2 bytes",
            "0000  54 41" + " " * 44 + "TA",
            id="JMS bytes",
        ),
        pytest.param(
            a_message("aced0005", kind="Bytes", **jms(1)),
            "JMS ObjectMessage, a Java object, which is not decoded, 4 bytes",
            "0000  ac ed 00 05" + " " * 38 + "....",
            id="JMS object",
        ),
        pytest.param(
            a_message("c1ff", kind="Value"),
            "AMQP, a value that can't be decoded, 2 bytes",
            "0000  c1 ff" + " " * 44 + "..",
            id="broken value",
        ),
        pytest.param(
            a_message("00", kind="Bytes", is_whole=False),
            "AMQP, 1 bytes, of which this is the beginning",
            "0000  00" + " " * 47 + ".",
            id="cut",
        ),
    ],
)
def test_a_body_says_what_it_is(message: PeekedMessage, form: str, body: str) -> None:
    shown = shown_message(message)
    assert (shown.body_form, shown.body) == (form, body)


def test_headers_are_in_order_and_a_message_without_id_has_its_number() -> None:
    shown = shown_message(
        a_message(
            "", "Text", subject="eu", annotations={"x-opt-ORIG-QUEUE": "q", "a": 1}, application_properties={"size": 3}
        )
    )
    assert shown.id == "#7"
    assert shown.headers == (
        Header("durable", True),
        Header("priority", 4),
        Header("subject", "eu"),
        Header("a", 1),
        Header("x-opt-ORIG-QUEUE", "q"),
        Header("size", 3),
    )


@given(st.binary(max_size=80), st.sampled_from(["Value", "Bytes", None]), st.integers(0, 6), st.booleans())
def test_no_body_breaks_the_page(octets: bytes, kind: str | None, number: int, is_whole: bool) -> None:
    """Whatever a client sent."""
    shown = shown_message(a_message(octets.hex(), kind=kind, is_whole=is_whole, **jms(number)))
    assert shown.body_form
    shown.body.encode()
