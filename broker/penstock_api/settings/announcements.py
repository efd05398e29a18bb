"""What a broker tells clients in its Open: other servers to fail over to, and prefixes for addresses.

Source: docs/reference/configuration.md, "announce".
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from penstock_api import schema

__all__ = ["Announcements", "AnnouncementsSpec", "FailoverServer", "FailoverServerSpec", "announcement_settings"]

_PATH: Final = schema.cel(
    "!has(self.path) || (has(self.scheme) && self.scheme in ['amqpws', 'amqpwss'])",
    "`path` is for WebSocket: `scheme` must be amqpws or amqpwss",
)
Host = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\s/]+$")]


class FailoverServer(schema.Spec):
    """A server that clients go to when they lose this one."""

    hostname: Annotated[str, Field(min_length=1)]
    """Its name, for TLS and AMQP, and where to connect unless `networkHost` says otherwise."""
    port: Annotated[int, Field(ge=1, le=65_535)]
    """Its port."""
    scheme: Literal["amqp", "amqps", "amqpws", "amqpwss"] | None = None
    """Scheme of its URL; left out: the scheme by which the client has connected to this one."""
    network_host: str | None = None
    """Where to connect; left out: `hostname`."""
    path: str | None = None
    """Path of the WebSocket."""


class FailoverServerSpec(FailoverServer):
    """A server that clients go to when they lose this one."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_PATH))

    hostname: Host
    network_host: Host | None = None
    path: Annotated[str, Field(min_length=1, max_length=255)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path is not None and self.scheme not in ("amqpws", "amqpwss"):
            raise ValueError(str(_PATH["message"]))
        return self


class Announcements(schema.Spec):
    """What clients are told when they connect."""

    failover_servers: tuple[FailoverServer, ...] = ()
    """Servers for failover. Qpid JMS replaces the list of its failover URI by these, so name this Broker too if clients
    should come back to it.
    """
    prefixes: bool = False
    """Whether JMS clients are told to write `queue://` and `topic://` before their addresses."""


class AnnouncementsSpec(Announcements):
    """What clients are told when they connect."""

    # The models are immutable, so a narrower type is safe.
    failover_servers: Annotated[tuple[FailoverServerSpec, ...], Field(max_length=16)] = ()  # pyright: ignore[reportIncompatibleVariableOverride]


def announcement_settings(announcements: AnnouncementsSpec) -> dict[str, object]:
    """The settings in the broker's configuration file; only those that are set."""
    return announcements.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
