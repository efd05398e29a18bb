"""Messages that come in more than one read: gathered in memory up to a length, beyond it in a sink of the user's.

What came of a message that is aborted, is too long, or whose link goes is dropped. Must not know where sinks store.
Source: AMQP 1.0 part 2, 2.6.14 (multi-frame transfers, aborted) and 2.7.5.
"""

from __future__ import annotations

from typing import Final

from penstock_amqp.endpoint.buffers import (
    MESSAGE,
    MESSAGE_BYTES,
    RELEASED,
    Ptr,
    delivery_aborted,
    delivery_partial,
    delivery_settle,
    delivery_settled,
    delivery_tag,
    delivery_update,
    link_advance,
    link_flow,
    link_recv,
    unpack,
)
from penstock_amqp.endpoint.conditions import AmqpError
from penstock_amqp.endpoint.events import Event, EventKind, Missed, TooLarge, Unstored
from penstock_amqp.endpoint.links import InLink
from penstock_amqp.endpoint.transactional_states import named_transaction
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.message_head import is_streamed
from penstock_amqp.messages.sections import body_at, check_sections

__all__ = ["GATHERED_BYTES", "HEAD_BYTES", "SPOOL_BYTES", "forget", "missed", "passed_over", "proven", "receive"]

SPOOL_BYTES: Final = 1024 * 1024
"""What may be in memory of a message that is still coming; a longer one goes to a sink."""

GATHERED_BYTES: Final = 16 * 1024 * 1024
"""What may be in memory of all messages that are still coming on a connection: beyond it, those longer than
`HEAD_BYTES` go to sinks. Where there is no sink twice as much may be, and what would be more ends its link.
"""

SMALL_PART: Final = 2048
"""Parts of a message below this are put together as they come: the others are copied once, when it is whole."""

BODY_BYTES: Final = 1024
"""Of the body, what stays with the sections before it: enough to see that it begins."""

HEAD_BYTES: Final = 64 * 1024
"""The beginning of a longer message that stays in memory; more if the sections before the body take more."""


def receive(received: Ptr, link: InLink, out: list[Event], already: int = 0) -> bytes | None:
    """Read what came of the link's current delivery; the message once it is whole, None if there is none (yet).

    `already`: so many bytes of it were read into `MESSAGE` before.
    """
    if delivery_aborted(received):
        _drop(received, link)
        return None
    link.arriving = received
    if already:
        _take(link, unpack(MESSAGE, already), out)
    while (size := link_recv(link.ptr, MESSAGE, MESSAGE_BYTES)) > 0:
        _take(link, unpack(MESSAGE, size), out)
    if delivery_partial(received):
        return None
    if link.part_bytes > link.max_bytes:
        _drop(received, link)
        return None
    head = b"".join(link.parts)
    sink = link.sink
    forget(link)
    if sink is None:
        return head
    message = sink.finish(head)
    if isinstance(message, bytes):
        return message
    link_advance(link.ptr)
    in_transaction = named_transaction(received)
    out.append((EventKind.OTHER, None, Unstored(link, received, delivery_settled(received), message, in_transaction)))
    return None


def missed(received: Ptr, out: list[Event]) -> None:
    """A message for a link that we have detached: the peer does not know yet, and its transaction has to."""
    txn_id = named_transaction(received)
    if txn_id is not None:
        out.append((EventKind.OTHER, None, Missed(txn_id)))


def passed_over(received: Ptr, link: InLink, out: list[Event]) -> bool:
    """Release a delivery that the peer resumes, which we know nothing of: it may send it anew. False for any other."""
    tag = delivery_tag(received)
    if link.resumed is None or tag not in link.resumed or delivery_aborted(received):
        return False
    while link_recv(link.ptr, MESSAGE, MESSAGE_BYTES) > 0:
        pass
    if not delivery_partial(received):
        link.resumed.discard(tag)
        missed(received, out)
        link_advance(link.ptr)
        delivery_update(received, RELEASED)
        delivery_settle(received)
        link_flow(link.ptr, 1)
    return True


def proven(received: Ptr, link: InLink, data: bytes) -> Unstored | None:
    """Count a message of a new link as looked at; why it can't be taken if its sections are not those of a message."""
    link.unproven = link.unproven - 1 if link.spool is not None else 0  # whoever keeps messages whole decodes them
    if link.spool is None or is_streamed(data):
        return None
    try:
        check_sections(data, 0)
    except (DecodeError, IndexError) as error:
        told = AmqpError("amqp:decode-error", f"The message can't be read: {error}")
        return Unstored(link, received, delivery_settled(received), told, named_transaction(received))
    return None


def _take(link: InLink, data: bytes, out: list[Event]) -> None:
    link.part_bytes += len(data)
    if link.part_bytes > link.max_bytes or _is_too_much(link, len(data)):
        if link.max_bytes:
            _keep(link, b"")
            link.sink = None
            link.max_bytes = 0  # say it once
            out.append((EventKind.OTHER, None, TooLarge(link, named_transaction(link.arriving))))
    elif link.sink is not None:
        link.sink.append(data)
    elif link.spool is not None and _outgrows(link, data):
        whole = b"".join([*link.parts, data])
        _keep(link, _head_of(whole))
        link.sink = link.spool()
        link.sink.append(whole)
    else:
        _gather(link, data)


def _gather(link: InLink, data: bytes) -> None:
    """Small parts in a row become one: a message of parts of one byte shall not take fifty times its size."""
    link.gathering.bytes += len(data)
    parts = link.parts
    if parts and len(data) < SMALL_PART and len(parts[-1]) < SMALL_PART:
        last = parts[-1] = bytearray(parts[-1]) if isinstance(parts[-1], bytes) else parts[-1]
        last += data
    else:
        parts.append(data)


def _outgrows(link: InLink, data: bytes) -> bool:
    """Whether a message is not kept in memory any longer; an early one has its sections, which the head has to hold."""
    if link.part_bytes > SPOOL_BYTES:
        return True
    if link.part_bytes <= HEAD_BYTES or link.gathering.bytes + len(data) <= GATHERED_BYTES:
        return False
    try:
        return body_at(b"".join(link.parts)) is not None
    except DecodeError:
        return True


def _is_too_much(link: InLink, more: int) -> bool:
    return link.spool is None and link.gathering.bytes + more > 2 * GATHERED_BYTES


def _keep(link: InLink, head: bytes) -> None:
    link.gathering.bytes += len(head) - sum(map(len, link.parts))
    link.parts = [head] if head else []


def _head_of(whole: bytes) -> bytes:
    """What stays in memory of a long message: more than usual only if the sections before the body take it."""
    try:
        body = body_at(whole[:HEAD_BYTES]) or body_at(whole[:SPOOL_BYTES])
    except DecodeError:
        body = None  # the sink says so
    return whole[: min(max(HEAD_BYTES, body + BODY_BYTES), SPOOL_BYTES)] if body is not None else whole[:SPOOL_BYTES]


def _drop(received: Ptr, link: InLink) -> None:
    """Nobody hears of this delivery; its credit is the sender's again."""
    forget(link)
    link_advance(link.ptr)
    delivery_settle(received)
    if link.max_bytes:
        link_flow(link.ptr, 1)


def forget(link: InLink) -> None:
    """Drop what came so far of a message."""
    if link.parts:
        _keep(link, b"")
    link.sink, link.arriving = None, None
    link.part_bytes = 0
