"""The interface between one connection's protocol and the engine that carries its messages.

`Engine` is what an endpoint needs for messages. `proton.engine.ProtonEngine` provides it in Python, one call into
proton's library for each step of each message; `proton.compiled_engine.CompiledEngine` makes one for a whole batch.
Neither `Endpoint` nor the broker sees a difference.

**What is plain.** Only what is frequent goes through batches:

- a message is plain if it lies in the engine as a whole, is shorter than `InLink.read_bytes`, the peer had credit for
  it, and its link is open, is not `unproven` and receives no message in parts (`InLink.partial.delivery` is None);
- an outcome is plain if it is `accepted` for a delivery in `Engine.unsettled`, and the peer has settled the delivery;
- an entry is plain if its data is no streamed message, or fits one frame of the peer's.

**What is handed to Python.** Everything else. `Engine.drain` stops at the first event that is not plain and returns a
`Notice` of it, and goes on behind it at the next call. `Engine.send` returns a streamed entry that is too long for one
frame, and what stands behind it. So an engine calls nobody: there are no callbacks, and no reference leads from the
engine to its user (the broker runs without Python's garbage collector).

**Order.** Events and notices come in the order in which the peer's frames came. A run of plain messages of one link is
one event, and so is a run of plain outcomes of one link: what is plain joins the last event of `out` if that is a run
of its kind and its link. It does not join a run of messages whose link is `unproven`.

**Pointers.** A `Ptr` is an object of proton's in every engine: `cproton_ffi` shows it as one of its own objects, the
compiled back end, which uses the same library, as an integer. What is not plain is done in Python with these pointers,
by the other modules of `endpoint.proton`.

- A delivery that was received is valid until it is settled, or its link is freed. Whoever takes it out of an event
  owns it, and has to give it to `accept`, `settle` or `answer`, unless its link is not open any more.
- A delivery that was sent is valid while it is in `unsettled`. The engine puts it there and takes it out.
- The pointers of a notice are valid until the next call of `drain`; those of a link, a session or a delivery that
  nobody has freed or settled stay valid beyond that.
- The engine knows a link by `Engine.receivers` (links on which we receive) and by the entries of `unsettled` (links on
  which we send). Whoever frees a link calls `forget` first, because proton reuses the addresses of freed objects.

**Buffers.** All engines of the process share `buffers.INPUT`, `OUTPUT` and `MESSAGE`. Their content is valid until the
next call to any engine. The data of an event are copies: bytes that belong to the event.

This module must not know sessions, attaches, flows, queues or subscriptions. Source: AMQP 1.0 part 2, 2.6.12 and 2.7.5.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, Final, Literal, Protocol, TypeAlias

from penstock_amqp.endpoint.buffers import Buffer, Ptr
from penstock_amqp.endpoint.events import Entry, Event, Held
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.frames.input_tap import InputTap

__all__ = ["ENGINE", "BareKind", "Engine", "Line", "Notice", "NoticeKind", "Pushed", "SocketEngine", "Unsent"]


class NoticeKind(enum.Enum):
    """What `Engine.drain` found that is not plain. In brackets: what the pointer of the notice points to."""

    ARRIVAL = enum.auto()
    """A message, or a part of one, came (delivery). It has to be read, advanced and handed out by the user. As many of
    its bytes as the detail of the notice says stand in `buffers.MESSAGE` already."""
    OUTCOME = enum.auto()
    """The peer gave a delivery of ours a state, or settled it (delivery). The detail is what stood in
    `Engine.unsettled`, from which the delivery has been taken out."""
    STATE = enum.auto()
    """The peer may have settled a delivery that is in `Engine.unconfirmed` (delivery)."""
    ASTRAY = enum.auto()
    """Something came of a delivery of a link on which we send, which was not sent as a whole (delivery): the peer may
    have sent it."""
    CONTINUED = enum.auto()
    """Something came of a delivery that names a transaction and was handed out as a whole (delivery): its last part, or
    a disposition of the peer's."""
    FLOW = enum.auto()
    """A flow came for a link (link)."""
    LINK_OPENED = enum.auto()
    """The peer attached a link (link)."""
    LINK_DETACHED = enum.auto()
    """The peer detached a link, which may come back (link)."""
    LINK_CLOSED = enum.auto()
    """The peer detached a link for good (link)."""
    SESSION_OPENED = enum.auto()
    """The peer began a session (session)."""
    SESSION_CLOSED = enum.auto()
    """The peer ended a session (session)."""
    CONNECTION_OPENED = enum.auto()
    """The peer's Open came (no pointer)."""
    CONNECTION_CLOSED = enum.auto()
    """The peer's Close came (no pointer)."""
    FAILED = enum.auto()
    """The engine accepts no more input: the peer broke the protocol, or was silent for too long (no pointer)."""


BareKind: TypeAlias = Literal[
    NoticeKind.STATE,
    NoticeKind.ASTRAY,
    NoticeKind.CONTINUED,
    NoticeKind.FLOW,
    NoticeKind.LINK_OPENED,
    NoticeKind.LINK_DETACHED,
    NoticeKind.LINK_CLOSED,
    NoticeKind.SESSION_OPENED,
    NoticeKind.SESSION_CLOSED,
    NoticeKind.CONNECTION_OPENED,
    NoticeKind.CONNECTION_CLOSED,
    NoticeKind.FAILED,
]
"""Kinds of notices without a detail."""

Notice: TypeAlias = (
    tuple[Literal[NoticeKind.ARRIVAL], Ptr, int]
    | tuple[Literal[NoticeKind.OUTCOME], Ptr, Held]
    | tuple[BareKind, Ptr, None]
)
"""What is to be done in Python: its kind, the pointer of the object that it concerns, and the detail of some kinds."""

Pushed: TypeAlias = tuple[int, bool, Notice | None]
"""What `Engine.push_plain` took: bytes in all, whether a flow may be in the last piece, and a notice of this piece."""

Unsent: TypeAlias = tuple[Ptr, Entry, list[Entry]]
"""What `Engine.send` left to its user: the delivery that it made for a streamed entry, that entry, and the entries
behind it.
"""


class Engine(Protocol):
    """The messages of one connection. The module says what is plain, and who owns what for how long."""

    receivers: dict[Ptr, InLink]
    """The links on which messages are received: entered by the user once a link is attached."""
    unsettled: dict[Ptr, Held]
    """Deliveries that were sent and are not settled, by their pointers; those of `aside` are not among them."""
    aside: dict[Ptr, Held | None]
    """More of them, while those of links that have ended are taken out (`withdrawals`); None: it is not here any
    more."""
    has_recalled: bool
    """A delivery went back from `aside` to `unsettled` by `recall` since the user set this to False."""
    unconfirmed: dict[Ptr, InLink]
    """Deliveries that we answered and that the peer settles first: entered and taken out by the user."""
    frame_bytes: int
    """Longest message that surely fits one frame of the peer's; 0 until its Open is answered. Set by the user."""
    told: Any
    """What `push_plain` or `read_plain` found last in what they took, until the user has their notice in hand, who then
    sets this to None: a delivery whose outcome came is in no other place."""
    unwritten_sessions: int
    """Sessions that were opened since the engine last wrote."""
    has_failed: bool
    """True if the last call of `output` found that the engine has failed and writes nothing more."""

    @property
    def has_sent_many(self) -> bool:
        """True if the connection may hold the memory of very many deliveries, which takes long to free."""
        ...

    def free(self) -> None:
        """The connection is about to be freed: forget every pointer. Whatever is called afterwards raises."""
        ...

    def sockets(self) -> SocketEngine | None:
        """The engine itself, if it reads and writes sockets; None if its user has to."""
        ...

    def room(self) -> int:
        """How many bytes `push` takes; 0 or less if the engine accepts no more input."""
        ...

    def push(self, data: Buffer | bytes, size: int) -> int:
        """Take the first `size` bytes of `data` or fewer, at least one; return how many. 0 or less: no more input is
        accepted.
        """
        ...

    def drain(self, out: list[Event]) -> Notice | None:
        """Append the events of the pushed bytes to `out` up to the next notice, and return the notice; None if there is
        none.
        """
        ...

    def push_plain(self, start: int, size: int, tap: InputTap, out: list[Event]) -> Pushed | None:
        """Take the bytes of `buffers.INPUT` from `start` to `size` and append their events to `out`, as `push` and
        `drain` do, until something comes that is not plain: a notice, which is returned, or a frame that
        `frames.input_gate` has to look at. `tap` is told what was taken. None: nothing was.
        """
        ...

    def keep_told(self) -> None:
        """An exception came: if `told` has a delivery whose outcome nobody has heard of, `unsettled` has it again."""
        ...

    def send(self, link: OutLink, entries: Iterable[Entry], now_us: int) -> Unsent | None:
        """Send `entries`, at most as many as the link's credit, which the caller counts down; None if all are sent.

        Each is in `unsettled` from then on with `now_us` (microseconds since the epoch), unless the link is presettled.
        """
        ...

    def send_as(self, link: OutLink, entry: Entry, data: bytes, now_us: int) -> Ptr | None:
        """Send `data` in the place of the entry's own bytes. If it is streamed, nothing is sent, and its delivery is
        returned.
        """
        ...

    def begin(self, link: OutLink) -> Ptr:
        """Make the delivery of the link's next message. Its bytes are given by `deliveries.send_part`, and then
        `finish` is called.
        """
        ...

    def recall(self, delivery: Ptr) -> None:
        """If the delivery is in `aside`, put it back into `unsettled`."""
        ...

    def finish(self, delivery: Ptr, held: Held) -> None:
        """All bytes of a message are with the engine: treat its delivery as `send` treats others."""
        ...

    def accept(self, deliveries: Iterable[Ptr]) -> None:
        """Accept and settle deliveries that were received."""
        ...

    def settle(self, deliveries: Iterable[Ptr]) -> None:
        """Settle deliveries without an outcome."""
        ...

    def drop(self, deliveries: Iterable[Ptr]) -> None:
        """Settle deliveries of links that the peer has detached, without an outcome: what was not sent of them is not
        sent, and is not kept.
        """
        ...

    def credit(self, link: InLink, count: int) -> None:
        """Let the peer send `count` messages more."""
        ...

    def keep(self, link: InLink | OutLink) -> None:
        """A link is attached: hold on to its object until `forget` or `free`. Otherwise proton lets go of it, and of
        its session, behind each delivery, and takes both up again with the next one.
        """
        ...

    def forget(self, link: InLink | OutLink) -> None:
        """Drop every pointer that belongs to a link, which is about to be freed."""
        ...

    def open_session(self, session: Ptr) -> None:
        """Answer a Begin. It is written with the next output, or before the engine runs out of channels."""
        ...

    def write(self) -> None:
        """Put what is to be sent into frames now, for `output`. Only after that the engine takes transfers for sessions
        that it has opened, and gives the handles of ended links to other links.
        """
        ...

    def output(self) -> int:
        """Move what is to be sent into `buffers.OUTPUT`; return how many bytes: if they fill more than half
        of it, there may be more.

        What it returned counts as sent. Each call ends on a frame boundary unless it filled the buffer.
        """
        ...


Line: TypeAlias = tuple[
    int, Ptr, Ptr, list[Any], dict[Any, Any], object, dict[Any, Any], dict[Any, Any], "SocketEngine"
]
"""A plain socket and its engine, which is the last field: see `SocketEngine.line`."""

ENGINE: Final = 8
"""The field of a line that is its engine."""


class SocketEngine(Protocol):
    """Reads and writes the plain sockets of connections: one call in a turn for each of them that says little."""

    told: Any
    """See `Engine.told`."""

    def line(self, fd: int) -> Line:
        """What `read_together` and `send_outputs` take for the non-blocking socket `fd`, until the engine is freed."""
        ...

    def read_plain(self, fd: int | None, most: int, tap: InputTap, out: list[Event]) -> int | tuple[int, object]:
        """Read once, `most` bytes at most, from the non-blocking socket `fd` into `buffers.INPUT`, and go on as
        `push_plain`; None: `most` bytes are there already. Only while neither the engine nor the tap holds a part of a
        frame.

        How many bytes came, if all of them were plain and whole: `tap` need not know of them. 0: the peer has ended;
        below 0: -errno. Otherwise how many came, and what `pushed` takes (None: the first bytes are not plain).
        """
        ...

    @staticmethod
    def read_together(
        lines: list[Line], most: int, bulk: int, out: list[list[Event]]
    ) -> int | tuple[int, object] | None:
        """`read_plain` of several, in their order. Each gets a list of events of its own in `out`, up to the first that
        does not bring less than `bulk` bytes, all of them plain and whole, and one run of messages or accepts.

        What `read_plain` returns for that one, whose list is the last in `out`, and whose bytes are in `buffers.INPUT`;
        None: there is none. An exception is of the last in `out`. Nothing was done for those behind it.
        """
        ...

    def pushed(self, told: object, start: int, tap: InputTap, out: list[Event]) -> Pushed:
        """What `read_plain` told of the bytes of `buffers.INPUT` from `start` on, as `push_plain` returns it."""
        ...

    def send_output(self, fd: int) -> tuple[int, int] | None:
        """`Engine.output`, and send what it gave to the non-blocking socket `fd`.

        None: there is no more, and the socket took all of it. Otherwise what `output` returned, and how many of these
        bytes the socket took; below 0: -errno.
        """
        ...

    @staticmethod
    def send_outputs(lines: list[Line]) -> tuple[int, tuple[int, int]] | None:
        """`send_output` of several, in their order.

        None: there is no more of any, and the sockets took all. Otherwise the position of the first of which that is
        not so, and what its `send_output` returns: nothing was done for those behind it.
        """
        ...
