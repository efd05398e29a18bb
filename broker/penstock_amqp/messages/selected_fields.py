"""The fields of an AMQP message that the identifiers of a selector mean, and how their values are read.

Made once for each selector (or for all selectors of an exchange together); `read` then reads only the fields that
it needs. Part of the forwarding path where selectors exist: 5 us for two properties and JMSPriority where
nothing is compiled.

Must not know the selector language. Sources: JMS 2.0, 3.8.1.1; the OASIS mapping of JMS to AMQP 1.0; the forms of
identifiers that are not strings are those of the Qpid JMS client.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import penstock_native
from penstock_amqp.messages.fields import CLASSES, Field, application_properties, encoded_keys, properties_field
from penstock_amqp.messages.message_head import Head
from penstock_amqp.messages.sections import Section
from penstock_amqp.types.values import ULong, Value

__all__ = ["Selectable", "SelectedFields"]

Selectable: TypeAlias = bool | int | float | str
"""What a selector can compare. A value of any other type counts as absent."""

_native: Any = penstock_native.messages
_APPLICATION = Section.APPLICATION_PROPERTIES  # an attribute of an enum's class takes long to find

_SELECTABLE = (str, int, float)  # a union would be made anew for each message; a bool is an int

_TYPED = ("AMQP_BINARY:", "AMQP_UUID:", "AMQP_ULONG:", "AMQP_STRING:", "AMQP_NO_PREFIX:")


def _typed_id(identifier: Value) -> str | None:
    """Write an identifier that is not a string in the form of the JMS client."""
    match identifier:
        case uuid.UUID():
            return f"ID:AMQP_UUID:{identifier}"
        case ULong():
            return f"ID:AMQP_ULONG:{int(identifier)}"
        case bytes():
            return f"ID:AMQP_BINARY:{identifier.hex().upper()}"
        case _:
            return None


def _message_id(identifier: Value) -> str | None:
    if not isinstance(identifier, str):
        return _typed_id(identifier)
    if not identifier.startswith("ID:"):
        return f"ID:AMQP_NO_PREFIX:{identifier}"
    return _escaped(identifier)


def _correlation_id(identifier: Value) -> str | None:
    return _escaped(identifier) if isinstance(identifier, str) else _typed_id(identifier)


def _escaped(identifier: str) -> str:
    """Add a prefix to a string that looks like the text form of another type."""
    if identifier.startswith(tuple("ID:" + prefix for prefix in _TYPED)):
        return f"ID:AMQP_STRING:{identifier}"
    return identifier


def _user_id(user: Value) -> str | None:
    return user.decode(errors="replace") if isinstance(user, bytes) else None


def _plain(value: Value) -> Selectable | None:
    return value if isinstance(value, _SELECTABLE) else None


_HEADER: dict[str, Callable[[Head], Selectable]] = {
    "JMSDeliveryMode": lambda head: "PERSISTENT" if head.durable else "NON_PERSISTENT",
    "JMSPriority": lambda head: head.priority,
    "JMSXDeliveryCount": lambda head: head.delivery_count + 1,
}

_PROPERTIES: dict[str, tuple[Field, Callable[[Value], Selectable | None]]] = {
    "JMSMessageID": (Field.MESSAGE_ID, _message_id),
    "JMSCorrelationID": (Field.CORRELATION_ID, _correlation_id),
    "JMSType": (Field.SUBJECT, _plain),
    "JMSTimestamp": (Field.CREATION_TIME, _plain),
    "JMSExpiration": (Field.ABSOLUTE_EXPIRY_TIME, _plain),
    "JMSDestination": (Field.TO, _plain),
    "JMSReplyTo": (Field.REPLY_TO, _plain),
    "JMSXUserID": (Field.USER_ID, _user_id),
    "JMSXGroupID": (Field.GROUP_ID, _plain),
    "JMSXGroupSeq": (Field.GROUP_SEQUENCE, _plain),
}


class SelectedFields:
    """The values that the identifiers `names` have in a message."""

    __slots__ = ("_application", "_header", "_properties")

    def __init__(self, names: Iterable[str]) -> None:
        wanted = set(names)
        self._header = [(name, _HEADER[name]) for name in sorted(wanted & set(_HEADER))]
        self._properties = [(name, *_PROPERTIES[name]) for name in sorted(wanted & set(_PROPERTIES))]
        self._application = encoded_keys(wanted - set(_HEADER) - set(_PROPERTIES))

    def read(self, data: bytes, head: Head) -> dict[str, Selectable | None]:
        """Return the value of each identifier that has one; None, or nothing, counts as absent.

        Raises `DecodeError` if the message is malformed.
        """
        found: dict[str, Selectable | None] = {}
        if self._application:
            found = NotImplemented
            if _native is not None:  # it knows no other types than those that a selector can compare
                found = _native.picked(data, head.start, _APPLICATION, self._application, CLASSES)
            if found is NotImplemented:
                applied = application_properties(data, head.start, self._application)
                found = {name: _plain(raw) for name, raw in applied.items()}
        for name, of in self._header:
            found[name] = of(head)
        for name, field, convert in self._properties:
            value = convert(properties_field(data, head.start, field))
            if value is not None:
                found[name] = value
        return found
