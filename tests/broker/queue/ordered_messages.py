"""Messages with a priority, a group and a property, for tests of the order in which they are handed out."""

from __future__ import annotations

from support.encoded_messages import amqp_value, described, fields, mapping, string

from penstock_amqp.endpoint.events import Entry
from penstock_amqp.messages.message_head import read_head
from penstock_broker.queue.cursor import SelectorCursor
from penstock_broker.queue.message_prefix import MessagePrefix

__all__ = ["CLOSING", "Somebody", "entry", "message", "order_flags"]

CLOSING = 0xFFFF_FFFF
"""The group-sequence that closes a group."""

NULL = b"\x40"


class Somebody:
    """Takes messages."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.cursor: SelectorCursor | None = None

    def __repr__(self) -> str:
        return self.name


def message(priority: int = 4, group: str | None = None, *, closing: bool = False, colour: str = "") -> bytes:
    header = described(0x70, fields(b"\x42", b"\x50" + bytes((priority,)))) if priority != 4 else b""
    sequence = (b"\x70" + CLOSING.to_bytes(4, "big"),) if closing else ()
    properties = described(0x73, fields(*([NULL] * 10), string(group), *sequence)) if group is not None else b""
    application = described(0x74, mapping(string("colour"), string(colour))) if colour else b""
    return header + properties + application + amqp_value("x")


def order_flags(data: bytes) -> int:
    """The flags that determine the order of a message."""
    return MessagePrefix(data, read_head(data)).look_safely(data)[1]


def entry(number: int, data: bytes | None = None, flags: int = 0) -> Entry:
    data = message() if data is None else data
    return (number, data, 0, 0, flags | order_flags(data))
