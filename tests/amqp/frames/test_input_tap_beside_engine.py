"""The tap beside the real engine: any split of a stream gives the attaches that the engine reports."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.frames.frames import AMQP_HEADER, encode_frame
from penstock_amqp.frames.input_tap import InputTap, TappedAttach
from penstock_amqp.frames.performatives import Attach, Begin, Flow, Open, Performative, Source, Target, Transfer
from penstock_amqp.types.values import Symbol

importlib.import_module("cproton")  # initialises the engine
ffi: Any = importlib.import_module("cproton_ffi").ffi  # it has no type information
lib: Any = importlib.import_module("cproton_ffi").lib


class Engine:
    """A real transport with a tap, fed in chunks as the loop feeds it."""

    def __init__(self, max_frame: int = 0) -> None:
        self.transport: Any = lib.pn_transport()
        self.connection: Any = lib.pn_connection()
        self.collector: Any = lib.pn_collector()
        lib.pn_transport_set_server(self.transport)
        lib.pn_transport_require_auth(self.transport, False)
        if max_frame:
            lib.pn_transport_set_max_frame(self.transport, max_frame)
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_transport_bind(self.transport, self.connection)
        self.tap = InputTap(lib.pn_transport_capacity(self.transport))

    def feed(self, data: bytes) -> Iterator[tuple[TappedAttach, tuple[str | None, int]]]:
        while data:
            room = lib.pn_transport_capacity(self.transport)
            assert room > 0, "the engine refused the stream"
            taken = lib.pn_transport_push(self.transport, data[:room], min(room, len(data)))
            chunk, data = data[:taken], data[taken:]
            self.tap.pushed(chunk, lib.pn_transport_capacity(self.transport))
            yield from self.events()

    def events(self) -> Iterator[tuple[TappedAttach, tuple[str | None, int]]]:
        while event := lib.pn_collector_peek(self.collector):
            kind = lib.pn_event_type(event)
            if kind == lib.PN_CONNECTION_REMOTE_OPEN:
                lib.pn_connection_open(self.connection)
            elif kind == lib.PN_SESSION_REMOTE_OPEN:
                lib.pn_session_set_incoming_capacity(lib.pn_event_session(event), 1 << 24)
                lib.pn_session_open(lib.pn_event_session(event))
            elif kind == lib.PN_LINK_REMOTE_OPEN:
                yield self.attached(lib.pn_event_link(event))
            lib.pn_collector_pop(self.collector)
        lib.pn_transport_pop(self.transport, max(lib.pn_transport_pending(self.transport), 0))

    def attached(self, link: Any) -> tuple[TappedAttach, tuple[str | None, int]]:
        source = lib.pn_link_remote_source(link)
        address = lib.pn_terminus_get_address(source)
        shown = None if address == ffi.NULL else ffi.string(address).decode()
        tapped_attach = self.tap.take_attach(ffi.string(lib.pn_link_name(link)).decode())
        lib.pn_link_open(link)
        if lib.pn_link_is_receiver(link):
            lib.pn_link_flow(link, 1000)
        return tapped_attach, (shown, lib.pn_terminus_get_durability(source))

    def free(self) -> None:
        lib.pn_transport_unbind(self.transport)
        lib.pn_collector_release(self.collector)
        lib.pn_connection_release(self.connection)
        lib.pn_decref(self.connection)
        lib.pn_decref(self.transport)
        lib.pn_collector_free(self.collector)


OPENING: list[Performative] = [
    Open(container_id="c", max_frame_size=65_536),
    Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000),
]


def attach_of(number: int, padding: int) -> Attach:
    source = Source(address=f"t{number}", durable=number % 3, filter={Symbol("f"): "x" * padding})
    return Attach(name=f"link-{number}", handle=number, role=True, source=source)


def sender(handle: int) -> Attach:
    return Attach(name="publisher", handle=handle, role=False, target=Target(address="t"), initial_delivery_count=0)


streams = st.lists(
    st.one_of(
        st.integers(0, 12_000).map(lambda size: ("attach", size)),
        st.integers(0, 12_000).map(lambda size: ("transfer", size)),
        st.just(("heartbeat", 0)),
        st.just(("echo", 0)),
    ),
    max_size=12,
)


def assemble(parts: list[tuple[str, int]]) -> tuple[bytes, bytes, list[Attach]]:
    """Return an opening, which the engine must have answered before transfers may come, the rest, and its attaches."""
    attaches: list[Attach] = [sender(500)]
    opening = AMQP_HEADER + b"".join(encode_frame(body) for body in [*OPENING, *attaches])
    data = b""
    transfers = 0
    for kind, size in parts:
        match kind:
            case "attach":
                attaches.append(attach_of(len(attaches), size))
                data += encode_frame(attaches[-1], 0)
            case "transfer":
                head = Transfer(handle=500, delivery_id=transfers, delivery_tag=b"%d" % transfers, settled=True)
                data += encode_frame(head, 0, b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + b"\x12" * size)
                transfers += 1
            case "echo":
                data += encode_frame(
                    Flow(
                        next_incoming_id=0, incoming_window=9, next_outgoing_id=transfers, outgoing_window=9, echo=True
                    )
                )
            case _:
                data += encode_frame(None)
    return opening, data, attaches


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    at = turn = 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        yield data[at : at + size]
        at, turn = at + size, turn + 1


@given(streams, st.lists(st.integers(1, 9_000), min_size=1, max_size=30), st.sampled_from([0, 16_384, 65_536]))
def test_any_split_of_a_stream_gives_the_attaches_that_the_engine_reports(
    parts: list[tuple[str, int]], cuts: list[int], max_frame: int
) -> None:
    opening, rest, attaches = assemble(parts)
    engine = Engine(max_frame)
    seen: list[Attach] = []
    for piece in [*pieces(opening, cuts), *pieces(rest, cuts)]:
        for tapped_attach, (address, durability) in engine.feed(piece):
            seen.append(tapped_attach.attach)
            source = tapped_attach.attach.source or Source()
            assert (source.address, source.durable or 0) == (address, durability)
    engine.free()
    assert seen == attaches


@pytest.mark.parametrize("size", [1, 7, 8191, 8192, 8193, 16_384, 20_000, 32_768])
def test_frames_that_make_the_engine_s_buffer_grow_keep_the_tap_aligned(size: int) -> None:
    opening, rest, attaches = assemble([("attach", 8100), ("attach", 30_000), ("attach", 3), ("attach", 8000)])
    engine = Engine(65_536)
    seen = [each.attach for piece in pieces(opening + rest, [size]) for each, _ in engine.feed(piece)]
    engine.free()
    assert seen == attaches
