"""Decides how much of a connection's input the engine is given next, and replaces frames that the engine can't handle.

The engine (proton 0.40) accepts no transfer for a session before it has written its own begin, fails the connection
when a link name is attached twice on a session, and knows performatives by numeric descriptors only. Therefore the
input is cut after an open or a begin, so that it is answered first, and before an end, if something is still to be said
of deliveries of the session; a second attach with the same name is given another name; and symbolic descriptors are
replaced by numeric ones.

Of input that begins with a transfer, flow or disposition only the sizes and the descriptors of its frames are read,
which takes 0.1 us for each: up to a frame that has to be inspected, it goes to the engine as it is. Where that is an
attach, or a frame of which too little is here to tell, the rest is kept here until the frame is complete. The compiled
engine has a twin of this walk (`penstock_native/input.c`).

A disposition that names many deliveries is given to the engine alone, and counts as much as a turn may cost: its few
bytes let the engine look at each of them, and make an event for each. One that lacks a mandatory field is an error, of
which the engine would say nothing; one whose end is not here yet is looked at once it comes (`Input`).

Must not know the engine's functions or any rule. Source: AMQP 1.0 part 1, 1.3; part 2, 2.4.1, 2.5.6 and 2.6.1.
"""

from __future__ import annotations

import struct
from typing import Final

from penstock_amqp.errors import DecodeError, WireError
from penstock_amqp.frames.frames import AMQP_FRAME, AMQP_HEADER, HEAD_BYTES, frame_of, parse_head, performative_code
from penstock_amqp.frames.mandatory_fields import check_disposition, check_value
from penstock_amqp.frames.performatives import Attach, Begin, Disposition, End, Flow, Open, Transfer
from penstock_amqp.frames.wide_dispositions import WIDE, width
from penstock_amqp.types.composites import numbered
from penstock_amqp.types.decoder import decode
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described

__all__ = ["InputGate"]

_CODE_AT: Final = 10
"""Offset of a performative's numeric descriptor in a frame, in the encoding that nearly all clients use."""

_SIZE_BYTES: Final = 4
_USUAL_WORDS: Final = 2
_SMALL_ULONG: Final = 0x53
_BEGINNING: Final = struct.Struct(">IB4xBB")
"""The size of a frame, its words before the body, how its descriptor is encoded, and the descriptor."""
_TRANSFER: Final = Transfer.CODE
_OFTEN: Final = frozenset((Flow.CODE, Transfer.CODE, Disposition.CODE))
_AWAITED: Final = frozenset((Open.CODE, Begin.CODE))
_APART: Final = _AWAITED | {Attach.CODE, End.CODE}
"""What no other frame may stand before, in a piece that is not inspected."""
_PROTOCOL: Final = AMQP_HEADER[:4]
_MOST_ATTACHES: Final = 8
"""Most attaches that the engine is given at once, so that their cost is counted before more are handled."""
WIDE_COST: Final = 2048
"""A wide disposition costs as much as so many inspected frames at most."""
DELIVERIES_PER_FRAME: Final = 2
"""Of a wide disposition, so many cost as much as an inspected frame."""
_SECOND: Final = "\x1f"
"""Separates a link name that is attached already from the number that is added to make it unique."""


class InputGate:
    """The input of one connection, before the engine. Malformed input is passed on: the engine reports the error."""

    __slots__ = (
        "_max_frame",
        "_names",
        "_originals",
        "_renamed",
        "holds_begins",
        "holds_ends",
        "is_stopped",
        "is_unusual",
        "kept",
        "looked",
    )

    def __init__(self, max_frame: int) -> None:
        """`max_frame`: bytes; a longer frame is not kept until it is complete."""
        self._max_frame = max_frame
        self.kept = b""
        """The beginning of a frame that the engine gets once it is complete."""
        self._names: set[tuple[int, str]] = set()
        """The links that the engine has, by channel."""
        self._originals: dict[str, str] = {}
        self._renamed = 0
        self.looked = 0
        """Number of inspected frames, with what costs as much as some; the caller that counts their cost sets it back
        to 0.
        """
        self.is_unusual = False
        """The peer has used a descriptor in an unusual encoding: every frame is inspected from now on."""
        self.holds_begins = False
        """No channel is free to answer a begin with, until the end of another session is answered."""
        self.holds_ends = False
        """Something is to be said before an end is read: the engine says nothing more of the session behind it."""
        self.is_stopped = False
        """A begin or an end came meanwhile: `next` has left it, and what is behind it."""

    def attached(self, channel: int, name: str) -> str:
        """Note that the engine has a link `name` on `channel`; return the name that the peer gave it."""
        self._names.add((channel, name))
        return self._originals.get(name, name)

    def detached(self, channel: int, name: str) -> None:
        """The peer has detached the link that the engine calls `name`."""
        self._names.discard((channel, name))
        self._originals.pop(name, None)

    def ended(self, channel: int) -> None:
        """The peer has ended the session on `channel`."""
        for name in [name for at, name in self._names if at == channel]:
            self.detached(channel, name)

    def next(self, data: memoryview, held: int, missing: int, piece: int) -> tuple[int, bytes | None]:
        """Return how many bytes of `data` (not empty) are handled by this call, and what the engine is given for them:
        None means the bytes themselves, b"" means nothing yet. With `is_stopped` none are handled. Raises `DecodeError`
        if a disposition lacks a field.

        `held`: how many bytes of an incomplete frame the engine holds. `missing`: how many bytes that frame still needs
        (0: its size is not known yet either). About `piece` bytes are inspected.
        """
        self.is_stopped = False
        if self.kept:
            return self._gather(data)
        if held and not missing:
            return min(len(data), max(HEAD_BYTES - held, 1)), None
        if missing >= len(data):
            return len(data), None
        first = missing + _CODE_AT
        if first < len(data) and data[first] in _OFTEN and data[first - 1] == _SMALL_ULONG and not self.is_unusual:
            plain = self._up_to_special(data, missing, piece)
            if plain:
                return plain, None
        return (missing, None) if missing else self._look(data, bytes(data[:piece]))

    def _up_to_special(self, data: memoryview, at: int, piece: int) -> int:
        """How many bytes of `data`, in which a frame begins at `at`, come before one that the engine is not given
        behind others, or before a frame whose descriptor is not here yet; `piece` at most. A wide disposition that is
        the first goes alone. 0: the first frame has to be inspected.
        """
        size = len(data)
        while at < piece and (here := size - at) > 0:
            if here <= _CODE_AT:
                length = int.from_bytes(data[at : at + _SIZE_BYTES])
                if here < _SIZE_BYTES or length > here:
                    return at
            else:
                length, words, encoding, code = _BEGINNING.unpack_from(data, at)
                is_usual = encoding == _SMALL_ULONG and words == _USUAL_WORDS
                if not (is_usual and code == _TRANSFER) and length > _CODE_AT:  # others are empty, or malformed
                    if not is_usual or code in _APART:
                        return at
                    if code == Disposition.CODE and self.goes_alone(data[at + HEAD_BYTES : at + length], behind=at):
                        return at or min(length, size)
            if length < HEAD_BYTES:
                break  # the engine says what is wrong
            at += length
        return min(size, piece)

    def goes_alone(self, body: memoryview, behind: int) -> bool:
        """Whether a disposition is given to the engine alone, once it has the `behind` bytes before it.

        Raises `DecodeError` if it lacks a mandatory field and nothing is before it.
        """
        try:
            check_disposition(body, HEAD_BYTES)
        except DecodeError:
            if behind:
                return True
            raise
        cost = _wide_cost(body)
        if not cost:
            return False
        self.looked += 0 if behind else cost
        return True

    def _gather(self, data: memoryview) -> tuple[int, bytes | None]:
        """Continue with a frame whose beginning was kept."""
        kept, self.kept = self.kept, b""
        taken = min(_extent(kept, 0)[0] - len(kept), len(data))
        whole = kept + bytes(data[:taken])
        _, instead = self._look(memoryview(whole), whole)
        if self.is_stopped:
            self.kept = kept
            return 0, b""
        return taken, whole if instead is None else instead

    def _look(self, data: memoryview, part: bytes) -> tuple[int, bytes | None]:
        """The same as `next` where a frame begins. `part`: the beginning of `data`."""
        at = attaches = 0
        seen: set[tuple[int, str]] = set()
        while at < len(part):
            self.looked += 1
            try:
                end, kind, channel, body = _extent(part, at)
            except WireError:
                return len(part), None
            code = performative_code(part, body)
            if end > len(part):
                return (at, None) if at else self._begun(data, part, end, code)
            if code == Begin.CODE and (at or self.holds_begins):  # what is before it may be an end
                self.is_stopped = not at
                return at, b"" if not at else None
            if code == End.CODE and self.holds_ends:
                self.is_stopped = not at
                return at, b"" if not at else None
            if code in _AWAITED:
                return end, None
            if code == Disposition.CODE and self.goes_alone(data[body:end], behind=at):
                return at or end, None
            attaches += code == Attach.CODE
            if attaches > _MOST_ATTACHES:
                return at, None
            if kind == AMQP_FRAME and body < end and (self.is_unusual or code in (None, Attach.CODE)):
                instead = self._instead(part[body:end], code, channel, seen)
                if instead is not None:
                    return (at, None) if at else (end, instead)
            at = end
        return at, None

    def _begun(self, data: memoryview, part: bytes, end: int, code: int | None) -> tuple[int, bytes | None]:
        """The first frame ends after the inspected part."""
        if code in _OFTEN or end > self._max_frame:
            return len(part), None
        if end <= len(data):
            return self._look(data, bytes(data[:end]))
        self.kept = bytes(data)
        return len(data), b""

    def _instead(self, body: bytes, code: int | None, channel: int, seen: set[tuple[int, str]]) -> bytes | None:
        """The frame that the engine is given instead of an attach, or of a performative whose descriptor is not a small
        number; None: the frame is not changed.

        `seen`: links that earlier frames of this piece attach, which the engine does not have yet.
        """
        try:
            value, end = decode(body)
        except WireError:
            return None
        if not isinstance(value, Described):
            return None
        known = numbered(value)
        told = self._renamed_attach(known, channel, seen) if known.descriptor == Attach.CODE else known
        if known.descriptor == Disposition.CODE:
            check_value(Disposition, known, HEAD_BYTES)
            self.looked += _wide_cost(memoryview(encode(known)))
        is_usual = code is not None and known == value
        if is_usual and told is known:
            return None
        self.is_unusual = self.is_unusual or not is_usual
        return frame_of(encode(told) + body[end:], channel)

    def _renamed_attach(self, attach: Described, channel: int, seen: set[tuple[int, str]]) -> Described:
        """The attach, with another link name if the engine has a link with its name."""
        fields = attach.value
        if not isinstance(fields, list) or not fields or not isinstance(fields[0], str):
            return attach
        name = fields[0]
        if (channel, name) not in self._names and (channel, name) not in seen:
            seen.add((channel, name))
            return attach
        self._renamed += 1
        told = f"{name}{_SECOND}{self._renamed}"
        self._originals[told] = name
        return Described(attach.descriptor, [told, *fields[1:]])


def _wide_cost(disposition: memoryview) -> int:
    """What a disposition costs if it is wide, in inspected frames; else 0."""
    named = width(disposition)
    return min(named // DELIVERIES_PER_FRAME, WIDE_COST) if named >= WIDE else 0


def _extent(data: bytes, at: int) -> tuple[int, int, int, int]:
    """End, type, channel and start of the body of the frame at `at`; if its header is incomplete, only the header
    counts.

    Raises `DecodeError` if the bytes are not a frame.
    """
    if data.startswith(_PROTOCOL, at) or len(data) - at < HEAD_BYTES:
        return at + HEAD_BYTES, -1, 0, at + HEAD_BYTES
    size, kind, channel, body = parse_head(data, at)
    return at + size, kind, channel, at + body
