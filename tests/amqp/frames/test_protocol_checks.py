"""What the engine lets pass and AMQP does not allow, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock_amqp.errors import ProtocolError
from penstock_amqp.frames.performatives import Attach, Transfer
from penstock_amqp.frames.protocol_checks import check_attach, check_begin, check_open, check_transfer

FIRST = Transfer(handle=3, delivery_id=7, delivery_tag=b"tag", message_format=0, more=True)


def test_open_comes_on_channel_zero() -> None:
    """2.4.1"""
    check_open(0)
    with pytest.raises(ProtocolError, match="channel 5") as caught:
        check_open(5)
    assert (caught.value.condition, caught.value.session_channel) == ("amqp:connection:framing-error", None)


def test_a_session_begins_behind_the_open_on_a_free_channel() -> None:
    """2.4.1 and 2.5.1"""
    check_begin(4, {0, 5}, is_open=True)
    with pytest.raises(ProtocolError) as caught:
        check_begin(0, (), is_open=False)
    assert caught.value.condition == "amqp:illegal-state"
    with pytest.raises(ProtocolError, match="Channel 4") as caught:
        check_begin(4, {4}, is_open=True)
    assert (caught.value.condition, caught.value.session_channel) == ("amqp:not-allowed", None)


def test_a_handle_belongs_to_one_link() -> None:
    """2.7.3: an attach with a handle in use is answered with handle-in-use, an error of the session."""
    attach = Attach(name="l", handle=8, role=True)
    check_attach(2, attach, handle_in_use=False)
    with pytest.raises(ProtocolError, match="Handle 8") as caught:
        check_attach(2, attach, handle_in_use=True)
    assert (caught.value.condition, caught.value.session_channel) == ("amqp:session:handle-in-use", 2)


def test_a_delivery_is_followed_until_its_last_transfer() -> None:
    """2.6.14: continuations may repeat what the first transfer said, or leave it out."""
    assert check_transfer(None, replace(FIRST, more=None)) is None
    assert check_transfer(None, FIRST) is FIRST
    assert check_transfer(FIRST, Transfer(handle=3, more=True)) is FIRST
    assert check_transfer(FIRST, replace(FIRST, delivery_id=None)) is FIRST
    assert check_transfer(FIRST, Transfer(handle=3)) is None
    assert check_transfer(FIRST, Transfer(handle=3, more=True, aborted=True)) is None


def test_an_absent_format_is_format_zero() -> None:
    """2.7.5"""
    first = replace(FIRST, message_format=None)
    assert check_transfer(first, Transfer(handle=3, message_format=0)) is None


@pytest.mark.parametrize(
    ("first", "transfer"),
    [
        pytest.param(None, replace(FIRST, delivery_id=None), id="first-without-id"),
        pytest.param(None, replace(FIRST, delivery_tag=None), id="first-without-tag"),
        pytest.param(None, replace(FIRST, delivery_tag=bytes(33)), id="tag-of-33-bytes"),
        pytest.param(None, replace(FIRST, rcv_settle_mode=1), id="second-where-first-holds"),
        pytest.param(FIRST, Transfer(handle=3, message_format=1), id="another-format"),
        pytest.param(FIRST, Transfer(handle=3, delivery_tag=b"other"), id="another-tag"),
    ],
)
def test_a_transfer_that_breaks_the_rules_is_an_invalid_field(first: Transfer | None, transfer: Transfer) -> None:
    """2.7.5 and 2.8.7"""
    with pytest.raises(ProtocolError) as caught:
        check_transfer(first, transfer)
    assert caught.value.condition == "amqp:invalid-field"


def test_where_second_holds_a_transfer_may_say_so() -> None:
    """2.7.5"""
    second = replace(FIRST, rcv_settle_mode=1)
    assert check_transfer(None, second, settles_second=True) is second


def test_a_tag_of_32_bytes_and_an_empty_one_are_tags() -> None:
    """2.8.7"""
    for tag in (bytes(32), b""):
        assert check_transfer(None, replace(FIRST, delivery_tag=tag, more=False)) is None
