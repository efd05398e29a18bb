"""Replies of `$management` as AMQP messages, and refusals as status codes.

Source: AMQP Management 1.0 (working draft 11), docs/reference/management.md, docs/decisions/047-management-node.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from penstock_amqp.messages.message_codec import Message, Properties, encode_message
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Int, Value
from penstock_api import management
from penstock_api.management import StatusCode
from penstock_core.reason import ErrorCondition, Reason, Refuse

__all__ = [
    "ManagementReply",
    "encode_reply",
    "encoded_list",
    "invalid_request",
    "query_body",
    "refusal",
    "to_value",
]

_STATUS: Final = {
    ErrorCondition.NOT_FOUND: StatusCode.NOT_FOUND,
    ErrorCondition.UNAUTHORIZED_ACCESS: StatusCode.FORBIDDEN,
    ErrorCondition.INVALID_FIELD: StatusCode.BAD_REQUEST,
    ErrorCondition.NOT_IMPLEMENTED: StatusCode.NOT_IMPLEMENTED,
    ErrorCondition.RESOURCE_LIMIT_EXCEEDED: StatusCode.UNAVAILABLE,
    ErrorCondition.INTERNAL_ERROR: StatusCode.INTERNAL_ERROR,
}

_NO_BODY: Final = b"\x40"
"""An encoded null: what `encode_message` ends with for a message without a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementReply:
    """The reply to one request. `encoded_body` takes the place of `body` where that was encoded in slices: its
    parts, which are joined once, because there may be a megabyte of them.
    """

    status: int
    description: str
    body: Value = None
    refuse: Refuse | None = None
    properties: Mapping[str, Value] = field(default_factory=dict[str, Value])
    encoded_body: tuple[bytes, ...] | None = None

    def as_item(self) -> dict[Value, Value]:
        """The same as one entry of the reply to a list."""
        item: dict[Value, Value] = {
            management.STATUS_CODE: Int(self.status),
            management.STATUS_DESCRIPTION: self.description,
            **_failure(self.refuse),
        }
        if self.body is not None:
            item["body"] = self.body
        return item


def query_body(attributes: list[str], rows: list[bytes], more: Mapping[str, Value] | None = None) -> tuple[bytes, ...]:
    """The body of the reply to a QUERY, encoded. `rows`: one list of values each, encoded already; `more`: what else
    it tells.
    """
    pairs = [encode("attributeNames"), encode(list[Value](attributes)), encode("results"), *encoded_list(rows)]
    for key, value in (more or {}).items():
        pairs += (encode(key), encode(value))
    return (_compound(0xD1, pairs, 4 + 2 * len(more or ())), *pairs)


def encoded_list(items: list[bytes]) -> tuple[bytes, ...]:
    """A list32 of values that are encoded already."""
    return (_compound(0xD0, items, len(items)), *items)


def _compound(code: int, parts: Iterable[bytes], count: int) -> bytes:
    """What a list32 or map32 of `count` values begins with."""
    return bytes((code,)) + (sum(map(len, parts)) + 4).to_bytes(4, "big") + count.to_bytes(4, "big")


def refusal(refuse: Refuse, body: Value = None) -> ManagementReply:
    """The reply for a refusal. Its status is 409 (conflict) unless the condition has a status of its own."""
    status = _STATUS.get(refuse.condition, StatusCode.CONFLICT)
    return ManagementReply(status=int(status), description=refuse.description, refuse=refuse, body=body)


def invalid_request(description: str) -> ManagementReply:
    """The reply, with status 400, to a request that is wrong in itself."""
    return refusal(Refuse(Reason.INVALID_REQUEST, description))


def encode_reply(reply: ManagementReply, request: Properties) -> bytes:
    """The message that answers `request`, encoded."""
    properties: dict[str, Value] = {
        management.STATUS_CODE: Int(reply.status),
        management.STATUS_DESCRIPTION: reply.description,
        **{str(key): value for key, value in _failure(reply.refuse).items()},
        **reply.properties,
    }
    correlation = request.correlation_id if request.correlation_id is not None else request.message_id
    head = encode_message(
        Message(
            properties=Properties(to=request.reply_to, correlation_id=correlation), application_properties=properties
        )
    )
    body = (encode(reply.body),) if reply.encoded_body is None else reply.encoded_body
    return b"".join((head.removesuffix(_NO_BODY), *body))


def to_value(document: management.ManagementDocument) -> Value:
    """A document as an AMQP value."""
    return cast(Value, document.to_wire())


def _failure(refuse: Refuse | None) -> dict[Value, Value]:
    if refuse is None:
        return {}
    return {management.ERROR_CONDITION: refuse.condition.value, management.REASON: refuse.reason.value}
