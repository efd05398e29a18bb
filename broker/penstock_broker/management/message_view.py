"""A waiting message as PEEK returns it: its header, properties and annotations, and the beginning of its body.

What can't be read is left out instead of failing the request: who peeks often looks for a broken message. Source:
docs/reference/management.md.
"""

from __future__ import annotations

from typing import Final, Literal

from penstock_amqp.endpoint.events import AVAILABLE, DATA, NUMBER, Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_amqp.messages.message_codec import Message, decode_message
from penstock_amqp.messages.message_head import is_streamed, streamed
from penstock_amqp.messages.sections import Section, end_of, section_at
from penstock_amqp.types.plain_values import to_plain
from penstock_amqp.types.values import Value
from penstock_api.message_operations import PeekedMessage
from penstock_broker.messages.due_times import deadline
from penstock_broker.queue.queue import Queue, WaitingState

__all__ = ["peeked_message", "text_of"]

BodyKind = Literal["Text", "Bytes", "Value"]

_WIDTHS: Final = {0xA0: 1, 0xA1: 1, 0xB0: 4, 0xB1: 4}
"""Bytes of the size field of a binary or string, by its format code."""

_HIGHEST: Final = 2**63 - 1
"""Numbers of replies are longs; a ulong may be higher."""


def peeked_message(queue: Queue, entry: Entry, state: WaitingState, max_body_bytes: int) -> PeekedMessage:
    """One message of the queue."""
    data = entry[DATA]
    head = message_head.read_head(data)
    read = _read(data)
    properties = read.properties
    body, kind, is_whole = _body(data, head.start, max_body_bytes)
    return PeekedMessage(
        number=entry[NUMBER],
        state=state,
        durable=head.durable,
        priority=head.priority,
        size_bytes=len(data),
        available_ms=entry[AVAILABLE] // 1000,
        expires_ms=deadline(queue, entry) // 1000 or None,
        delivery_count=head.delivery_count + queue.redelivery.delivery_count(entry[NUMBER]),
        message_id=text_of(properties.message_id),
        to=properties.to,
        subject=properties.subject,
        reply_to=properties.reply_to,
        correlation_id=text_of(properties.correlation_id),
        content_type=properties.content_type,
        group_id=properties.group_id,
        annotations={str(key): _plain(value) for key, value in read.annotations.items()},
        application_properties={key: _plain(value) for key, value in read.application_properties.items()},
        body=body,
        body_form="Text" if kind == "Text" else "Hexadecimal",
        body_kind=kind,
        is_whole=is_whole,
    )


def _read(data: bytes) -> Message:
    try:
        return decode_message(data)
    except DecodeError:
        return Message()


def _body(data: bytes, start: int, most: int) -> tuple[str, BodyKind | None, bool]:
    """The beginning of the body, what it is (None if it can't be read), and whether it is the whole body."""
    total = len(data)
    if is_streamed(data):
        try:
            data = streamed(data).read(0, len(data[:]) + most + 16)
        except OSError:  # it is damaged, or the disk can't give it now
            return "", None, False
    try:
        section, at = section_at(data, start)
        while section is not None and section < Section.DATA:
            section, at = section_at(data, end_of(data, at))
        if section is None or section is Section.FOOTER:
            return "", "Text", total == at
        width = _WIDTHS.get(data[at])
        begin = at + 1 + width if width is not None else at
        end = begin + int.from_bytes(data[at + 1 : begin]) if width is not None else end_of(data, at)
    except (DecodeError, IndexError):
        return data[start : start + most].hex(), None, False
    piece = data[begin : min(end, begin + most)]
    is_whole = begin + most >= end and total == end
    if width is None:
        return piece.hex(), "Value", is_whole
    try:
        return _as_text(piece, is_cut=begin + most < end), "Text", is_whole
    except UnicodeDecodeError:
        return piece.hex(), "Bytes", is_whole


def _as_text(piece: bytes, *, is_cut: bool) -> str:
    """The text. The last character may be cut off in its middle. Raises `UnicodeDecodeError` if it is not text."""
    for cut in range(4 if is_cut else 1):
        try:
            text = piece[: len(piece) - cut].decode()
        except UnicodeDecodeError:
            continue
        if text.isprintable() or all(letter.isprintable() or letter in "\r\n\t" for letter in text):
            return text
        break
    raise UnicodeDecodeError("utf-8", piece, 0, 1, "not printable")


def text_of(value: Value) -> str | None:
    """An identifier as text: binary in hexadecimal; None if there is none."""
    return None if value is None else str(_plain(value))


def _plain(value: Value) -> object:
    """The value as a reply can hold it: binary in hexadecimal, as text lists, maps and what is too high for a long."""
    plain = to_plain(value)
    if isinstance(plain, bytes):
        return plain.hex()
    if isinstance(plain, int) and plain > _HIGHEST:
        return str(plain)
    return plain if plain is None or isinstance(plain, bool | int | float | str) else str(plain)
