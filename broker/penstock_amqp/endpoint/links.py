"""The handles of what lives on a connection: sessions, links that bring us messages, links that take ours.

Plain records with slots. `context` is the user's; it is cleared when the link ends, because reference cycles are never
collected in the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.conditions import AmqpError
from penstock_amqp.frames.input_tap import TappedFlow
from penstock_amqp.frames.performatives import Transfer
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Described

__all__ = [
    "GATHERED_BYTES",
    "UNPROVEN_MESSAGES",
    "Acquisition",
    "AvailableCount",
    "InLink",
    "OutLink",
    "PartialMemory",
    "PartialMessage",
    "SecondSettlement",
    "Session",
    "Sink",
]

UNPROVEN_MESSAGES: Final = 4
"""Messages of a new link whose transfers and sections are checked one by one, which would cost too much for all."""

GATHERED_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of all incomplete messages of a connection in memory: beyond it, those longer than
`incoming_messages.HEAD_BYTES` go to sinks. A link without sinks may fill twice as much, and a part that does not fit
ends the link.
"""


class Session:
    """One session of the peer."""

    __slots__ = (
        "channel",
        "context",
        "handle_max",
        "has_ended",
        "has_lost",
        "links",
        "local_channel",
        "lost_bytes",
        "ptr",
    )

    def __init__(self, ptr: Ptr, channel: int = 0) -> None:
        self.ptr = ptr
        self.channel = channel
        """The peer's channel number for the session."""
        self.local_channel: int | None = None
        """Our channel number for it; None until our Begin is written."""
        self.handle_max: int | None = None
        """The highest handle that we may give a link; None: any."""
        self.has_ended = False
        self.has_lost = False
        """Links have ended whose messages the engine holds for good; how long these are is not known yet."""
        self.lost_bytes = 0
        """Bytes of messages that the engine holds and never sends, because their links have ended."""
        self.links: list[InLink | OutLink] = []
        self.context: object = None


class Sink(Protocol):
    """Takes one message as it comes. A sink that is dropped before `finish` leaves nothing behind."""

    def append(self, data: bytes) -> None:
        """Take the next bytes. If they can't be stored, `finish` reports it."""
        ...

    def finish(self, head: bytes) -> bytes | AmqpError:
        """The message, of which `head` is the beginning; or why it can't be stored."""
        ...


class PartialMemory:
    """How many bytes are in memory of messages that are still coming, over all links of a connection, or over all
    connections.
    """

    __slots__ = ("bytes", "messages", "most", "whole")

    def __init__(self, most: int, whole: PartialMemory | None = None) -> None:
        """`most`: beyond so many bytes, messages go to sinks early. `whole`: of all connections."""
        self.bytes = 0
        self.messages = 0
        """How many messages are still coming; not counted in `whole`."""
        self.most = most
        self.whole = whole

    def change(self, size: int) -> None:
        """So many bytes came (or went, if `size` is below 0)."""
        self.bytes += size
        if self.whole is not None:
            self.whole.bytes += size

    def is_full(self, more: int) -> bool:
        """Whether `more` bytes are too many."""
        return self.bytes + more > self.most


class PartialMessage:
    """What came so far of the message that a link is receiving, if the message spans several reads."""

    __slots__ = ("bytes", "delivery", "memory", "parts", "sink")

    def __init__(self, memory: PartialMemory) -> None:
        self.memory = memory
        self.delivery: Ptr | None = None
        """The delivery of the message; None if no message is coming in parts."""
        self.bytes = 0
        """Length of what came; its first parts may be empty."""
        self.parts: list[bytes | bytearray] = []
        """What is in memory of it: all of it, or only its beginning if there is a sink."""
        self.sink: Sink | None = None
        """Where a message goes that is too long for memory."""


class SecondSettlement:
    """The state of a link on which the peer settles first and we settle second (rcv-settle-mode second)."""

    __slots__ = ("unconfirmed", "withheld")

    def __init__(self) -> None:
        self.unconfirmed = 0
        """Deliveries that we answered and the peer has not settled yet."""
        self.withheld = 0
        """Credit that was granted for them and is kept back until the peer settles them."""


class InLink:
    """A link on which the peer sends and we receive."""

    __slots__ = (
        "context",
        "engine_name",
        "first_transfer",
        "is_answered",
        "is_beyond_credit",
        "is_open",
        "is_request",
        "keeps_handle",
        "limit",
        "local",
        "max_bytes",
        "name",
        "partial",
        "ptr",
        "read_bytes",
        "remote",
        "resumed",
        "second",
        "session",
        "spool",
        "unfinished",
        "unproven",
    )

    def __init__(self, ptr: Ptr, name: str, session: Session, memory: PartialMemory | None = None) -> None:
        self.ptr = ptr
        self.name = name
        self.is_answered = False
        """Our attach is written, or about to be."""
        self.engine_name = name
        """The engine's name for it; it differs from `name` if the peer has two links of that name on the session."""
        self.session = session
        self.is_open = True
        """False once the link is freed; its deliveries are then invalid."""
        self.keeps_handle = True
        """False once the peer has detached it: its handle is free for another link."""
        self.is_beyond_credit = False
        """A message came for which the peer had no credit: nothing is taken any more."""
        self.is_request = False
        """The user answers each message separately, which costs as much as a frame of another kind."""
        self.limit = 0
        """The delivery-count up to which the peer may send: the one that its attach named, and all credit given since.
        The counts of AMQP are this modulo 2**32."""
        self.local: tuple[int, int] | None = None
        """Channel and handle by which we name the link."""
        self.remote: tuple[int, int] = (-1, -1)
        """Channel and handle by which the peer names the link."""
        self.max_bytes = 0
        """Longest message that is accepted; 0 once a longer one came."""
        self.read_bytes = 0
        """A message of at least this many bytes is read by `IncomingMessages`: it is long, or longer than
        `max_bytes`.
        """
        self.partial = PartialMessage(memory or PartialMemory(GATHERED_BYTES))
        self.spool: Callable[[], Sink] | None = None
        """Makes sinks; without it the link keeps messages of any length in memory."""
        self.unfinished: dict[Ptr, set[bytes]] | None = None
        """Of a coordinator's link: the transactions of which a message had come in part when a request came, by the
        delivery of the request; the user takes out what it has read. None: it is not asked for.
        """
        self.unproven = UNPROVEN_MESSAGES
        """Number of messages that are still to be checked closely: a faulty client is wrong from its first
        message on.
        """
        self.first_transfer: Transfer | None = None
        """The first transfer of the delivery that is coming in several transfers, while the link is unproven."""
        self.resumed: set[bytes] | None = None
        """Tags of deliveries that the peer resumes, while the link is unproven."""
        self.second: SecondSettlement | None = None
        """Set if we settle what we answered only after the peer has settled it."""
        self.context: object = None


@runtime_checkable
class AvailableCount(Protocol):
    """A context of an `OutLink` that can say what `available` of its flows is. Source: AMQP 1.0 part 2, 2.6.7."""

    def available(self) -> int | None:
        """The messages that wait for credit on the link; None if that isn't known."""
        ...


class Acquisition:
    """What one transaction acquires, over all links that acquire in it. Source: AMQP 1.0 part 4, 4.4.3."""

    __slots__ = ("is_over", "lengths", "state", "txn_id", "unsettled")

    def __init__(self, txn_id: bytes, state: bytes) -> None:
        self.txn_id = txn_id
        self.state = state
        """That of the transfers, as an encoded list."""
        self.is_over = False
        """The transaction has ended: nothing more is sent in it."""
        self.unsettled: dict[Ptr, tuple[OutLink, tuple[int, bytes, int, int, int], int]] = {}
        """The `events.Held` that were sent in it. Some may be settled by now, and their pointers be those of others:
        see `UnsettledDeliveries.take_back`."""
        self.lengths: dict[Ptr, int] = {}
        """How many bytes those have that may take several frames."""


class OutLink:
    """A link on which we send and the peer receives."""

    __slots__ = (
        "acquisition",
        "context",
        "credit",
        "default_outcome",
        "drain",
        "draining_flow",
        "ended",
        "engine_name",
        "is_answered",
        "is_open",
        "keeps_handle",
        "local",
        "max_bytes",
        "name",
        "presettled",
        "ptr",
        "remote",
        "session",
        "settles_second",
        "transfers",
    )

    def __init__(self, ptr: Ptr, name: str, session: Session) -> None:
        self.ptr = ptr
        self.name = name
        self.is_answered = False
        self.engine_name = name
        self.session = session
        self.is_open = True
        self.keeps_handle = True
        self.credit = 0
        self.local: tuple[int, int] | None = None
        """Channel and handle by which we name the link."""
        self.remote: tuple[int, int] = (-1, -1)
        """Channel and handle by which the peer names the link."""
        self.drain = False
        self.draining_flow: TappedFlow | None = None
        """The flow that asked to drain credit that was not used up, until it is answered."""
        self.default_outcome: Composite | Described | None = None
        """What becomes of deliveries that the peer settles without an outcome; None: they come back."""
        self.max_bytes = 0
        """Longest message that the peer accepts on it; 0: any."""
        self.presettled = False
        """True if deliveries are sent settled: nothing is heard of them again."""
        self.settles_second = False
        """True if the peer settles what it accepted only after us."""
        self.acquisition: Acquisition | None = None
        """The transaction in which messages are acquired: send by `Endpoint.acquiring`."""
        self.transfers = 0
        self.context: object = None
        self.ended: object = None
        """The user's too, for what the peer said behind the end of the link within the same bytes."""
