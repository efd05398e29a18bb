"""Valid frames mean the same however many of them come at once and wherever they are cut (AMQP 1.0 part 2, 2.3 and
2.4.1): what an endpoint is told when it gets them one by one, and is answered between them, it is told in any pieces.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native.watched_endpoint import MAX_FRAME, WatchedEndpoint

import penstock_native
from penstock_amqp.endpoint.input import PIECE_BYTES
from penstock_amqp.endpoint.proton.compiled_engine import CompiledEngine
from penstock_amqp.endpoint.proton.engine import ProtonEngine
from penstock_amqp.frames.frames import AMQP_HEADER, encode_frame
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)

ENGINES: list[type[ProtonEngine]] = [ProtonEngine] if penstock_native.proton is None else [ProtonEngine, CompiledEngine]
BEGIN = Begin(next_outgoing_id=0, incoming_window=2**20, outgoing_window=2**20)
CHANNELS = 3
PLAIN_AFTER = 6
"""Pieces after which the input is read in long ones, by compiled code if there is any (`input.PIECE_BYTES`)."""
TRAPS = (
    b"",
    b"text",
    b"\x00" * 40,
    b"\x00\x53\x11" * 7,
    b"\x00\x53\x12\xc0\x00\x53\x12",
    encode_frame(BEGIN) + encode_frame(Attach(name="0", handle=1, role=False)),
    b"\x00\x00\x00\x0b\x02\x00\x00\x00\x00\x53\x15" * 300,
)
"""Payloads, some of which look like frames."""


class Sender:
    """A client that writes valid frames: its sessions, and the links on them, which may be namesakes."""

    def __init__(self) -> None:
        self._links: dict[int, list[int]] = {}
        """The handles in use, by channel."""
        self._sent: dict[int, int] = {}

    def opening(self) -> list[bytes]:
        opened = AMQP_HEADER + encode_frame(Open(container_id="c", max_frame_size=MAX_FRAME))
        return [opened, *self.begin(0), *self.attach(0, 0), *(self.transfer(0, 0, 1)[0] for _ in range(PLAIN_AFTER))]

    def begin(self, channel: int) -> list[bytes]:
        """A session, in the place of the one on this channel."""
        ended = [encode_frame(End(), channel)] if channel in self._links else []
        self._links[channel], self._sent[channel] = [], 0
        return [*ended, encode_frame(BEGIN, channel)]

    def attach(self, channel: int, name: int) -> list[bytes]:
        handle = next(free for free in range(1000) if free not in self._links[channel])
        self._links[channel].append(handle)
        attach = Attach(
            name=str(name),
            handle=handle,
            role=False,
            source=Source(),
            target=Target(address="t"),
            initial_delivery_count=0,
        )
        return [encode_frame(attach, channel)]

    def transfer(self, channel: int, link: int, trap: int, *, in_parts: bool = False) -> list[bytes]:
        handles = self._links[channel]
        if not handles:
            return []
        number = self._sent[channel]
        self._sent[channel] += 1
        payload = b"\x00\x53\x75\xb0" + len(TRAPS[trap]).to_bytes(4) + TRAPS[trap]
        cut = len(payload) // 2 if in_parts else len(payload)
        handle = handles[link % len(handles)]
        first = Transfer(handle=handle, delivery_id=number, delivery_tag=b"%d" % number, more=in_parts or None)
        frames = [encode_frame(first, channel, payload[:cut])]
        if in_parts:
            frames.append(encode_frame(Transfer(handle=handle), channel, payload[cut:]))
        return frames

    def detach(self, channel: int, link: int) -> list[bytes]:
        handles = self._links[channel]
        return [encode_frame(Detach(handle=handles.pop(link % len(handles)), closed=True), channel)] if handles else []

    def frames(self, kind: str, channel: int, one: int) -> list[bytes]:
        if channel not in self._links or kind == "begin":
            return self.begin(channel)
        match kind:
            case "attach":
                return self.attach(channel, one % 3)
            case "transfer" | "parts":
                return self.transfer(channel, one, one % len(TRAPS), in_parts=kind == "parts")
            case "detach":
                return self.detach(channel, one)
            case "flow":
                sent = self._sent[channel]
                flow = Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=sent, outgoing_window=9)
                return [encode_frame(flow, channel)]
            case "disposition":
                return [encode_frame(Disposition(role=True, first=one, settled=True, state=Accepted()), channel)]
            case _:
                return [encode_frame(None)]


def told(notes: list[Any]) -> list[Any]:
    """What the peer did, without how it was grouped and answered."""
    facts: list[Any] = []
    for note in notes:
        match note:
            case ("messages", name, messages):
                facts += [("message", name, bytes(data), settled) for data, settled in messages]
            case ("attached" | "detached" | "ended" | "closed", *_):
                facts.append(note)
            case _:
                pass
    return facts


KINDS = ["transfer"] * 4 + ["attach"] * 3 + ["begin", "parts", "detach", "flow", "flow", "disposition", "heartbeat"]
programs = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, CHANNELS - 1), st.integers(0, 20)), max_size=30)


@pytest.mark.parametrize("kind", ENGINES)
@settings(max_examples=100)
@given(programs, st.lists(st.integers(1, 3000) | st.integers(1, 30), min_size=1, max_size=12))
def test_frames_mean_the_same_wherever_they_are_cut(
    kind: type[ProtonEngine], program: list[tuple[str, int, int]], cuts: list[int]
) -> None:
    sender = Sender()
    opening = sender.opening()
    frames = [frame for step in program for frame in sender.frames(*step)]
    one_by_one, in_pieces = WatchedEndpoint(kind), WatchedEndpoint(kind)
    try:
        for frame in opening:
            assert told(one_by_one.feed(frame)) == told(in_pieces.feed(frame))
        expected = [fact for frame in frames for fact in told(one_by_one.feed(frame))]
        assert not one_by_one.is_over, expected
        data, at, piece = b"".join(frames), 0, 0
        seen: list[Any] = []
        while at < len(data):
            size = cuts[piece % len(cuts)] if piece < 200 else len(data)
            seen += told(in_pieces.feed(data[at : at + size]))
            at, piece = at + size, piece + 1
        assert seen == expected
    finally:
        one_by_one.free()
        in_pieces.free()


@pytest.mark.parametrize("kind", ENGINES)
def test_a_namesake_behind_messages_may_be_cut_anywhere(kind: type[ProtonEngine]) -> None:
    """Also within the first bytes, which do not tell yet that it is an attach."""
    for cut in range(20):
        end = WatchedEndpoint(kind)
        try:
            peer = Sender()
            for frame in peer.opening():
                end.feed(frame)
            (before,), (attach,), (after,) = peer.transfer(0, 0, 1), peer.attach(0, 0), peer.transfer(0, 1, 1)
            seen = told(end.feed(before + attach[:cut])) + told(end.feed(attach[cut:] + after))
            assert [fact[:2] for fact in seen] == [("message", "0"), ("attached", "0"), ("message", "0")], cut
        finally:
            end.free()


@pytest.mark.parametrize("kind", ENGINES)
def test_a_namesake_may_begin_where_a_piece_ends(kind: type[ProtonEngine]) -> None:
    """Pieces are as long as what proton takes at a time, or a byte shorter."""
    for before in range(PIECE_BYTES - 13, PIECE_BYTES + 2):
        end = WatchedEndpoint(kind)
        try:
            peer = Sender()
            for frame in peer.opening():
                end.feed(frame)
            head = Transfer(handle=0, delivery_id=PLAIN_AFTER, delivery_tag=b"t")
            filling = encode_frame(head, 0, bytes(before - len(encode_frame(head))))
            (attach,) = peer.attach(0, 0)
            assert [fact[:2] for fact in told(end.feed(filling + attach))] == [("message", "0"), ("attached", "0")]
        finally:
            end.free()
