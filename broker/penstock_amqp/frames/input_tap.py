"""The frame tap: reads from a connection's input what the engine does not show, when the engine's events ask for it.

The engine (proton 0.40) does not show a link's desired capabilities, cannot tell a null source from a null address or
an absent expiry policy from session-end, ignores `echo`, and reads an absent mandatory field as 0. The tap keeps the
bytes of the frame that the engine holds in part, and inspects a chunk of input only if the engine raised an open, a
begin, an attach or a flow for that chunk, or a link is new. For other chunks it costs one call, 0.5 us.

How to use it, for every chunk and in this order:

    taken = push(transport, chunk)              # at most capacity bytes
    tap.pushed(chunk[:taken], capacity(transport))
    drain the events:
        on a remote open:   tap.open_channel()
        on a remote begin:  tap.take_begin()
        on a remote attach: tap.take_attach(name of the link)
        on a flow:          tap.echoes()

Each begin and each attach frame makes one remote-open event, in the same order, so both are kept in queues; the name of
a link is compared as a check. Must not know the engine's functions or any rule. Source: AMQP 1.0 part 2, 2.3 and 2.7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from penstock_amqp.errors import DecodeError, ProtocolError, TapError
from penstock_amqp.frames.frames import AMQP_FRAME, HEAD_BYTES, performative_code, read_body, walk
from penstock_amqp.frames.mandatory_fields import check_flow, checked
from penstock_amqp.frames.performatives import Attach, Begin, Detach, Disposition, Flow, Open, Performative, Transfer
from penstock_amqp.types.composites import from_value
from penstock_amqp.types.decoder import decode
from penstock_amqp.types.values import Described, UInt, ULong, Value

__all__ = ["InputTap", "TappedAttach", "TappedBegin", "TappedFlow"]

_SIZE_BYTES = 4
"""Bytes of a frame's size, which it begins with."""

_PIECE_BYTES: Final = 4096
"""A shorter piece of a frame is joined with the next."""

_ECHO_FIELD = 9
"""Position of `echo` in a flow: a flow with fewer fields, as nearly all are, need not be decoded."""

_HANDLE_MAX_FIELD = 4
"""Position of `handle-max` in a begin."""

_STATE_FIELD = 7
"""Position of `state` in a transfer."""

_TRANSFER_BYTES = 32
"""About what is decoded of a transfer; its payload is not."""

_FLOW_START = bytes((0x00, 0x53, Flow.CODE))
_DISPOSITION_START: Final = bytes((0x00, 0x53, Disposition.CODE))

_CODE_BYTES: Final = 64
"""Within so many bytes of its beginning a frame has its descriptor, however that is written."""

_MANDATORY: Final[dict[int, type[Performative]]] = {each.CODE: each for each in (Open, Begin, Detach)}
"""Of these only the mandatory fields are checked: malformed properties must not prevent a client from connecting."""


@dataclass(frozen=True, slots=True)
class TappedAttach:
    """An attach as the peer sent it. (channel, attach.handle) names the link until it is detached."""

    channel: int
    attach: Attach


@dataclass(frozen=True, slots=True)
class TappedBegin:
    """A begin: its channel, and the highest handle that its sender takes (None: any)."""

    channel: int
    handle_max: int | None


@dataclass(frozen=True, slots=True)
class TappedFlow:
    """A flow as the peer sent it, on its channel; `flow.handle` is the one of its attach (None: the session alone)."""

    channel: int
    flow: Flow


class InputTap:
    """The input of one connection. All errors it raises are `WireError`: close this connection."""

    __slots__ = (
        "_attaches",
        "_begins",
        "_chunk",
        "_echoes",
        "_held",
        "_held_before",
        "_open_channel",
        "_transfers_taken",
        "_walked",
        "buffer_bytes",
        "decoded",
        "held",
        "is_current",
        "missing",
    )

    def __init__(self, capacity: int) -> None:
        """`capacity`: how many bytes the engine's transport can take before its first input."""
        self.buffer_bytes = capacity
        """How many bytes the engine takes at most, while it holds none."""
        self._held: list[bytes] = []
        """What the engine holds of an incomplete frame, in the pieces as received: joined only if it is read."""
        self.is_current = False
        """The engine's events belong to the chunk that was pushed last. The user sets it to False after handling
        them."""
        self.held = 0
        """How many bytes of an incomplete frame the engine holds."""
        self._held_before: list[bytes] = []
        self._chunk: bytes | memoryview = b""
        self._walked = True
        self._attaches: deque[TappedAttach] = deque()
        self._begins: deque[TappedBegin] = deque()
        self._open_channel = 0
        self._transfers_taken = False
        self._echoes: tuple[TappedFlow, ...] = ()
        self.decoded = 0
        """Bytes of frames that were decoded here; decoding in Python costs more than in the engine. The caller that
        counts that cost sets it back to 0."""
        self.missing = 0
        """Bytes of the incomplete frame that were not received yet; 0 also while its size is not known."""

    def pushed(self, chunk: bytes | memoryview, capacity: int) -> None:
        """Note that the engine took all of `chunk` and has room for `capacity` bytes now (below 0: the engine has
        failed).

        `chunk` is borrowed until the next call. Raises `TapError` if an attach was left untaken.
        """
        if self._attaches:
            raise self._untaken()
        self.is_current = True
        self._chunk = chunk
        self._walked = self._transfers_taken = False
        self._held_before = self._held
        partial = self.held = self._partial(capacity)
        self._held = _held_of(self._held_before, chunk, partial)
        if partial == 0:
            self.missing = 0
            return
        size = int.from_bytes(_beginning(self._held, _SIZE_BYTES))
        self.missing = max(size - partial, 0) if partial >= _SIZE_BYTES else 0

    def pushed_pieces(self, taken: memoryview, last: int, held_before: int, held: int, missing: int) -> None:
        """Note that the engine took several pieces, of which the last begins at `last` and is the chunk. It holds
        `held` bytes of an incomplete frame that lacks `missing`, and held `held_before` before the last piece.

        `taken` is borrowed until the next call. Raises `TapError` if an attach was left untaken.
        """
        if self._attaches:
            raise self._untaken()
        self.is_current = True
        self._chunk = taken[last:] if last else taken
        self._walked = self._transfers_taken = False
        # Most reads hold whole frames, and then there is nothing to keep.
        if held_before or self._held:
            self._held_before = _held_of(self._held, taken[:last], held_before)
        elif self._held_before:
            self._held_before = []
        if held or self._held_before:
            self._held = _held_of(self._held_before, self._chunk, held)
        elif self._held:
            self._held = []
        self.held, self.missing = held, missing

    @property
    def may_have_begun_with_flow(self) -> bool:
        """Whether the frame that began before the chunk may be a flow."""
        begun = _beginning(self._held_before, _CODE_BYTES)
        return len(begun) < _CODE_BYTES or _FLOW_START in begun

    def completed_disposition(self, more: memoryview) -> memoryview | None:
        """The body of the disposition that the engine holds in part, if `more`, which comes next, completes it."""
        begun = _beginning(self._held, _CODE_BYTES)
        begun += more[: _CODE_BYTES - len(begun)]
        if len(begun) < HEAD_BYTES or not begun.startswith(_DISPOSITION_START, body := 4 * begun[4]):
            return None
        missing = int.from_bytes(begun[:_SIZE_BYTES]) - self.held
        return memoryview(b"".join([*self._held, more[:missing]]))[body:] if 0 < missing <= len(more) else None

    def _untaken(self) -> TapError:
        return TapError(f"the engine raised no event for the attach of link {self._attaches[0].attach.name!r}")

    def open_channel(self) -> int:
        """The channel of the chunk's Open."""
        self._walk()
        return self._open_channel

    def take_begin(self) -> TappedBegin:
        """The chunk's next Begin."""
        self._walk()
        if not self._begins:
            raise TapError("the engine began a session, but the input holds no such begin")
        return self._begins.popleft()

    def check_detaches(self) -> None:
        """Raises `DecodeError` if a mandatory field is missing in a frame of the chunk that detaches a link."""
        if self.is_current:
            self._walk()

    def take_attach(self, name: str) -> TappedAttach:
        """Return the next attach of the chunk, which the engine says is that of the link `name`.

        Raises `ProtocolError` if the peer gave it another, of which the engine can't keep all.
        """
        self._walk()
        if not self._attaches:
            raise TapError(f"the engine attached link {name!r}, but the input holds no such attach")
        tapped = self._attaches.popleft()
        if tapped.attach.name != name:
            if "\0" in tapped.attach.name:
                told = f"The link name {tapped.attach.name!r} holds a NUL, where the engine ends it; leave it out."
                raise ProtocolError("amqp:invalid-field", told, tapped.channel)
            raise TapError(f"the engine attached link {name!r}, the input names {tapped.attach.name!r}")
        return tapped

    def echoes(self) -> tuple[TappedFlow, ...]:
        """Take the flows in the chunk that ask for an echo, which `flow_echo` writes, or have properties."""
        self._walk()
        echoes, self._echoes = self._echoes, ()
        return echoes

    def echoes_of_sessions(self) -> tuple[TappedFlow, ...]:
        """The same for any chunk, whether the engine raised a flow or not."""
        if not self._walked:
            if _FLOW_START not in _beginning(self._held_before, _CODE_BYTES) + bytes(self._chunk):
                return ()
            self._walk(every_flow=True)
        return self.echoes()

    def drains(self) -> Iterator[TappedFlow]:
        """The chunk's flows that drain a link; the engine may raise no event for them."""
        for channel, flow in self.performatives((Flow.CODE,)):
            if isinstance(flow, Flow) and flow.drain:
                yield TappedFlow(channel, flow)

    def take_transfers(self) -> Iterator[tuple[int, Transfer]]:
        """The chunk's transfers, by channel, without their states; none at a second call. Raises `DecodeError`."""
        taken, self._transfers_taken = self._transfers_taken, True
        data = b"" if taken else self._whole()
        for _start, end, kind, channel, body in walk(data):
            if kind == AMQP_FRAME and body != end and performative_code(data, body) == Transfer.CODE:
                self.decoded += _TRANSFER_BYTES
                yield channel, _transfer(data[body:end], body)

    def performatives(self, codes: Collection[int]) -> Iterator[tuple[int, Performative]]:
        """The chunk's performatives with these descriptors, by channel. Raises `DecodeError` where one is malformed."""
        data = self._whole()
        for _start, end, kind, channel, body in walk(data):
            if kind == AMQP_FRAME and body != end and performative_code(data, body) in codes:
                yield channel, read_body(data[body:end], Performative)[0]

    def _partial(self, capacity: int) -> int:
        """How many bytes of an incomplete frame the engine holds: its buffer less its room.

        The engine decides by how much the buffer grows, but it grows only when one incomplete frame fills it
        completely.
        """
        total = self.held + len(self._chunk)
        if capacity < 0:
            return 0
        if total >= self.buffer_bytes and self._fills_buffer(total):
            self.buffer_bytes = total + capacity
            return total
        partial = self.buffer_bytes - capacity
        if not 0 <= partial <= total:
            raise TapError(f"the engine has room for {capacity} of {self.buffer_bytes} bytes after {total} were given")
        return partial

    def _fills_buffer(self, total: int) -> bool:
        start = _beginning([*self._held_before, bytes(self._chunk[:8])], 8)
        return total == self.buffer_bytes and not start.startswith(b"AMQP") and int.from_bytes(start[:4]) > total

    def _whole(self) -> bytes:
        """The whole frames that the engine took with the chunk."""
        data = b"".join([*self._held_before, self._chunk])
        return data[: len(data) - self.held]

    def _walk(self, *, every_flow: bool = False) -> None:
        if self._walked:
            return
        self._walked = True
        self._begins.clear()
        echoes: list[TappedFlow] = []
        for channel, performative, size in _attaches_and_flows(self._whole(), every_flow):
            self.decoded += size
            match performative:
                case Attach():
                    self._attaches.append(TappedAttach(channel, performative))
                case Flow() if performative.echo or performative.properties is not None:
                    echoes.append(TappedFlow(channel, performative))
                case TappedBegin():
                    self._begins.append(performative)
                case Open.CODE:
                    self._open_channel = channel
                case _:
                    pass
        self._echoes = tuple(echoes)


def _held_of(held: list[bytes], chunk: bytes | memoryview, partial: int) -> list[bytes]:
    """What the engine holds of an incomplete frame, `partial` bytes, after it took `chunk` behind `held`."""
    if partial == 0:
        return []
    if partial <= len(chunk):
        return [bytes(chunk[len(chunk) - partial :])]
    return _followed(held, bytes(chunk)) if chunk else held


def _followed(pieces: list[bytes], piece: bytes) -> list[bytes]:
    """The pieces and one more; small pieces are joined, so that the list stays short."""
    if pieces and len(pieces[-1]) < _PIECE_BYTES:
        return [*pieces[:-1], pieces[-1] + piece]
    return [*pieces, piece]


def _beginning(pieces: list[bytes], size: int) -> bytes:
    """The first `size` bytes of the joined pieces, or all of them."""
    if pieces and len(pieces[0]) >= size:
        return pieces[0][:size]
    return b"".join(pieces)[:size]


def _attaches_and_flows(data: bytes, every_flow: bool) -> Iterator[tuple[int, Performative | TappedBegin | int, int]]:
    """Yield (channel, performative, bytes) of the attaches and flows in `data`, which holds whole frames. For an open
    or a detach the descriptor is yielded instead of the performative, for a begin a `TappedBegin`. Raises `DecodeError`
    if a mandatory field is missing.
    """
    for _start, end, kind, channel, body in walk(data):
        if kind != AMQP_FRAME or body == end:
            continue
        code = performative_code(data, body)
        if code in _MANDATORY:
            fields = checked(_MANDATORY[code], data[body:end], body)
            yield channel, TappedBegin(channel, _handle_max(fields)) if code == Begin.CODE else code, end - body
            continue
        if code is not None and code not in (Attach.CODE, Flow.CODE):
            continue
        if code == Flow.CODE and not every_flow and _field_count(data, body) <= _ECHO_FIELD:
            check_flow(data, body, end)
            continue
        # A descriptor in another encoding is rare, and has to be decoded.
        try:
            performative, _ = read_body(data[body:end], Performative)
        except DecodeError as error:
            raise DecodeError(error.reason, body + error.offset) from None
        yield channel, performative, end - body


def _handle_max(fields: list[Value]) -> int | None:
    """The handle-max of a Begin."""
    told = fields[_HANDLE_MAX_FIELD] if len(fields) > _HANDLE_MAX_FIELD else None
    return told if isinstance(told, UInt) else None


def _transfer(frame_body: bytes, at: int) -> Transfer:
    """A transfer without its state, which only its delivery needs."""
    value, _ = decode(frame_body)
    fields = value.value if isinstance(value, Described) and isinstance(value.value, list) else []
    kept = [None if position == _STATE_FIELD else field for position, field in enumerate(fields)]
    return from_value(Described(ULong(Transfer.CODE), kept), Transfer, at)


def _field_count(data: bytes, body: int) -> int:
    """The number of fields of a performative whose descriptor takes three bytes."""
    match data[body + 3 : body + 4]:
        case b"\xc0":
            return int.from_bytes(data[body + 5 : body + 6])
        case b"\xd0":
            return int.from_bytes(data[body + 8 : body + 12])
        case _:
            return 0
