"""One AMQP connection without its socket: received bytes become events, and method calls become bytes to send.

The user hands received bytes to `receive`, works through the events, calls methods, and sends what `output` yields.
SASL and TLS are in front of it: the first bytes it sees are the bare AMQP header.

`Endpoint` is put together from parts, each with a concern of its own:

- `engine.Engine` carries messages in batches, and stops where something else has to be done;
- `Input` gives the engine the received bytes, and hands what the engine leaves to Python to the other parts;
- `ConnectionLifecycle` opens and closes the connection;
- `Attachments` knows the sessions and links, `AttachReplies` answers attaches, `LinkEnds` ends both;
- `IncomingMessages` reads messages that come in parts or over new links, `OutgoingStreams` sends long ones in pieces;
- `DeliverySettlement` settles what is not simply accepted, `TransactionAnswers` answers what came in a transaction;
- `FlowAnswers` answers what flows ask for;
- `UnsettledDeliveries` are those that were sent, as far as a look at them or their end goes past the engine;
- `PendingChanges` holds what the next output has to say and the engine can't: it is written into the engine's frames.

A part knows those that it was made with, never the endpoint, so that there are no reference cycles. This module must
not know queues or subscriptions. Source: AMQP 1.0 part 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from penstock_amqp.endpoint import conditions
from penstock_amqp.endpoint.attach_replies import AttachReplies
from penstock_amqp.endpoint.attachments import Attachments
from penstock_amqp.endpoint.buffers import OUTPUT_VIEW, Ptr
from penstock_amqp.endpoint.connection_lifecycle import ConnectionLifecycle
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import AmqpError, Entry, Event
from penstock_amqp.endpoint.flow_answers import FlowAnswers
from penstock_amqp.endpoint.freed_parts import NO_CALL, NO_PART
from penstock_amqp.endpoint.incoming_messages import IncomingMessages, end_input
from penstock_amqp.endpoint.input import UNBOUNDED, Input
from penstock_amqp.endpoint.link_ends import LinkEnds
from penstock_amqp.endpoint.links import InLink, OutLink, PartialMemory, Session
from penstock_amqp.endpoint.outgoing_streams import OutgoingStreams, Stream
from penstock_amqp.endpoint.output_changes import PendingChanges
from penstock_amqp.endpoint.proton import deliveries, links
from penstock_amqp.endpoint.proton.compiled_engine import engine_of
from penstock_amqp.endpoint.proton.connection import ProtonConnection
from penstock_amqp.endpoint.session_window import kept_back
from penstock_amqp.endpoint.settlement import DeliverySettlement
from penstock_amqp.endpoint.transaction_answers import TransactionAnswers
from penstock_amqp.endpoint.unsettled_deliveries import UnsettledDeliveries
from penstock_amqp.frames import performatives
from penstock_amqp.frames.input_gate import InputGate
from penstock_amqp.frames.input_tap import InputTap
from penstock_amqp.types.values import Value

__all__ = ["Endpoint"]

MANY_LINKS: Final = 200
"""To free so many takes half a millisecond."""


class Endpoint:
    """The server's end of one connection. Not thread-safe; all endpoints of the process share the buffers."""

    __slots__ = (
        "_attachments",
        "_connection",
        "_ends",
        "_max_message_bytes",
        "_outgoing",
        "_replies",
        "_settlement",
        "_state",
        "accept",
        "acquiring",
        "changes",
        "engine",
        "flows",
        "input",
        "output",
        "receive",
        "sockets",
        "streams",
        "transactions",
        "unsettled",
        "watch_requests",
    )

    def __init__(
        self,
        *,
        max_frame: int = 65_536,
        idle_timeout_ms: int = 60_000,
        max_message_bytes: int,
        max_sessions: int = 256,
        incoming: PartialMemory | None = None,
        make_engine: Callable[[ProtonConnection], Engine] = engine_of,
    ) -> None:
        """`max_frame`, `max_message_bytes`: longest frame and message that we accept, in bytes. `idle_timeout_ms`:
        silence after which the peer is taken for dead; half of it is announced; 0: never. `incoming` counts what is in
        memory of incomplete messages, for all endpoints that share it.
        """
        self._max_message_bytes = max_message_bytes
        self._connection = connection = ProtonConnection(
            max_frame=max_frame, idle_timeout_ms=idle_timeout_ms, max_sessions=max_sessions
        )
        self.engine = engine = make_engine(connection)
        tap, gate = InputTap(engine.room()), InputGate(max_frame)
        self.changes = changes = PendingChanges()
        """While its `are_pending` is true, the engine's output lacks something: send `rewritten_output`, not `output`.
        """
        self._attachments = attachments = Attachments(
            engine,
            tap,
            gate,
            changes,
            max_frame=max_frame,
            max_message_bytes=max_message_bytes,
            max_sessions=max_sessions,
            incoming=incoming,
        )
        self._state = ConnectionLifecycle(
            connection, engine, tap, attachments=attachments, changes=changes, max_frame=max_frame
        )
        self._settlement = DeliverySettlement(engine)
        self.transactions = TransactionAnswers(engine, self._settlement)
        """Answers to what the peer sends in a transaction."""
        self._replies = AttachReplies(engine, changes, self._settlement)
        self._outgoing = OutgoingStreams(engine)
        self._ends = LinkEnds(
            engine,
            changes,
            attachments,
            replies=self._replies,
            settlement=self._settlement,
            outgoing=self._outgoing,
        )
        self.acquiring = self._outgoing
        """Its `send` and `send_as` are those for a link with an `acquisition`."""
        self.streams: Mapping[OutLink, Stream] = self._outgoing.by_link
        """Messages that links are sending in pieces: call `advance_streams` while there are any."""
        self.flows = FlowAnswers(engine, tap, attachments, self._outgoing)
        self.unsettled = UnsettledDeliveries(engine, self._outgoing, self._settlement, self.flows)
        """Deliveries that were sent and are not settled, and what ends them."""
        incoming_messages = IncomingMessages(engine, tap, attachments, self.streams)
        self.watch_requests = incoming_messages.watch_requests
        self.input = Input(
            engine,
            gate,
            tap,
            state=self._state,
            attachments=attachments,
            flows=self.flows,
            incoming=incoming_messages,
            settlement=self._settlement,
        )
        # What runs once per read or message is called on its part at once, without a method of this class between them.
        self.receive = self.input.receive
        self.accept = engine.accept  # until a link settles second
        self.output = engine.output
        self.sockets = engine.sockets()
        """What reads and writes a plain socket at once; None: `output` and `receive` have to serve."""

    # Input: and `receive`

    def receive_bytes(self, data: bytes, out: list[Event], budget: int = UNBOUNDED) -> int:
        """`receive` for bytes that are not in `buffers.INPUT` yet (TLS, what followed a SASL dialogue)."""
        return self.input.receive_bytes(data, out, budget)

    def keep_unheard(self) -> None:
        """An exception came while something was read: a delivery whose outcome nobody has heard of stays with those
        that are unsettled, to be given back with the connection.
        """
        self.engine.keep_told()

    @property
    def is_awaited(self) -> bool:
        """The peer's Open waits for our answer. What the peer sent after its Open is not read before that."""
        return self._state.is_awaited

    def tick(self, now_ms: int, out: list[Event]) -> int:
        """Send heartbeats, notice a silent peer, settle what it should have settled; return when to call again (same
        clock), 0 for never.
        """
        deadline = self._connection.tick(now_ms)
        self.input.drain(out)
        return now_ms + 1 if self._settlement.settle_overdue() else deadline

    @property
    def peer_idle_time_out_ms(self) -> int:
        """The silence of ours that the peer does not bear, in milliseconds; 0: it bears any, or has not opened yet."""
        return self._state.peer_idle_time_out_ms

    # Connection

    def open(self, container_id: str, offered: Sequence[str], properties: Mapping[str, Value]) -> None:
        """Answer the peer's Open."""
        self._state.open(container_id, offered, properties)

    def refuse_open(self, container_id: str, error: AmqpError) -> None:
        """Answer the peer's Open with one that announces failure, and Close."""
        self._state.refuse_open(container_id, error)

    def close(self, error: AmqpError | None) -> None:
        """Close the connection; `output` still has bytes to send. Repeated calls do nothing."""
        self._state.close(error)

    @property
    def closed(self) -> bool:
        """True once our Close is on its way or the engine gave up; nothing more is sent or received."""
        return self._state.closed

    @property
    def broken(self) -> bool:
        """The engine writes nothing any more although neither side sent a Close. All that can be done is to drop the
        socket.
        """
        return self._state.is_broken

    def fitting(self, error: AmqpError) -> AmqpError:
        """`error` with as much of its description as fits a frame of the peer's, and its info if that fits."""
        return conditions.fitted(error, self.engine.frame_bytes)

    def free(self, later: Callable[[Callable[[], None]], None] | None = None, *, always: bool = False) -> None:
        """Free everything that the engine holds. Whoever calls the endpoint afterwards gets `EndpointFreed`.

        `later`: gets what frees the engine's own memory if that takes long, or in any case (`always`); it may be called
        in another thread.

        All pointers are forgotten before the first object is freed: those of the links and sessions, which the user may
        have kept, and the parts of the endpoint, without which nothing can be done with the pointers of deliveries.
        """
        self._state.closed = True
        links = self._attachments.all_links()
        for link in links:
            if isinstance(link, InLink):
                end_input(link)
        self._outgoing.clear()
        self._settlement.clear()
        self._attachments.clear()
        self.unsettled.clear()
        takes_long = self.engine.has_sent_many or len(links) > MANY_LINKS
        self.engine.free()
        self.engine = self._settlement = self._replies = self._outgoing = self.flows = self.input = NO_PART
        self.unsettled = self.sockets = self.changes = self.acquiring = self.transactions = self._ends = NO_PART
        self.receive = self.accept = self.output = self.watch_requests = NO_CALL
        release = self._connection.let_go()
        if later is not None and (takes_long or always):
            later(release)
        else:
            release()

    # Links and sessions

    def attach_reply(
        self,
        link: InLink | OutLink,
        *,
        source: performatives.Source | None,
        target: performatives.Target | performatives.Coordinator | None,
        offered: tuple[str, ...] = (),
        answers_unsettled: bool = False,
        max_message_bytes: int = 0,
        sends_settled: bool = False,
        settles_second: bool = False,
        peer_settles: int | None = None,
    ) -> None:
        """Answer an attach with the source and target that really exist. `offered`: the link's offered capabilities.
        With `answers_unsettled` the reply has an empty unsettled map: no delivery is resumed.

        If the peer receives: with `sends_settled` we send all deliveries settled; with `settles_second` the peer
        settles what it accepted only after we have settled it (`unsettled.confirm`). If the peer sends: `peer_settles`
        is the settle mode that it announced, which is its choice; with `settles_second` we settle a delivery that we
        answered only after the peer has settled it, or in the second `tick` after the answer, otherwise together with
        the answer.
        """
        if isinstance(link, InLink):
            self._replies.accept_producer(
                link,
                source,
                target,
                max_message_bytes=max_message_bytes or self._max_message_bytes,
                peer_settles=peer_settles,
                settles_second=settles_second,
            )
            if settles_second:
                self.accept = self._settlement.accept
        else:
            self._replies.accept_consumer(
                link, source, target, sends_settled=sends_settled, settles_second=settles_second
            )
        self._replies.open(link, offered, answers_unsettled=answers_unsettled)

    def refuse_attach(self, link: InLink | OutLink, error: AmqpError) -> None:
        """Answer an attach with a null source (of a receiver) or target (of a sender), then a closing detach."""
        self.detach(link, closed=True, error=error)

    def detach(self, link: InLink | OutLink, *, closed: bool, error: AmqpError | None = None) -> None:
        """Detach or close a link, as an answer or on our own initiative. The link is gone then, and its unsettled
        deliveries are forgotten without an answer. If its attach has no answer yet, this refuses the attach.
        """
        if link.is_open:
            self._ends.detach(link, closed=closed, error=error)

    def end(self, session: Session) -> None:
        """Answer the peer's End. The session is gone with its links; their unsettled deliveries are settled."""
        self._ends.end(session)

    def all_links(self) -> tuple[InLink | OutLink, ...]:
        """Every link that is attached."""
        return self._attachments.all_links()

    # Messages to the peer: and `unsettled`

    def send(self, link: OutLink, entries: Iterable[Entry], now_us: int) -> None:
        """Send `entries`, at most as many as the link's credit, which the caller counts down."""
        if self.streams and link in self.streams:
            self._outgoing.append(link, entries, now_us)
            return
        unsent = self.engine.send(link, entries, now_us)
        if unsent is not None:
            self._outgoing.begin(link, unsent, now_us)

    def send_as(self, link: OutLink, entry: Entry, data: bytes, now_us: int) -> None:
        """Send `data` in the place of the entry's own bytes (a rewritten header)."""
        # Every message with a time to live comes this way, so there is no call that is not needed.
        if self.streams:
            self._outgoing.send_as(link, entry, data, now_us)
            return
        delivery = self.engine.send_as(link, entry, data, now_us)
        if delivery is not None:
            self._outgoing.begin_as(link, delivery, entry, data, now_us)

    def advance_streams(self, most: int, held_back: int, out: list[Event]) -> bool:
        """Send about `most` bytes more of the messages that go out in pieces; False if none made progress. A session
        for which the engine holds more than `held_back` bytes is skipped. Raises OSError if a message can't be read;
        the connection can't be used any more then.
        """
        return self._outgoing.advance(most, held_back, out, self.flows.drained)

    def is_congested(self, link: OutLink, limit: int) -> bool:
        """True if nothing should be handed over for this link now: the engine holds more than `limit` bytes that the
        peer's session window keeps back, or a message is being sent in pieces.
        """
        if self.streams and link in self.streams:
            return True
        session = link.session
        return links.outgoing_bytes(session.ptr) > limit and kept_back(session, self.streams) > limit

    def drained(self, link: OutLink) -> bool:
        """No message is left for a consumer that drains: give its credit back as soon as everything is sent. False: to
        be called again once the peer has sent something, because its session window keeps messages of the link back;
        so it is for each link whose `drain` is still True behind `advance_streams`.
        """
        return self.flows.drained(link)

    # Messages from the peer: and `accept` and `transactions`, only for deliveries of open links (`InLink.is_open`)

    def settle(self, received: Iterable[Ptr]) -> None:
        """Settle what the sender settled already."""
        self.engine.settle(received)

    def reject(self, received: Iterable[Ptr], error: AmqpError) -> None:
        """Reject and settle."""
        self._settlement.reject(received, error)

    def credit(self, link: InLink, count: int) -> None:
        """Let the peer send `count` messages more. Credit for deliveries that the peer has still to settle is given
        once it has.
        """
        self._settlement.credit(link, count)

    def tag_of(self, received: Ptr) -> bytes:
        """The delivery-tag of a delivery that is not settled yet."""
        return deliveries.tag_of(received)

    # Output: and `output`

    def rewritten_output(self) -> bytes:
        """All that is to be sent, with what the engine can't say written into its frames (`output_changes`).

        For a turn in which `changes.are_pending` is true; `output` must have been drained before the attach reply.
        """
        pieces = [OUTPUT_VIEW[:size].tobytes() for size in iter(self.engine.output, 0)]
        return self.changes.apply(b"".join(pieces), self._state.peer_max_frame)

    def echoes(self) -> bytes:
        """The flow frames that we owe the peer: the engine does not see that they were asked for."""
        if self._state.closed:
            self.flows.clear()
        return self.flows.take()
