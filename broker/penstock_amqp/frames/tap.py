"""The frame tap: reads in a connection's input what the engine hides, only where the engine says there is something.

The engine (proton 0.40) does not show a link's desired capabilities, cannot tell a null source from a null address or
an absent expiry policy from session-end, and swallows `echo`. The tap keeps the bytes of the frame that the engine
holds in part, and looks into a chunk of input only if the engine raised a remote attach or a flow while it took that
chunk. A chunk without either costs one method call (0.5 us).

Used so, for every chunk and in this order:

    taken = push(transport, chunk)              # at most capacity bytes
    tap.pushed(chunk[:taken], capacity(transport))
    drain the events:
        on a remote attach: tap.take_attach(name of the link)
        on a flow:          tap.echoes()

Each attach frame makes one remote-open event, in the same order, so the attaches are a queue; the name is compared to
be sure. Must not know the engine's functions or any rule. Source: AMQP 1.0 part 2, 2.3 and 2.7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from penstock_amqp.errors import DecodeError, TapError
from penstock_amqp.frames.frames import AMQP_FRAME, performative_code, read_body, walk
from penstock_amqp.frames.performatives import Attach, Flow, Performative

__all__ = ["InputTap", "TappedAttach", "TappedFlow"]

_ECHO_FIELD = 9
"""Position of `echo` in a flow: a shorter one, which is nearly every flow, need not be decoded."""


@dataclass(frozen=True, slots=True)
class TappedAttach:
    """An attach as the peer sent it. (channel, attach.handle) names the link until it is detached."""

    channel: int
    attach: Attach


@dataclass(frozen=True, slots=True)
class TappedFlow:
    """A flow as the peer sent it, on its channel; `flow.handle` is the one of its attach (None: the session alone)."""

    channel: int
    flow: Flow


class InputTap:
    """The input of one connection. All errors it raises are `WireError`: close this connection, and no other."""

    __slots__ = ("_attaches", "_chunk", "_echoes", "_held", "_held_before", "_input_size", "_walked")

    def __init__(self, capacity: int) -> None:
        """`capacity` is what the engine's transport can take before it was given anything."""
        self._input_size = capacity
        self._held = b""
        self._held_before = b""
        self._chunk: bytes | memoryview = b""
        self._walked = True
        self._attaches: deque[TappedAttach] = deque()
        self._echoes: tuple[TappedFlow, ...] = ()

    def pushed(self, chunk: bytes | memoryview, capacity: int) -> None:
        """Note that the engine took all of `chunk` and has room for `capacity` bytes now (below 0: it failed).

        `chunk` is borrowed until the next call. Raises `TapError` if an attach was left untaken.
        """
        if self._attaches:
            raise TapError(f"the engine raised no event for the attach of link {self._attaches[0].attach.name!r}")
        self._held_before = self._held
        self._chunk = chunk
        self._walked = False
        partial = self._partial(capacity)
        if partial == 0:
            self._held = b""
        elif partial <= len(chunk):
            self._held = bytes(chunk[len(chunk) - partial :])
        else:
            self._held = self._held_before + bytes(chunk)

    def take_attach(self, name: str) -> TappedAttach:
        """Return the next attach of the chunk, which the engine says is that of the link `name`."""
        self._walk()
        if not self._attaches:
            raise TapError(f"the engine attached link {name!r}, but the input holds no such attach")
        tapped = self._attaches.popleft()
        if tapped.attach.name != name:
            raise TapError(f"the engine attached link {name!r}, the input names {tapped.attach.name!r}")
        return tapped

    def echoes(self) -> tuple[TappedFlow, ...]:
        """The flows in the chunk that ask for an echo, which `echo.answer` writes."""
        self._walk()
        return self._echoes

    def _partial(self, capacity: int) -> int:
        """How many bytes of an incomplete frame the engine holds: its buffer less its room.

        The buffer grows by what the engine chooses, but only when one incomplete frame fills it to the last byte.
        """
        total = len(self._held_before) + len(self._chunk)
        if capacity < 0:
            return 0
        if total >= self._input_size and self._fills_buffer(total):
            self._input_size = total + capacity
            return total
        partial = self._input_size - capacity
        if not 0 <= partial <= total:
            raise TapError(f"the engine has room for {capacity} of {self._input_size} bytes after {total} were given")
        return partial

    def _fills_buffer(self, total: int) -> bool:
        start = (self._held_before + bytes(self._chunk[:8]))[:8]
        return total == self._input_size and not start.startswith(b"AMQP") and int.from_bytes(start[:4]) > total

    def _walk(self) -> None:
        if self._walked:
            return
        self._walked = True
        data = self._held_before + bytes(self._chunk)
        whole = data[: len(data) - len(self._held)]
        echoes: list[TappedFlow] = []
        for channel, performative in _attaches_and_flows(whole):
            match performative:
                case Attach():
                    self._attaches.append(TappedAttach(channel, performative))
                case Flow() if performative.echo:
                    echoes.append(TappedFlow(channel, performative))
                case _:
                    pass
        self._echoes = tuple(echoes)


def _attaches_and_flows(data: bytes) -> Iterator[tuple[int, Performative]]:
    """Yield (channel, performative) of the attaches and flows in `data`, which holds whole frames."""
    for _start, end, kind, channel, body in walk(data):
        if kind != AMQP_FRAME or body == end:
            continue
        code = performative_code(data, body)
        if code is not None and code not in (Attach.CODE, Flow.CODE):
            continue
        if code == Flow.CODE and _field_count(data, body) <= _ECHO_FIELD:
            continue
        # A descriptor written in any other way is rare, and has to be read to be known.
        try:
            performative, _ = read_body(data[body:end], Performative)
        except DecodeError as error:
            raise DecodeError(error.reason, body + error.offset) from None
        yield channel, performative


def _field_count(data: bytes, body: int) -> int:
    """How many fields the list of a performative has whose descriptor takes three bytes."""
    match data[body + 3 : body + 4]:
        case b"\xc0":
            return int.from_bytes(data[body + 5 : body + 6])
        case b"\xd0":
            return int.from_bytes(data[body + 8 : body + 12])
        case _:
            return 0
