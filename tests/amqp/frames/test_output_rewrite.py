"""What is changed in outgoing attaches, and what stays byte for byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.frames import AMQP_HEADER, encode_frame
from penstock_amqp.frames.output_rewrite import rewrite_frames
from penstock_amqp.frames.performatives import Attach, Begin, Close, End, Modified, Open, Performative, Source, Target
from penstock_amqp.types.values import Symbol

SHARED_SUBS = Symbol("SHARED-SUBS")

# An attach as a sender answers it: name "s", handle 0, role sender, source with the address "t", a target, count 0.
DRAWN_ATTACH = bytes.fromhex(
    "00000025 02 00 0003 005312 c0 18 0a a1 01 73 43 42 40 40 005328 c0 04 01 a1 01 74 005329 45 40 40 43"
)
# The same with field 10 (max-message-size) absent and field 11, offered-capabilities, an array of one symbol.
DRAWN_OFFERING = bytes.fromhex(
    "00000036 02 00 0003 005312 c0 29 0c a1 01 73 43 42 40 40 005328 c0 04 01 a1 01 74 005329 45 40 40 43"
    "40 e0 0e 01 a3 0b 5348415245442d53554253"
)
OPEN = encode_frame(Open(container_id="broker"))
BEGIN = encode_frame(Begin(remote_channel=0, next_outgoing_id=0, incoming_window=1, outgoing_window=1), 3)


ATTACHES = (Attach.CODE,)


def offer(channel: int, attach: Performative) -> list[tuple[int, Performative]] | None:
    assert isinstance(attach, Attach)
    return None if attach.role else [(channel, replace(attach, offered_capabilities=(SHARED_SUBS,)))]


def test_an_offered_capability_is_added_to_the_drawn_frame() -> None:
    assert rewrite_frames(DRAWN_ATTACH, ATTACHES, offer, 65_536) == DRAWN_OFFERING


def test_what_is_no_attach_stays_byte_for_byte() -> None:
    receiver = encode_frame(Attach(name="r", handle=1, role=True, target=Target(address="x")), 3)
    before = AMQP_HEADER + OPEN + BEGIN + encode_frame(None)
    data = before + DRAWN_ATTACH + receiver + DRAWN_ATTACH
    assert rewrite_frames(data, ATTACHES, offer, 65_536) == before + DRAWN_OFFERING + receiver + DRAWN_OFFERING


def test_the_source_gets_a_default_outcome() -> None:
    def decide(channel: int, attach: Performative) -> list[tuple[int, Performative]]:
        assert channel == 3
        assert isinstance(attach, Attach)
        assert attach.source is not None
        source = replace(attach.source, default_outcome=Modified(delivery_failed=True))
        return [(channel, replace(attach, source=source))]

    expected = Attach(
        name="s",
        handle=0,
        role=False,
        source=Source(address="t", default_outcome=Modified(delivery_failed=True)),
        target=Target(),
        initial_delivery_count=0,
    )
    assert rewrite_frames(DRAWN_ATTACH, ATTACHES, decide, 65_536) == encode_frame(expected, 3)


def test_an_attach_loses_its_offer_when_the_peer_could_not_take_it() -> None:
    limit = len(DRAWN_OFFERING)
    assert rewrite_frames(DRAWN_ATTACH, ATTACHES, offer, limit) == DRAWN_OFFERING
    assert rewrite_frames(DRAWN_ATTACH, ATTACHES, offer, limit - 1) == DRAWN_ATTACH


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_output_that_ends_within_a_frame_is_refused(cut: int) -> None:
    with pytest.raises(DecodeError):
        rewrite_frames(OPEN + DRAWN_ATTACH[:cut], ATTACHES, offer, 65_536)


def test_a_frame_can_become_several_or_none() -> None:
    def close(channel: int, performative: Performative) -> list[tuple[int, Performative]]:
        assert channel == 3
        return [(3, End()), (0, Close())] if isinstance(performative, Attach) else []

    data = OPEN + BEGIN + DRAWN_ATTACH
    expected = OPEN + encode_frame(End(), 3) + encode_frame(Close())
    assert rewrite_frames(data, (Attach.CODE, Begin.CODE), close, 65_536) == expected
