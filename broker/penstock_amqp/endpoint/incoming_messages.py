"""The messages that the engine does not hand out: those that come in parts, the first ones of a link, and what comes
beyond a link's credit.

A message that comes in several reads is gathered in memory up to a length, and beyond it in a sink of the user's. The
first messages of a link are checked one by one. The parts of a message that is aborted or too long, or whose link ends,
are dropped. This module must not know where sinks store. Source: AMQP 1.0 part 2, 2.6.7, 2.6.13, 2.6.14 and 2.7.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock_amqp.endpoint.attachments import Attachments, take_up_to
from penstock_amqp.endpoint.buffers import MESSAGE_BYTES, Ptr
from penstock_amqp.endpoint.conditions import AmqpError
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import BeyondCredit, Event, EventKind, MessageAfterDetach, TooLarge, Unstored
from penstock_amqp.endpoint.links import GATHERED_BYTES, InLink, OutLink, PartialMemory, PartialMessage
from penstock_amqp.endpoint.outgoing_streams import Stream
from penstock_amqp.endpoint.proton.deliveries import (
    RELEASED,
    advance,
    is_aborted,
    is_partial,
    is_settled,
    link_of,
    read,
    read_before,
    settle,
    tag_of,
    update,
)
from penstock_amqp.endpoint.proton.links import credit_of, current_of, session_of, unread_bytes
from penstock_amqp.endpoint.transactional_states import named_transaction
from penstock_amqp.errors import DecodeError, ProtocolError
from penstock_amqp.frames import protocol_checks
from penstock_amqp.frames.input_tap import InputTap
from penstock_amqp.frames.performatives import Transfer
from penstock_amqp.messages.message_head import is_streamed
from penstock_amqp.messages.sections import body_at, check_sections

__all__ = ["EARLY_BYTES", "HEAD_BYTES", "SPOOL_BYTES", "IncomingMessages", "end_input"]

SPOOL_BYTES: Final = 1024 * 1024
"""The most bytes of an incomplete message in memory; a longer one goes to a sink."""

SMALL_PART: Final = 2048
"""Parts shorter than this are joined as they come; the others are copied once, when the message is complete."""

BODY_BYTES: Final = 1024
"""The bytes of the body that stay with the sections before it: enough to see that the body begins."""

HEAD_BYTES: Final = 64 * 1024
"""The beginning of a longer message that stays in memory; more if the sections before the body are longer."""

EARLY_BYTES: Final = 4 * 1024
"""The same while the incomplete messages of all connections take too much."""


class IncomingMessages:
    """Reads the messages of one connection that the engine does not hand out by itself."""

    __slots__ = ("_attachments", "_engine", "_requests", "_streams", "_tap", "parts")

    def __init__(
        self, engine: Engine, tap: InputTap, attachments: Attachments, streams: Mapping[OutLink, Stream]
    ) -> None:
        """`streams`: the messages that links are sending in pieces."""
        self._engine = engine
        self._tap = tap
        self._attachments = attachments
        self._streams = streams
        self._requests: list[InLink] = []
        """Those with an `unfinished`; some may be closed."""
        self.parts = 0
        """Number of parts of messages since they were last weighed; whoever weighs them sets it to 0."""

    def arrived(self, received: Ptr, already: int, out: list[Event]) -> None:
        """Read what came of a delivery, of which the engine has read `already` bytes; hand a whole message out.

        Raises `WireError` if a transfer of a new link breaks the protocol.
        """
        link = self._engine.receivers.get(link_of(received))
        if link is None:  # detached by us; the peer does not know yet
            _report_missed(received, out)
            if not is_settled(received):
                self._attachments.leave_unanswered(received)
            settle(received)
            return
        if link.is_answered and self._exceeds_credit(received, link, out):
            return
        is_proven = not link.unproven
        if not is_proven:
            self._check_transfers()
            if link.resumed and self._passes_over(received, link, out):
                return
        data = self._read(received, link, already, out)
        if data is None:
            return
        advance(link.ptr)
        unsound = None if is_proven else _check_message(received, link, data)
        if unsound is not None:
            out.append((EventKind.OTHER, None, unsound))
            return
        if link.unfinished is not None:
            if self._attachments.holds_parts():
                link.unfinished[received] = self._in_part()
            else:
                take_up_to(link, link.max_bytes)  # requests are plain again
        last = out[-1] if out and is_proven else None
        if last is not None and last[0] is EventKind.MESSAGES and last[1] is link:
            last[2].append((received, data, is_settled(received)))
        else:
            out.append((EventKind.MESSAGES, link, [(received, data, is_settled(received))]))

    def watch_requests(self, link: InLink) -> None:
        """Requests come on this link: from now on `InLink.unfinished` says what had come in part when one came."""
        link.unfinished = {}
        self._requests = [each for each in (*self._requests, link) if each.is_open]

    def continued(self, received: Ptr, out: Sequence[Event]) -> None:
        """More came of a delivery that names a transaction and was handed out as a whole: the engine had got the end of
        it before it told of the beginning. Requests that came in between came before its end. Or its sender has
        settled it, which changes nothing. Raises `DecodeError`.
        """
        txn_id = named_transaction(received)
        link = self._engine.receivers.get(link_of(received))
        if txn_id is None or link is None or not self._has_parts(link):
            return
        for event in reversed(out):
            if event[0] is not EventKind.MESSAGES:
                continue
            if event[1] is link:
                break
            unfinished = event[1].unfinished
            if unfinished is not None:
                for request, _, _ in event[2]:
                    unfinished.setdefault(request, set()).add(txn_id)

    def _has_parts(self, link: InLink) -> bool:
        """Whether a message that takes several transfers has begun to come on the link in the current chunk."""
        frames = self._tap.performatives((Transfer.CODE,)) if self._tap.is_current else ()
        transfers = [(channel, frame) for channel, frame in frames if isinstance(frame, Transfer) and frame.more]
        return any(self._attachments.at_handle(channel, frame.handle) is link for channel, frame in transfers)

    def _in_part(self) -> set[bytes]:
        """The transactions that are named by messages which have begun to come and are not whole."""
        deliveries = (link.partial.delivery for link in self._engine.receivers.values())
        return {name for name in map(named_transaction, deliveries) if name is not None}

    def check_astray(self, delivery: Ptr) -> None:
        """Something came of a delivery of a link on which we send, and it is none that was sent as a whole. Raises
        `ProtocolError` if it is a transfer: the engine would keep what the peer sends there, and send it back.
        """
        ptr = link_of(delivery)
        link = self._attachments.at(ptr)
        stream = self._streams.get(link) if isinstance(link, OutLink) else None
        if stream is not None and stream.delivery == delivery:
            return  # a disposition, before the peer has all of it
        if current_of(ptr) == delivery or unread_bytes(session_of(ptr)):
            told = "A transfer came on a link on which you receive; attach a link on which you send."
            raise ProtocolError("amqp:not-allowed", told, link.session.channel if link is not None else None)

    def _check_transfers(self) -> None:
        """Check the transfers of new links in the current chunk. Raises `WireError`."""
        if not self._tap.is_current:
            return
        for channel, transfer in self._tap.take_transfers():
            link = self._attachments.at_handle(channel, transfer.handle)
            if isinstance(link, InLink) and link.unproven:
                if transfer.resume and transfer.delivery_tag is not None:
                    link.resumed = {transfer.delivery_tag, *(link.resumed or ())}
                link.first_transfer = protocol_checks.check_transfer(
                    link.first_transfer, transfer, settles_second=link.second is not None
                )

    def _exceeds_credit(self, received: Ptr, link: InLink, out: list[Event]) -> bool:
        """Drop a delivery for which the peer had no credit, and all that follow on its link, without an outcome: only
        the detach tells of them. Before its attach is answered, a peer is given the credit of the answer in advance.
        """
        if credit_of(link.ptr) > 0 and not link.is_beyond_credit:
            return False
        if link.is_beyond_credit:
            _report_missed(received, out)
        else:
            link.is_beyond_credit = True
            _drop_partial(link)
            out.append((EventKind.OTHER, None, BeyondCredit(link, named_transaction(received))))
        while read(link.ptr):
            pass
        if not is_partial(received):
            advance(link.ptr)
        return True

    def _passes_over(self, received: Ptr, link: InLink, out: list[Event]) -> bool:
        """Release a delivery that the peer resumes and that we don't know: the peer may send it again. False for any
        other.
        """
        tag = tag_of(received)
        if link.resumed is None or tag not in link.resumed or is_aborted(received):
            return False
        while read(link.ptr):
            pass
        if not is_partial(received):
            link.resumed.discard(tag)
            _report_missed(received, out)
            advance(link.ptr)
            update(received, RELEASED)
            settle(received)
            link.limit += 1
            self._engine.credit(link, 1)
        return True

    def _read(self, received: Ptr, link: InLink, already: int, out: list[Event]) -> bytes | None:
        """The message once it is whole; None if there is none (yet)."""
        is_unfinished = is_partial(received)
        is_part = is_unfinished or link.partial.delivery is not None
        beginning = read_before(already) if already else b""
        if not is_part and not already and not is_aborted(received):
            beginning = read(link.ptr, link.read_bytes)
            if len(beginning) < link.read_bytes:
                return beginning
        message = self._gather(received, link, beginning, out, is_unfinished=is_unfinished)
        if is_part and message is None:
            self.parts += 1
        return message

    def _gather(
        self, received: Ptr, link: InLink, beginning: bytes, out: list[Event], *, is_unfinished: bool
    ) -> bytes | None:
        """Append the new part to the earlier ones; return the message once it is complete. `beginning`: bytes that are
        read already; `is_unfinished`: more parts are to come.
        """
        if is_aborted(received):
            self._drop(received, link)
            return None
        partial = link.partial
        if partial.delivery is None:
            partial.delivery = received
            partial.memory.messages += 1
            if is_unfinished:
                for each in self._requests:
                    each.read_bytes = 1  # so that no request is plain
        if beginning:
            _take(link, beginning, out)
        while piece := read(link.ptr):
            _take(link, piece, out)
            if len(piece) < MESSAGE_BYTES:
                break
        if is_unfinished:
            return None
        if partial.bytes > link.max_bytes:
            _drop_partial(link)
            advance(link.ptr)  # and no answer: a settlement without an outcome could be taken for success
            return None
        head = b"".join(partial.parts)
        sink = partial.sink
        _drop_partial(link)
        if sink is None:
            return head
        message = sink.finish(head)
        if isinstance(message, bytes):
            return message
        advance(link.ptr)
        unstored = Unstored(link, received, is_settled(received), message, named_transaction(received))
        out.append((EventKind.OTHER, None, unstored))
        return None

    def _drop(self, received: Ptr, link: InLink) -> None:
        """Drop a delivery without an event, and give its credit back to the sender."""
        _drop_partial(link)
        advance(link.ptr)
        settle(received)
        if link.max_bytes:
            link.limit += 1
            self._engine.credit(link, 1)


def _drop_partial(link: InLink) -> None:
    """Drop the parts of an incomplete message."""
    partial = link.partial
    if partial.parts:
        _keep(link, b"")
    if partial.delivery is not None:
        partial.memory.messages -= 1
    partial.sink, partial.delivery = None, None
    partial.bytes = 0


def end_input(link: InLink) -> None:
    """The link ends: its incomplete message is dropped, and no other one comes."""
    _drop_partial(link)
    link.spool = None


def _report_missed(received: Ptr, out: list[Event]) -> None:
    """Report a message for a link that we have detached, if it names a transaction: that must not commit without it."""
    txn_id = named_transaction(received)
    if txn_id is not None:
        out.append((EventKind.OTHER, None, MessageAfterDetach(txn_id)))


def _check_message(received: Ptr, link: InLink, data: bytes) -> Unstored | None:
    """Check a message of a new link, and count it; return why it is refused if its sections are not those
    of a message.
    """
    is_decoded = link.is_answered and link.spool is None  # a user without sinks decodes each message
    link.unproven = 0 if is_decoded else link.unproven - 1
    if is_decoded or is_streamed(data):
        return None
    try:
        check_sections(data, 0)
    except (DecodeError, IndexError) as error:
        told = AmqpError("amqp:decode-error", f"The message can't be read: {error}")
        return Unstored(link, received, is_settled(received), told, named_transaction(received))
    return None


def _take(link: InLink, data: bytes, out: list[Event]) -> None:
    partial = link.partial
    partial.bytes += len(data)
    if partial.bytes > link.max_bytes or _is_too_much(link, len(data)):
        if link.max_bytes:
            _keep(link, b"")
            partial.sink = None
            link.max_bytes = 0  # report it only once
            out.append((EventKind.OTHER, None, TooLarge(link, named_transaction(partial.delivery))))
    elif partial.sink is not None:
        partial.sink.append(data)
    elif link.spool is not None and _outgrows(link, data):
        whole = b"".join([*partial.parts, data])
        _keep(link, _head_of(whole, EARLY_BYTES if _is_early(partial.memory, len(data)) else HEAD_BYTES))
        partial.sink = link.spool()
        partial.sink.append(whole)
    else:
        _append(partial, data)


def _append(partial: PartialMessage, data: bytes) -> None:
    """Keep `data` in memory. Small parts in a row become one: otherwise a message of parts of one byte would take fifty
    times its size.
    """
    partial.memory.change(len(data))
    parts = partial.parts
    if parts and len(data) < SMALL_PART and len(parts[-1]) < SMALL_PART:
        last = parts[-1] = bytearray(parts[-1]) if isinstance(parts[-1], bytes) else parts[-1]
        last += data
    else:
        parts.append(data)


def _outgrows(link: InLink, data: bytes) -> bool:
    """Whether a message now goes to a sink. If it does so early, its sections must be complete, because the head holds
    them.
    """
    if link.partial.bytes > SPOOL_BYTES:
        return True
    memory = link.partial.memory
    is_early = _is_early(memory, len(data))
    if link.partial.bytes <= (EARLY_BYTES if is_early else HEAD_BYTES):
        return False
    if not is_early and not memory.is_full(len(data)):
        return False
    try:
        return body_at(b"".join(link.partial.parts)) is not None
    except DecodeError:
        return True


def _is_early(memory: PartialMemory, more: int) -> bool:
    """Whether the incomplete messages of all connections take too much."""
    return memory.whole is not None and memory.whole.is_full(more)


def _is_too_much(link: InLink, more: int) -> bool:
    return link.spool is None and link.partial.memory.bytes + more > 2 * GATHERED_BYTES


def _keep(link: InLink, head: bytes) -> None:
    link.partial.memory.change(len(head) - sum(map(len, link.partial.parts)))
    link.partial.parts = [head] if head else []


def _head_of(whole: bytes, least: int) -> bytes:
    """What stays in memory of a long message: more than `least` only if the sections before the body are longer."""
    try:
        body = body_at(whole[:HEAD_BYTES]) or body_at(whole[:SPOOL_BYTES])
    except DecodeError:
        body = None  # the sink reports it
    return whole[: min(max(least, body + BODY_BYTES), SPOOL_BYTES)] if body is not None else whole[:SPOOL_BYTES]
