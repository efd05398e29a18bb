"""The performatives of AMQP 1.0 and what they hold, as frozen dataclasses; `None` = absent on the wire.

Sources: AMQP 1.0 part 2, sections 2.7 (performatives) and 2.8.14 (error); part 3, sections 3.4 (delivery states) and
3.5 (source, target); part 4, section 4.5 (coordinator).
"""

# ruff: noqa: RUF009 - optional() and required() return dataclass fields, which ruff cannot see.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock_amqp.types import composites as kinds
from penstock_amqp.types.composites import Composite, nested, optional, required
from penstock_amqp.types.values import Described, Symbol, Value

__all__ = [
    "Accepted",
    "Attach",
    "Begin",
    "Close",
    "Coordinator",
    "Detach",
    "Disposition",
    "End",
    "Error",
    "Flow",
    "Modified",
    "Open",
    "Performative",
    "Received",
    "Rejected",
    "Released",
    "Source",
    "Target",
    "Transfer",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Error(Composite):
    """Why something ended (2.8.14)."""

    CODE: ClassVar[int] = 0x1D
    NAME: ClassVar[str] = "amqp:error:list"

    condition: Symbol = required(kinds.SYMBOL)
    description: str | None = optional(kinds.STRING)
    info: Mapping[Symbol, Value] | None = optional(kinds.SYMBOL_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Composite):
    """A delivery received in part (3.4.1)."""

    CODE: ClassVar[int] = 0x23
    NAME: ClassVar[str] = "amqp:received:list"

    section_number: int = required(kinds.UINT)
    section_offset: int = required(kinds.ULONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted(Composite):
    """3.4.2."""

    CODE: ClassVar[int] = 0x24
    NAME: ClassVar[str] = "amqp:accepted:list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Composite):
    """3.4.3."""

    CODE: ClassVar[int] = 0x25
    NAME: ClassVar[str] = "amqp:rejected:list"

    error: Error | None = optional(nested(Error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Composite):
    """3.4.4."""

    CODE: ClassVar[int] = 0x26
    NAME: ClassVar[str] = "amqp:released:list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Modified(Composite):
    """3.4.5."""

    CODE: ClassVar[int] = 0x27
    NAME: ClassVar[str] = "amqp:modified:list"

    delivery_failed: bool | None = optional(kinds.BOOLEAN)
    undeliverable_here: bool | None = optional(kinds.BOOLEAN)
    message_annotations: Mapping[Symbol, Value] | None = optional(kinds.SYMBOL_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Composite):
    """Where a link's messages come from (3.5.3). An address is a string here, or a symbol, which means the same."""

    CODE: ClassVar[int] = 0x28
    NAME: ClassVar[str] = "amqp:source:list"

    address: str | None = optional(kinds.ADDRESS)
    durable: int | None = optional(kinds.UINT)
    expiry_policy: Symbol | None = optional(kinds.SYMBOL)
    timeout: int | None = optional(kinds.UINT)
    dynamic: bool | None = optional(kinds.BOOLEAN)
    dynamic_node_properties: Mapping[Symbol, Value] | None = optional(kinds.SYMBOL_MAP)
    distribution_mode: Symbol | None = optional(kinds.SYMBOL)
    filter: Mapping[Symbol, Value] | None = optional(kinds.SYMBOL_MAP)
    default_outcome: Composite | Described | None = optional(kinds.STATE)
    outcomes: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)
    capabilities: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Composite):
    """Where a link's messages go (3.5.4)."""

    CODE: ClassVar[int] = 0x29
    NAME: ClassVar[str] = "amqp:target:list"

    address: str | None = optional(kinds.ADDRESS)
    durable: int | None = optional(kinds.UINT)
    expiry_policy: Symbol | None = optional(kinds.SYMBOL)
    timeout: int | None = optional(kinds.UINT)
    dynamic: bool | None = optional(kinds.BOOLEAN)
    dynamic_node_properties: Mapping[Symbol, Value] | None = optional(kinds.SYMBOL_MAP)
    capabilities: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator(Composite):
    """The target of a link that declares and discharges transactions (4.5.1)."""

    CODE: ClassVar[int] = 0x30
    NAME: ClassVar[str] = "amqp:coordinator:list"

    capabilities: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)


class Performative(Composite):
    """What the body of an AMQP frame begins with (2.7)."""

    __slots__ = ()
    CODE: ClassVar[int] = -1
    NAME: ClassVar[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(Performative):
    """2.7.1."""

    CODE: ClassVar[int] = 0x10
    NAME: ClassVar[str] = "amqp:open:list"

    container_id: str = required(kinds.STRING)
    hostname: str | None = optional(kinds.STRING)
    max_frame_size: int | None = optional(kinds.UINT)
    channel_max: int | None = optional(kinds.USHORT)
    idle_time_out: int | None = optional(kinds.UINT)
    outgoing_locales: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)
    incoming_locales: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)
    offered_capabilities: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)
    desired_capabilities: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)
    properties: Mapping[Symbol, Value] | None = optional(kinds.SYMBOL_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(Performative):
    """2.7.2."""

    CODE: ClassVar[int] = 0x11
    NAME: ClassVar[str] = "amqp:begin:list"

    remote_channel: int | None = optional(kinds.USHORT)
    next_outgoing_id: int = required(kinds.UINT)
    incoming_window: int = required(kinds.UINT)
    outgoing_window: int = required(kinds.UINT)
    handle_max: int | None = optional(kinds.UINT)
    offered_capabilities: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)
    desired_capabilities: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)
    properties: Mapping[Symbol, Value] | None = optional(kinds.SYMBOL_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach(Performative):
    """2.7.3. `role` is True for a receiver. `source is None` is the null source; a null address is inside a Source."""

    CODE: ClassVar[int] = 0x12
    NAME: ClassVar[str] = "amqp:attach:list"

    name: str = required(kinds.STRING)
    handle: int = required(kinds.UINT)
    role: bool = required(kinds.BOOLEAN)
    snd_settle_mode: int | None = optional(kinds.UBYTE)
    rcv_settle_mode: int | None = optional(kinds.UBYTE)
    source: Source | None = optional(nested(Source))
    target: Target | Coordinator | None = optional(nested(Target, Coordinator))
    unsettled: Mapping[Value, Value] | None = optional(kinds.MAP)
    incomplete_unsettled: bool | None = optional(kinds.BOOLEAN)
    initial_delivery_count: int | None = optional(kinds.UINT)
    max_message_size: int | None = optional(kinds.ULONG)
    offered_capabilities: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)
    desired_capabilities: tuple[Symbol, ...] | None = optional(kinds.SYMBOLS)
    properties: Mapping[Symbol, Value] | None = optional(kinds.SYMBOL_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow(Performative):
    """2.7.4. Without `handle` it is about the session only."""

    CODE: ClassVar[int] = 0x13
    NAME: ClassVar[str] = "amqp:flow:list"

    next_incoming_id: int | None = optional(kinds.UINT)
    incoming_window: int = required(kinds.UINT)
    next_outgoing_id: int = required(kinds.UINT)
    outgoing_window: int = required(kinds.UINT)
    handle: int | None = optional(kinds.UINT)
    delivery_count: int | None = optional(kinds.UINT)
    link_credit: int | None = optional(kinds.UINT)
    available: int | None = optional(kinds.UINT)
    drain: bool | None = optional(kinds.BOOLEAN)
    echo: bool | None = optional(kinds.BOOLEAN)
    properties: Mapping[Symbol, Value] | None = optional(kinds.SYMBOL_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Performative):
    """2.7.5. The payload follows it in the frame."""

    CODE: ClassVar[int] = 0x14
    NAME: ClassVar[str] = "amqp:transfer:list"

    handle: int = required(kinds.UINT)
    delivery_id: int | None = optional(kinds.UINT)
    delivery_tag: bytes | None = optional(kinds.BINARY)
    message_format: int | None = optional(kinds.UINT)
    settled: bool | None = optional(kinds.BOOLEAN)
    more: bool | None = optional(kinds.BOOLEAN)
    rcv_settle_mode: int | None = optional(kinds.UBYTE)
    state: Composite | Described | None = optional(kinds.STATE)
    resume: bool | None = optional(kinds.BOOLEAN)
    aborted: bool | None = optional(kinds.BOOLEAN)
    batchable: bool | None = optional(kinds.BOOLEAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposition(Performative):
    """2.7.6."""

    CODE: ClassVar[int] = 0x15
    NAME: ClassVar[str] = "amqp:disposition:list"

    role: bool = required(kinds.BOOLEAN)
    first: int = required(kinds.UINT)
    last: int | None = optional(kinds.UINT)
    settled: bool | None = optional(kinds.BOOLEAN)
    state: Composite | Described | None = optional(kinds.STATE)
    batchable: bool | None = optional(kinds.BOOLEAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach(Performative):
    """2.7.7."""

    CODE: ClassVar[int] = 0x16
    NAME: ClassVar[str] = "amqp:detach:list"

    handle: int = required(kinds.UINT)
    closed: bool | None = optional(kinds.BOOLEAN)
    error: Error | None = optional(nested(Error))


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Performative):
    """2.7.8."""

    CODE: ClassVar[int] = 0x17
    NAME: ClassVar[str] = "amqp:end:list"

    error: Error | None = optional(nested(Error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(Performative):
    """2.7.9."""

    CODE: ClassVar[int] = 0x18
    NAME: ClassVar[str] = "amqp:close:list"

    error: Error | None = optional(nested(Error))
