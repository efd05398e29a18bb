"""The compiled engine and the one in Python see the same in the same bytes, wherever these are cut."""

from __future__ import annotations

import errno
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native.watched_endpoint import MAX_FRAME, MAX_MESSAGE, WatchedEndpoint

import penstock_native
from penstock_amqp.endpoint import buffers
from penstock_amqp.endpoint.buffers import Buffer
from penstock_amqp.endpoint.endpoint import Endpoint
from penstock_amqp.endpoint.engine import Pushed, SocketEngine
from penstock_amqp.endpoint.events import DATA, Event, EventKind
from penstock_amqp.endpoint.input import UNBOUNDED
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.endpoint.proton.compiled_engine import CompiledEngine
from penstock_amqp.endpoint.proton.connection import ProtonConnection
from penstock_amqp.endpoint.proton.engine import ProtonEngine
from penstock_amqp.frames.frames import AMQP_HEADER, encode_frame
from penstock_amqp.frames.input_tap import InputTap
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Symbol

pytestmark = pytest.mark.skipif(penstock_native.proton is None, reason="the engine in Python was chosen")

SENDERS, SECOND_SENDER, RECEIVERS, SECOND_RECEIVER, PRESETTLED_RECEIVER = (0, 1), 1, (10, 11, 12), 11, 12
PIECES = 6
"""Pieces after which the input is read in long ones (`input.PIECE_BYTES`)."""


class CountingEngine(CompiledEngine):
    """Knows how much it took in compiled batches."""

    __slots__ = ("counted",)

    def pushed(self, told: Any, start: int, tap: InputTap, out: list[Event]) -> Pushed:
        taken = super().pushed(told, start, tap, out)
        self._count(taken[0])
        return taken

    def read_plain(self, fd: int | None, most: int, tap: InputTap, out: list[Event]) -> int | tuple[int, Any]:
        read = super().read_plain(fd, most, tap, out)
        if isinstance(read, int):
            self._count(read)
        return read

    def _count(self, size: int) -> None:
        self.counted = getattr(self, "counted", 0) + size


class LevelEngine(ProtonEngine):
    """Gives proton pieces that are as long as those of compiled code, which never fill its buffer: how much is answered
    before an error, and which window a flow tells, depends on the pieces.
    """

    __slots__ = ()

    def __init__(self, connection: ProtonConnection) -> None:
        super().__init__(connection)
        room, push = self.room, self.push

        def push_less(data: Buffer | bytes, size: int) -> int:
            return push(data, min(size, room() - 1) or size)

        self.push = partial(push_less)


class Peer:
    """Writes the frames of one client, with the numbers that they need."""

    def __init__(self) -> None:
        self._next_id = 0

    def opening(self) -> bytes:
        """Up to links that have carried some messages, so that the next are plain."""
        frames = AMQP_HEADER + encode_frame(Open(container_id="c", max_frame_size=MAX_FRAME)) + self.begin(0)
        frames += b"".join(self.attach(handle) for handle in (*SENDERS, *RECEIVERS))
        return frames

    def begin(self, channel: int) -> bytes:
        return encode_frame(Begin(next_outgoing_id=0, incoming_window=2**20, outgoing_window=2**20), channel)

    def attach(self, handle: int, *, name: str = "", channel: int = 0) -> bytes:
        is_receiver = handle >= 10
        attach = Attach(
            name=name or f"link {handle}",
            handle=handle,
            role=is_receiver,
            snd_settle_mode=1 if handle == PRESETTLED_RECEIVER else 2,
            rcv_settle_mode=int(handle in (SECOND_SENDER, SECOND_RECEIVER)),
            source=Source(address="q"),
            target=Target(address="t"),
            initial_delivery_count=None if is_receiver else 0,
        )
        return encode_frame(attach, channel)

    def transfer(
        self, handle: int, size: int, *, settled: bool = False, parts: int = 1, aborted: bool = False
    ) -> bytes:
        payload = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size)
        step = max(len(payload) // parts + 1, 1)
        pieces = [payload[at : at + step] for at in range(0, len(payload), step)]
        frames = b""
        for at, piece in enumerate(pieces):
            first, last = at == 0, at == len(pieces) - 1
            head = Transfer(
                handle=handle,
                delivery_id=self._next_id if first else None,
                delivery_tag=b"%d" % self._next_id if first else None,
                message_format=0 if first else None,
                settled=settled if first else None,
                more=not last,
                aborted=(aborted and last) or None,
            )
            frames += encode_frame(head, 0, b"" if aborted and last else piece)
        self._next_id += 1
        return frames

    def flow(
        self, handle: int | None, credit: int, *, echo: bool = False, drain: bool = False, window: int = 2**20
    ) -> bytes:
        """`window`: how many transfers in all the session takes."""
        return encode_frame(
            Flow(
                next_incoming_id=0,
                incoming_window=window,
                next_outgoing_id=self._next_id,
                outgoing_window=2**20,
                handle=handle,
                delivery_count=None if handle is None else 0,
                link_credit=None if handle is None else credit,
                drain=drain or None,
                echo=echo or None,
            )
        )


STATES: tuple[Composite | None, ...] = (
    Accepted(),
    Accepted(),
    Accepted(),
    Released(),
    Rejected(error=Error(condition=Symbol("x:bad"))),
    Modified(delivery_failed=True, undeliverable_here=True, message_annotations={Symbol("x-opt-a"): 1}),
    Received(section_number=0, section_offset=0),
    None,
)


def disposition(first: int, count: int, state: int, *, settled: bool, role: bool = True) -> bytes:
    return encode_frame(
        Disposition(role=role, first=first, last=first + count, settled=settled, state=STATES[state % len(STATES)])
    )


Step = tuple[str, int, int, int, bool]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["transfer"] * 6
            + ["accepted"] * 3
            + ["disposition", "flow", "flow", "window", "echo", "parts", "aborted", "second", "heartbeat", "many"]
            + ["large", "attach", "long attach", "detach", "begin", "end", "malformed", "cut frame", "close", "unknown"]
        ),
        st.integers(0, 255),
        st.integers(0, 12),
        st.sampled_from([0, 1, 10, 300, 3000]),
        st.booleans(),
    ),
    max_size=40,
)


def frames_of(peer: Peer, step: Step) -> bytes:
    kind, one, two, size, flag = step
    sender, receiver = SENDERS[one % 2], RECEIVERS[one % 3]
    match kind:
        case "transfer":
            return peer.transfer(sender, size, settled=flag)
        case "many":
            return b"".join(peer.transfer(SENDERS[at * flag % 2], size % 100) for at in range(one))
        case "parts":
            return peer.transfer(sender, 10 * size, settled=flag, parts=2 + two)
        case "large":
            return peer.transfer(sender, (9000, 16_000, 30_000, MAX_MESSAGE + 1)[one % 4], parts=1 + 4 * (one % 4 > 1))
        case "aborted":
            return peer.transfer(sender, size, parts=1 + two, aborted=True)
        case "accepted":
            return disposition(one % 40, two, 0, settled=True)
        case "disposition":
            return disposition(one % 40, two, one, settled=flag)
        case "second":
            return disposition(one % 40, two, 0, settled=flag, role=False)
        case "flow":
            return peer.flow(receiver, one, drain=flag and two > 8)
        case "window":
            return peer.flow(receiver if flag else None, one, window=24 + one * two)
        case "echo":
            return peer.flow(receiver if flag else None, one, echo=True)
        case "heartbeat":
            return encode_frame(None)
        case "attach":
            return peer.attach(20 + one if flag else 2 + two, name="again" if two > 9 else f"new {one}")
        case "long attach":
            return peer.attach(30 + two, name="n" * (8000 + 20 * one))
        case "detach":
            return encode_frame(Detach(handle=receiver if flag else sender, closed=two > 5))
        case "begin":
            return peer.begin(1 + two)
        case "end":
            return encode_frame(End(), two % 3)
        case "unknown":
            return peer.transfer(200 + two, size)
        case "cut frame":
            return peer.transfer(sender, size)[: -1 - one % 20]
        case "close":
            return encode_frame(Close())
        case _:
            return bytes((0, 0, 0, one, two, 0, 0, 0)) + b"\x00\x53\x14" + bytes((one, two, size % 256)) * 3


Ends = tuple[WatchedEndpoint, WatchedEndpoint, WatchedEndpoint]


@contextmanager
def all_ends() -> Generator[Ends]:
    """The one in Python, the compiled one, and the compiled one that reads and writes a socket itself."""
    ends = (
        WatchedEndpoint(LevelEngine),
        WatchedEndpoint(CountingEngine),
        WatchedEndpoint(CompiledEngine, over_socket=True),
    )
    try:
        yield ends
    finally:
        for end in ends:
            end.free()


def agree(ends: Ends, data: bytes) -> None:
    """All get the bytes, and have to note the same.

    Where proton fails at what came, all have to end with an error. What is held of a long frame when that happens
    depends on the pieces that proton gets, and those are not the same behind a message in parts.
    """
    told = ends[0].feed(data)
    for end in ends[1:]:
        noted = end.feed(data)
        if ends[0].has_broken_off:
            assert end.has_broken_off, noted
        else:
            assert noted == told


def warmed(ends: Ends) -> Peer:
    """All have open links that were used."""
    peer = Peer()
    agree(ends, peer.opening())
    for _ in range(PIECES):
        agree(ends, b"".join(peer.transfer(handle, 3) for handle in SENDERS))
    for handle in RECEIVERS:
        agree(ends, peer.flow(handle, 12))
    assert len(ends[0].engine.unsettled) == 24
    return peer


@settings(max_examples=150)
@given(steps, st.lists(st.integers(1, 20_000) | st.integers(1, 30), min_size=1, max_size=12))
def test_the_same_bytes_are_the_same_events(program: list[Step], cuts: list[int]) -> None:
    with all_ends() as ends:
        peer = warmed(ends)
        kinds = [step[0] for step in program]
        if "close" in kinds:  # proton fails at what stands behind a Close
            program = program[: kinds.index("close") + 1]
        data = b"".join(frames_of(peer, step) for step in program)
        at = piece = 0
        while at < len(data):
            size = cuts[piece % len(cuts)] if piece < 400 else len(data)
            agree(ends, data[at : at + size])
            at, piece = at + size, piece + 1


@pytest.mark.parametrize("size", [0, 3, 20_000])
def test_a_transfer_from_a_receiver_ends_the_connection(size: int) -> None:
    with all_ends() as ends:
        peer = warmed(ends)
        agree(ends, peer.transfer(RECEIVERS[0], size))
        assert ends[0].has_broken_off


@pytest.mark.parametrize("credit", [1, 20, 90, 200])
def test_messages_wait_while_the_window_of_their_session_is_shut(credit: int) -> None:
    """What the two engines write is the same, also of messages of which proton has no byte."""
    with all_ends() as ends:
        peer = warmed(ends)
        for window in (24, 24, 25, 28, 28, 60, 61, 400, 2**20):
            for handle in RECEIVERS:
                agree(ends, peer.flow(handle, 12 + credit, window=window))


def test_bodies_are_kept_until_they_are_written_and_no_others_beside_them() -> None:
    """The window takes 12 messages, in 14 frames. Of the next 40, proton has no byte of those from 256 bytes to a
    frame; as it still holds them, it gets 40 more as a whole, and so knows how much is held back.
    """
    end, peer = WatchedEndpoint(CompiledEngine), Peer()
    engine = end.engine
    assert isinstance(engine, CompiledEngine)
    bodies = engine._bodies  # pyright: ignore[reportPrivateUsage]
    end.feed(peer.opening() + peer.flow(10, 12, window=14))
    assert not bodies
    for credit in (52, 92):
        end.feed(peer.flow(10, credit, window=14))
        waiting = [held[1][DATA] for held in engine.unsettled.values()][12:]
        kept = [data for data in waiting[:40] if 256 <= len(data) <= 16_000]
        assert len(waiting) == credit - 12
        assert len(kept) == 17
        assert [body for body in bodies[2:] if body is not None] == kept
        held_back = sum(map(len, waiting)) - sum(map(len, kept))
        link = next(iter(engine.unsettled.values()))[0]
        assert end.endpoint.is_congested(link, held_back - 1)
        assert not end.endpoint.is_congested(link, held_back)
    end.feed(peer.flow(None, 0))
    assert not bodies
    assert not end.endpoint.is_congested(link, 0)
    end.free()


def test_an_engine_that_is_freed_keeps_no_message() -> None:
    end, peer = WatchedEndpoint(CompiledEngine), Peer()
    engine = end.engine
    assert isinstance(engine, CompiledEngine)
    bodies = engine._bodies  # pyright: ignore[reportPrivateUsage]
    end.feed(peer.opening() + peer.flow(10, 52, window=14))
    assert any(body is not None for body in bodies[2:])
    end.free()
    assert not bodies


@pytest.mark.parametrize("longest", [65_528, 65_536, 300_000])
def test_more_is_written_than_a_buffer_holds(longest: int) -> None:
    """Frames that are longer than the whole buffer, or come where it ends, beside short ones and bare ones."""
    with all_ends() as ends:
        peer = Peer()
        opening = AMQP_HEADER + encode_frame(Open(container_id="c", max_frame_size=2**20)) + peer.begin(0)
        agree(ends, opening + peer.attach(10) + peer.attach(12))
        sizes = (1, 65_000, longest, 300) * 9
        entries = [(number, bytes((number,)) * size, 0, 0, 0) for number, size in enumerate(sizes)]
        for end in ends:
            for link in end.endpoint.all_links():
                assert isinstance(link, OutLink)
                end.endpoint.send(link, entries, 1)
        agree(ends, peer.flow(10, 72) + peer.flow(12, 72))
        assert sum(len(entry[1]) for entry in entries) * 2 < len(ends[1].notes[-1][0])


def plain(peer: Peer) -> bytes:
    """Plain frames of all kinds, which the compiled engine takes alone."""
    return (
        peer.transfer(0, 10)
        + peer.transfer(1, 10)
        + disposition(0, 3, 0, settled=True)
        + peer.transfer(0, 0, settled=True)
        + peer.flow(10, 30, echo=True)
        + peer.transfer(0, 40, parts=3)
        + peer.transfer(0, 40, parts=2, aborted=True)
        + disposition(12, 1, 0, settled=False)
        + peer.transfer(0, 40)
    )


def test_a_frame_may_be_cut_at_every_byte() -> None:
    with all_ends() as ends:
        peer = warmed(ends)
        length = len(plain(Peer()))
        for cut in range(1, length):
            data = plain(peer)
            agree(ends, data[:cut])
            agree(ends, data[cut:])


def test_bytes_may_come_one_by_one() -> None:
    with all_ends() as ends:
        peer = warmed(ends)
        for byte in plain(peer) + peer.attach(3) + peer.transfer(0, 300) + encode_frame(Detach(handle=3, closed=True)):
            agree(ends, bytes((byte,)))


def test_plain_input_is_taken_by_the_compiled_engine_and_an_attach_behind_it_is_not() -> None:
    with all_ends() as ends:
        peer = warmed(ends)
        compiled = ends[1].engine
        assert isinstance(compiled, CountingEngine)
        before = compiled.counted
        data = b"".join(peer.transfer(0, 100) for _ in range(300))
        agree(ends, data)
        assert compiled.counted - before == len(data)
        agree(ends, peer.transfer(0, 9) + peer.attach(3) + peer.transfer(0, 9))
        assert ("messages", "link 0", [(b"\x00\x53\x75\xb0\x00\x00\x00\x09" + bytes(9), False)]) in ends[1].notes
        assert any(note[0] == "attached" for note in ends[1].notes)


def test_what_is_plain_and_whole_is_read_from_a_socket_at_once() -> None:
    with all_ends() as ends:
        peer = warmed(ends)
        before = ends[2].read_quietly
        data = peer.transfer(0, 100) + disposition(0, 3, 0, settled=True) + peer.transfer(1, 3000)
        agree(ends, data)
        assert ends[2].read_quietly - before == len(data)


def test_a_flow_of_a_session_is_answered_although_proton_says_nothing_of_it() -> None:
    """Alone, and behind messages."""
    with all_ends() as ends:
        peer = warmed(ends)
        for before in (b"", peer.transfer(0, 100)):
            agree(ends, before + peer.flow(None, 0, echo=True))
        assert [len(end.endpoint.flows.owed) for end in ends] == [2, 2, 2]


@contextmanager
def silent_end(monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[Endpoint, SocketEngine, OutLink]]:
    """An endpoint that was used, and sends nothing by itself, with a link that has credit."""

    def nothing(_end: WatchedEndpoint, _link: OutLink) -> None:
        pass

    monkeypatch.setattr(WatchedEndpoint, "_send", nothing)
    end, peer = WatchedEndpoint(CompiledEngine), Peer()
    end.feed(peer.opening())
    for _ in range(PIECES):
        end.feed(peer.transfer(0, 3))
    end.feed(peer.flow(12, 400))
    sockets = end.endpoint.sockets
    link = next(each for each in end.endpoint.all_links() if each.name == "link 12")
    assert sockets is not None
    assert isinstance(link, OutLink)
    yield end.endpoint, sockets, link
    end.free()


def test_what_a_socket_does_not_take_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """First it takes a part, then nothing, then its peer is gone."""
    with silent_end(monkeypatch) as (endpoint, sockets, link), ExitStack() as stack:
        ours, theirs = map(stack.enter_context, socket.socketpair())
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        ours.setblocking(False)
        endpoint.send(link, [(number, bytes(10_000), 0, 0, 0) for number in range(12)], 1)
        size, sent = sockets.send_output(ours.fileno()) or (0, 0)
        assert 120_000 < size <= buffers.OUTPUT_BYTES // 2
        assert 0 < sent < size
        assert theirs.recv(1 << 20) == buffers.OUTPUT_VIEW[:sent]
        with suppress(BlockingIOError):
            while True:
                ours.send(bytes(8192))
        endpoint.send(link, [(13, b"x", 0, 0, 0)], 1)
        size, sent = sockets.send_output(ours.fileno()) or (0, 0)
        assert size > 0
        assert sent == -errno.EAGAIN
        theirs.close()
        endpoint.send(link, [(14, b"x", 0, 0, 0)], 1)
        assert sockets.send_output(ours.fileno()) == (size, -errno.EPIPE)


def test_what_one_socket_of_several_does_not_take_is_told_before_the_next_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first takes all; what the second does not take is in the buffer; nothing was done for the third."""
    with ExitStack() as stack:
        ends = [stack.enter_context(silent_end(monkeypatch)) for _ in range(3)]
        pairs = [tuple(map(stack.enter_context, socket.socketpair())) for _ in range(3)]
        lines = [sockets.line(ours.fileno()) for (_, sockets, _), (ours, _) in zip(ends, pairs, strict=True)]
        pairs[1][0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        for at, (endpoint, _, link) in enumerate(ends):
            endpoint.send(link, [(number, bytes([at + 65]) * 10_000, 0, 0, 0) for number in range(12)], 1)
        for ours, _ in pairs:
            ours.setblocking(False)
        at, (size, sent) = ends[0][1].send_outputs(lines) or (0, (0, 0))
        assert at == 1
        assert 0 < sent < size
        assert pairs[1][1].recv(1 << 20) == buffers.OUTPUT_VIEW[:sent]
        assert pairs[0][1].recv(1 << 20).count(b"A") > 100_000
        with pytest.raises(BlockingIOError):
            pairs[2][1].recv(1, socket.MSG_DONTWAIT)
        assert ends[0][1].send_outputs(lines[2:]) is None
        assert pairs[2][1].recv(1 << 20).count(b"C") > 100_000


def test_several_sockets_are_read_up_to_the_first_that_brings_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message, and a message; an attach; a message that is left in its socket."""
    with ExitStack() as stack:
        ends = [stack.enter_context(silent_end(monkeypatch)) for _ in range(4)]
        pairs = [tuple(map(stack.enter_context, socket.socketpair())) for _ in range(4)]
        lines = [sockets.line(ours.fileno()) for (_, sockets, _), (ours, _) in zip(ends, pairs, strict=True)]
        peer = Peer()
        peer.opening()
        for _ in range(PIECES):
            peer.transfer(0, 3)
        message, attach = peer.transfer(0, 5), peer.attach(3)
        for (_, theirs), data in zip(pairs, (message, message, attach, message), strict=True):
            theirs.send(data)
        came: list[list[Event]] = []
        sockets = ends[0][1]
        read = sockets.read_together(lines, 1000, 8192, came)
        assert [[event[0] for event in each] for each in came] == [[EventKind.MESSAGES], [EventKind.MESSAGES], []]
        assert read == (len(attach), None)
        came.clear()
        assert sockets.read_together(lines[3:], 1000, 8192, came) is None
        assert len(came) == 1
        again = peer.transfer(0, 5)
        pairs[0][1].send(again)
        came.clear()
        assert sockets.read_together(lines[:2], 1000, len(again), came) == len(again)  # so many are not light
        assert len(came) == 1
        came.clear()
        wrong: Any = (*lines[1][:1], None, *lines[1][2:])
        pairs[0][1].send(peer.transfer(0, 5))
        with pytest.raises(TypeError):
            sockets.read_together([lines[0], wrong, lines[2]], 1000, 8192, came)
        assert [len(each) for each in came] == [1, 0]  # the exception is of the last one


def test_output_that_fills_more_than_half_of_the_buffer_may_not_be_all(monkeypatch: pytest.MonkeyPatch) -> None:
    half = buffers.OUTPUT_BYTES // 2
    with silent_end(monkeypatch) as (endpoint, sockets, link), ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        ours = stack.enter_context(socket.socket())
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        ours.connect(server.getsockname())
        endpoint.send(link, [(number, bytes(1000), 0, 0, 0) for number in range(half // 1000 + 2)], 1)
        size, sent = sockets.send_output(ours.fileno()) or (0, 0)
        assert size == sent > half
        assert sockets.send_output(ours.fileno()) is None


def test_an_engine_that_has_failed_tells_it_with_its_last_output(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_end(monkeypatch) as (endpoint, sockets, _), ExitStack() as stack:
        ours, theirs = map(stack.enter_context, socket.socketpair())
        theirs.send(b"\x00\x00\x00\x08\x09\x00\x00\x00")  # a frame of no known type
        ours.setblocking(False)
        assert endpoint.input.is_quiet
        events: list[Event] = []
        read = sockets.read_plain(ours.fileno(), 100, endpoint.input.tap, events)
        assert endpoint.input.go_on(read, events, UNBOUNDED) == 8
        assert not endpoint.input.is_quiet
        assert [event[2].__class__.__name__ for event in events] == ["ConnectionClosed"]
        size, sent = sockets.send_output(ours.fileno()) or (0, 0)
        assert size == sent > 0
        assert endpoint.engine.has_failed
        assert b"\x00\x53\x18" in theirs.recv(1000)


@pytest.mark.parametrize("size", [8000, 8192, 9000, 16_000, 16_300, 16_384, 20_000, MAX_MESSAGE, MAX_MESSAGE + 1])
def test_frames_and_messages_of_any_length(size: int) -> None:
    with all_ends() as ends:
        peer = warmed(ends)
        for step in (100_000, 8192, 8191, 1000):
            data = peer.transfer(0, 1) + peer.transfer(1, size, parts=1 + size // 16_300) + peer.transfer(0, 2)
            for at in range(0, len(data), step):
                agree(ends, data[at : at + step])


@pytest.mark.parametrize("count", [1, 3, 50, 3000])
def test_what_the_peer_accepts_while_its_link_is_withdrawn(count: int) -> None:
    """All these stand aside when the one disposition for them comes."""
    with all_ends() as ends:
        peer = warmed(ends)
        while len(ends[0].engine.unsettled) < count:
            agree(ends, peer.flow(10, count + 12))
        agree(ends, encode_frame(Detach(handle=11, closed=True)))
        agree(ends, disposition(0, count + 40, 0, settled=True))
        for _ in range(count // 3 + 20):
            agree(ends, encode_frame(None))
        assert not ends[1].engine.aside
