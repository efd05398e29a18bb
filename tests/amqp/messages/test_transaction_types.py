"""Requests to a coordinator, typed in by hand: alone, as clients send them, and among other sections."""

from __future__ import annotations

import pytest

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.transaction_types import Declare, Discharge, read_request

DECLARE = bytes.fromhex("005377 005331 45")
DISCHARGE = bytes.fromhex("005377 005332 c0 06 02 a0 02 6162 41")
HEADER = bytes.fromhex("005370 c0 02 01 41")
FOOTER = bytes.fromhex("005378 c1 01 00")


@pytest.mark.parametrize("before", [b"", HEADER])
@pytest.mark.parametrize("behind", [b"", FOOTER])
def test_a_request_is_the_value_of_a_message(before: bytes, behind: bytes) -> None:
    assert read_request(before + DECLARE + behind) == Declare()
    assert read_request(before + DISCHARGE + behind) == Discharge(txn_id=b"ab", fail=True)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00\x53\x77", id="no-value"),
        pytest.param(b"\x00\x53\x77\xa1\x01x", id="a-text"),
        pytest.param(DISCHARGE[:-1], id="cut-short"),
        pytest.param(DECLARE + b"\x00", id="something-behind"),
    ],
)
def test_anything_else_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_request(data)
