"""What a message says about its own times: absolute expiry, delivery time, delay; and the same message without them.

Part of the forwarding path. Most messages have no such times, and two quick checks show it: no annotation asks for a
later delivery, and the properties list is too short for an absolute expiry, or has a null in its place.

Must not know what the broker does with the times (`penstock_core.message_times`). Source: AMQP 1.0 part 3, 3.2.3 and
3.2.4; annotations `x-opt-delivery-time` (JMS clients; milliseconds since the epoch) and `x-opt-delivery-delay`
(milliseconds).
"""

from __future__ import annotations

from typing import Final

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import fields
from penstock_amqp.messages.fields import Field
from penstock_amqp.messages.message_head import Head, replace_head, with_header
from penstock_amqp.messages.sections import Section, end_of, find_section, section_at
from penstock_amqp.types.decoder import decode
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described, Symbol, ULong, Value
from penstock_core.message_times import NO_REQUESTED_TIMES, RequestedTimes

__all__ = [
    "DELAYS",
    "absolute_expiry",
    "expiry_and_group",
    "may_expire",
    "may_wait",
    "requested_times",
    "without_expiry",
]

_TIME: Final = "x-opt-delivery-time"
_DELAY: Final = "x-opt-delivery-delay"
DELAYS: Final = frozenset((_TIME, _DELAY))
"""The annotations that ask for a later delivery."""
_COMMON: Final = b"x-opt-delivery-"
_KEYS: Final = {encode(Symbol(key)): key for key in (_TIME, _DELAY)}


def requested_times(data: bytes, head: Head) -> RequestedTimes:
    """Return the times in the message. Raises `DecodeError` if a section on the way is malformed."""
    delivery_time = delivery_delay = absolute = None
    section, at = section_at(data, head.start)
    if section is Section.MESSAGE_ANNOTATIONS:
        end = end_of(data, at)
        if may_wait(data, at, end):
            found = fields.picked_annotations(data, head.start, _KEYS)
            delivery_time, delivery_delay = _integer(found.get(_TIME)), _integer(found.get(_DELAY))
        section, at = section_at(data, end)
    if section is Section.PROPERTIES and may_expire(data, at):
        absolute = absolute_expiry(data, head.start)
    if delivery_time is delivery_delay is absolute is None:
        return NO_REQUESTED_TIMES
    return RequestedTimes(absolute, delivery_time, delivery_delay)


def may_wait(data: bytes, at: int, end: int) -> bool:
    """False if the annotations between these offsets ask for no later delivery."""
    return data.find(_COMMON, at, end) >= 0


def may_expire(data: bytes, at: int) -> bool:
    """False if the properties list at this offset has no absolute expiry; True if it has to be read.

    JMS clients end the list with the creation time (9 bytes, 0x83 first), the absolute expiry before it: a null there
    is distinguished from the last byte of a time by the byte 8 bytes before it. Raises `DecodeError` if the list is cut
    short.
    """
    try:
        if data[at] != 0xC0:
            return data[at] != 0x45
        count = data[at + 2]
        if count <= Field.ABSOLUTE_EXPIRY_TIME:
            return False
        end = at + 2 + data[at + 1]
        is_null = count == Field.CREATION_TIME + 1 and data[end - 10] == 0x40 and data[end - 18] != 0x83
        return not (is_null and data[end - 9] == 0x83)
    except IndexError:
        raise DecodeError("the message ends within its properties", at) from None


def absolute_expiry(data: bytes, start: int) -> int | None:
    """Return the absolute-expiry-time, milliseconds since the epoch. Raises `DecodeError`."""
    return _integer(fields.properties_field(data, start, Field.ABSOLUTE_EXPIRY_TIME))


def expiry_and_group(data: bytes, start: int) -> tuple[int, bool]:
    """Return the absolute-expiry-time (0: none) and whether the message names a group, in one pass. Raises
    `DecodeError`.
    """
    expiry, is_grouped = fields.expiry_and_group(data, start)
    return (0 if expiry is None else _integer(expiry) or 0), is_grouped


def without_expiry(data: bytes, head: Head) -> bytes:
    """Return the message as a new one: no time to live, no absolute expiry, never delivered. Raises `DecodeError`.

    A client would drop a message whose expiry has passed, though the broker keeps it for inspection.
    """
    properties_at = find_section(data, head.start, Section.PROPERTIES)
    if properties_at >= 0 and absolute_expiry(data, head.start) is not None:
        listed, end = decode(data, properties_at)
        assert isinstance(listed, list), "its field was read"
        changed: list[Value] = [None if at == Field.ABSOLUTE_EXPIRY_TIME else each for at, each in enumerate(listed)]
        begin = _descriptor_of(data, head.start)
        section = encode(Described(ULong(Section.PROPERTIES), changed))
        data = replace_head(data, data[:begin] + section + data[end:])
    return with_header(data, head, ttl=None, delivery_count=0)


def _descriptor_of(data: bytes, start: int) -> int:
    """The offset of the properties section, which must exist."""
    at = start
    while True:
        section, value_at = section_at(data, at)
        if section is Section.PROPERTIES:
            return at
        at = end_of(data, value_at)


def _integer(value: Value) -> int | None:
    """A number of milliseconds, of any integer type; a value of another type is ignored."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
