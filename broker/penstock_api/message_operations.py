"""Requests to ``$management`` that work on messages of one queue: PEEK, PURGE, MOVE and REDRIVE.

A request names a `penstock.queue`, or a `penstock.subscription` by its queue's name. Messages that are delivered and
not settled are never touched. docs/reference/management.md says how the operations behave; the terms are those of
`penstock_api.management`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock_api.management import ManagementDocument, Name, Request

__all__ = ["HandledMessages", "MessageSelection", "PeekReply", "PeekRequest", "PeekedMessage"]

MAX_PEEKED = 100
"""Largest number of messages in one reply to PEEK."""


class PeekRequest(Request):
    """Body of PEEK: which messages to show, in the order in which consumers would get them. They stay in the queue."""

    offset: int = Field(default=0, ge=0)  # matching messages to skip first
    count: int = Field(default=10, ge=1, le=MAX_PEEKED)
    selector: str | None = Field(default=None, max_length=8192)
    max_body_bytes: int = Field(default=1024, ge=0, le=65_536)


class PeekedMessage(ManagementDocument):
    """One waiting message. Annotations and properties that are not JSON values are shown as text."""

    number: int
    state: Literal["Ready", "Scheduled", "Stranded"]
    durable: bool
    priority: int
    size_bytes: int
    available_ms: int
    expires_ms: int | None = None
    delivery_count: int = 0
    message_id: str | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    group_id: str | None = None
    annotations: dict[str, object] = Field(default_factory=dict[str, object])
    application_properties: dict[str, object] = Field(default_factory=dict[str, object])
    body: str = ""  # a text is shown as it is, anything else in hexadecimal
    body_form: Literal["Text", "Hexadecimal"] = "Text"
    body_kind: Literal["Text", "Bytes", "Value"] | None = (
        None  # Value: `body` is an encoded AMQP value; absent: not known
    )
    is_whole: bool = True  # False: the body is longer than `max_body_bytes`


class PeekReply(ManagementDocument):
    """Reply to PEEK."""

    messages: tuple[PeekedMessage, ...]
    depth: int


class MessageSelection(Request):
    """Body of PURGE and REDRIVE, and with `destination` of MOVE: which messages, oldest first."""

    count: int | None = Field(default=None, ge=1)  # largest number of messages; absent: all that wait now
    selector: str | None = Field(default=None, max_length=8192)
    destination: Name | None = None  # MOVE only: an address like that of a dead-letter destination


class HandledMessages(ManagementDocument):
    """Reply to PURGE, MOVE and REDRIVE. Messages that were not handled are still where they were."""

    messages: int  # purged, moved or redriven
    left: int = 0  # matched, but could not be moved; `why` is the reason for the last of them
    why: str | None = None
