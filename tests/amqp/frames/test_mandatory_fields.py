"""Mandatory fields that are absent, by AMQP 1.0 part 1, 1.4, and part 2, 2.7.4 and 2.7.6; lists by part 1, 1.6.23."""

from __future__ import annotations

import pytest

from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.frames import HEAD_BYTES, encode_frame
from penstock_amqp.frames.mandatory_fields import check_disposition, check_flow
from penstock_amqp.frames.performatives import Disposition

DISPOSITION = b"\0\x53\x15"
FLOW = b"\0\x53\x13"


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        (b"\x45", "role"),
        (b"\xc0\x01\x00", "role"),
        (b"\xc0\x03\x02\x40\x43", "role"),
        (b"\xc0\x03\x02\x41\x40", "first"),
        (b"\xc0\x02\x01\x41", "first"),
        (b"\xc0\x04\x02\x56\x01\x40", "first"),
        (b"\xd0\0\0\0\x06\0\0\0\x02\x41\x40", "first"),
        (b"\xd0\0\0\0\x05\0\0\0\x01\x41", "first"),
    ],
)
def test_a_disposition_lacks_a_field(fields: bytes, missing: str) -> None:
    with pytest.raises(DecodeError, match=f"lacks its mandatory field {missing}"):
        check_disposition(memoryview(DISPOSITION + fields), 8)


@pytest.mark.parametrize("first", [0, 1, 255, 256, 2**32 - 1])
@pytest.mark.parametrize("role", [True, False])
def test_a_disposition_lacks_none(first: int, role: bool) -> None:
    frame = encode_frame(Disposition(role=role, first=first))
    check_disposition(memoryview(frame[HEAD_BYTES:]), 8)


@pytest.mark.parametrize("size", range(20))
def test_what_is_cut_short_lacks_nothing_yet(size: int) -> None:
    frame = encode_frame(Disposition(role=True, first=2**31, last=2**31, settled=True))
    check_disposition(memoryview(frame[HEAD_BYTES : HEAD_BYTES + size]), 8)


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        (b"\x45", "incoming-window"),
        (b"\xc0\x05\x04\x40\x40\x43\x43", "incoming-window"),
        (b"\xc0\x06\x04\x52\x40\x43\x40\x43", "next-outgoing-id"),
        (b"\xc0\x05\x04\x43\x43\x43\x40", "outgoing-window"),
        (b"\xc0\x04\x03\x43\x43\x43", "outgoing-window"),
        (b"\xd0\0\0\0\x08\0\0\0\x04\x43\x43\x43\x40", "outgoing-window"),
        (b"\xd0\0\0\0\x14\0\0\0\x04" + b"\x70\0\0\0\x01" * 3 + b"\x40", "outgoing-window"),
    ],
)
def test_a_flow_lacks_a_field(fields: bytes, missing: str) -> None:
    with pytest.raises(DecodeError, match=f"lacks its mandatory field {missing}"):
        check_flow(b"before" + FLOW + fields, 6, 6 + len(FLOW + fields))


@pytest.mark.parametrize(
    "fields",
    [
        b"\xc0\x05\x04\x40\x43\x43\x43",
        b"\xc0\x0b\x04\x40\x52\x40\x70\x40\x40\x40\x40\x52\x40",
        b"\xc0\x07\x06\x43\x43\x43\x43\x40\x40",
    ],
    ids=["without the first", "numbers that look like nulls", "nulls behind them"],
)
def test_a_flow_lacks_none(fields: bytes) -> None:
    check_flow(FLOW + fields + b"\x40", 0, len(FLOW + fields))
