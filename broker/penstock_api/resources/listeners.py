"""Where clients connect to a Broker, and what differs from one listener to another: `listeners` of its spec, and the
same for the broker's configuration. Source: docs/reference/configuration.md, docs/reference/security.md.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import quantity, schema

__all__ = ["ClientListeners", "MessageSize", "listener_settings", "tls_settings"]

_MESSAGE: Final = ("must be at least 1Ki, the smallest maximum that a broker accepts", "1Ki")
"""Bounds of the largest message. No broker starts with a smaller value."""

ListenerName = Literal["amqps", "amqp", "webSocket"]

MessageSize = Annotated[
    quantity.Quantity,
    Field(json_schema_extra=quantity.bounds_of_quantity(*_MESSAGE)),
    AfterValidator(quantity.bounded_quantity(*_MESSAGE)),
]
"""The size of the largest message that is accepted."""

_ORIGIN: Final = (
    r"^(\*|null|[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._-]+"
    r"(:([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?)$"
)
Origin = Annotated[str, Field(min_length=1, max_length=255, pattern=_ORIGIN)]


class ListenerOptions(schema.Spec):
    """Options of one listener; what is left out is as for the whole Broker."""

    max_message_size: MessageSize | None = None
    """Largest message that is accepted here; left out: `maxMessageSize` of the Broker."""
    idle_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    """How long a client here may be silent; left out: `idleTimeoutSeconds` of the Broker."""


class WebSocketOptions(ListenerOptions):
    """Options of the listener for AMQP over WebSocket, to which web pages in browsers can connect."""

    allowed_origins: (
        Annotated[
            tuple[Origin, ...],
            Field(max_length=64, json_schema_extra={schema.LIST_TYPE: "set"}),
            AfterValidator(schema.check_unique),
        ]
        | None
    ) = None
    """Origins whose pages may connect, such as `https://shop.example`; `null`: files and sandboxes; `*`: any.
    Left out: pages from the same host. Clients that are not browsers send no origin and are not checked.
    """


class OptionsByListener(schema.Spec):
    """Options of each listener that is on."""

    amqps: ListenerOptions | None = None
    """Options of port 5671."""
    amqp: ListenerOptions | None = None
    """Options of port 5672."""
    web_socket: WebSocketOptions | None = None
    """Options of port 5443."""


_SOMEWHERE: Final = schema.cel(
    "!has(self.amqps) || self.amqps || self.amqp || self.webSocket",
    "nobody could connect: turn on one of `listeners.amqps`, `listeners.amqp` and `listeners.webSocket`",
)
"""Without a port the API server takes none of the Services for clients. A default is asked as it stands, so that of
`listeners` has no field; every other object has all of them.
"""
_ARE_ON: Final = schema.cel(
    "!has(self.options) || ((!has(self.options.amqps) || self.amqps) && (!has(self.options.amqp) || self.amqp) "
    "&& (!has(self.options.webSocket) || self.webSocket))",
    "`listeners.options` names a listener that is off; turn it on, or leave its options out",
)
_HAS_TLS: Final = schema.cel(
    "!has(self.minimumTlsVersion) || self.amqps || self.webSocket",
    "`listeners.minimumTlsVersion` needs `listeners.amqps` or `listeners.webSocket`",
)


class ClientListeners(schema.Spec):
    """Where clients connect. The management listener always exists and has TLS."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_SOMEWHERE, _ARE_ON, _HAS_TLS))

    amqps: bool = True
    """Port 5671 with TLS; the operator makes the certificate, and its CA is in the ConfigMap `BROKER-ca`."""
    amqp: bool = False
    """Port 5672 without TLS."""
    web_socket: bool = False
    """Port 5443: AMQP over WebSocket with TLS (`amqpwss://`), with the same certificate."""
    minimum_tls_version: Literal["1.2", "1.3"] | None = None
    """Oldest version of TLS that clients may use; left out: 1.2."""
    options: OptionsByListener | None = None
    """What differs from listener to listener."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.amqps or self.amqp or self.web_socket):
            raise ValueError(str(_SOMEWHERE["message"]))
        options = self.options or OptionsByListener()
        of = ((self.amqps, options.amqps), (self.amqp, options.amqp), (self.web_socket, options.web_socket))
        if any(given is not None and not is_on for is_on, given in of):
            raise ValueError(str(_ARE_ON["message"]))
        if self.minimum_tls_version is not None and not (self.amqps or self.web_socket):
            raise ValueError(str(_HAS_TLS["message"]))
        return self


def listener_settings(listeners: ClientListeners, name: ListenerName) -> dict[str, object]:
    """The options of one listener in the broker's configuration file; only those that are set."""
    options = None if listeners.options is None else getattr(listeners.options, _FIELDS[name])
    if not isinstance(options, ListenerOptions):
        return {}
    settings = options.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"max_message_size"})
    if options.max_message_size is not None:
        settings["maxMessageBytes"] = quantity.quantity_bytes(options.max_message_size)
    return settings


_FIELDS: Final[dict[ListenerName, str]] = {"amqps": "amqps", "amqp": "amqp", "webSocket": "web_socket"}


def tls_settings(listeners: ClientListeners) -> dict[str, object]:
    """The TLS settings of client listeners besides certificate and key; only those that are set."""
    version = listeners.minimum_tls_version
    return {} if version is None else {"minimumVersion": version}
