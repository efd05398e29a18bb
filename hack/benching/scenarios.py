"""What `hack/bench count` measures: plain paths, which must not become slower, and one scenario per feature that
costs.

A scenario says what is published and who consumes; `counted_run` drives it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

from crash.load_client import encoded

from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described, Symbol, ULong, Value

__all__ = ["BATCH", "DEEPER", "SCENARIOS", "Driving", "Scenario", "Way"]

BATCH = 64
"""Messages that are under way together."""

DEEPER = 1.3
"""What a message of a deep backlog may cost, where 1 is what it costs while all is in memory."""

TWO_PROPERTIES = (
    bytes.fromhex("005374c1") + bytes([25, 4]) + b"\xa1\x02k1\xa1\x09value-one\xa1\x02k2\x71\x00\xbc\x61\x4e"
)
TOPIC = "amq.topic/count"


class Way(Enum):
    """The transport of both clients."""

    TCP = "tcp"
    TLS = "tls"
    WEB_SOCKET = "webSocket"


class Driving(Enum):
    """What the clients do."""

    PLAIN = "plain"
    PUBLISH_IN_TRANSACTIONS = "publish"
    """The producer commits every `PER_TRANSACTION` messages."""
    MOVE_IN_TRANSACTIONS = "move"
    """Between the two, a third client settles messages of a queue and sends them on to another, in one transaction
    for every `PER_TRANSACTION`.
    """
    PUBLISH_BEHIND = "behind"
    """The consumer is away, and what is counted comes behind what waits."""
    CONSUME_BACKLOG = "backlog"
    """Nobody publishes, and what is counted goes from the midst of what waits."""


PER_TRANSACTION = 16


@dataclass(frozen=True, slots=True)
class Scenario:
    """`messages` are published in turn. `selector` is the consumer's; `others` are selectors of further subscriptions
    that take nothing. A queue (`is_queue`) is made when it is first named.
    """

    name: str
    messages: tuple[bytes, ...]
    durable: bool = False
    address: str = TOPIC
    selector: str | None = None
    others: tuple[str, ...] = ()
    filters: bytes | None = None
    """The consumer's filter set, encoded, in the place of a selector."""
    other_filters: tuple[bytes, ...] = ()
    is_queue: bool = False
    is_plain: bool = False
    """Part of the forwarding path that every message pays for: it may not grow over the baseline."""
    is_covered: bool = False
    """All that is done for such a message is done in another scenario, too, so that this one is for the page alone."""
    way: Way = Way.TCP
    driving: Driving = Driving.PLAIN
    waiting: int = 0
    """Messages in the subscription before counting begins."""
    memory_mib: int = 0
    """Of the broker; 0: the default of this machine."""
    shallow: str = ""
    """The scenario with the same messages and clients where nothing is paged: this one may cost `DEEPER` of it."""
    delay_ms: int = 0
    """The clock moves on so far once a batch has been taken."""
    batch: int = BATCH
    producers: int = 1
    """If they are several, each sends one message of a batch, on a connection of its own."""
    first: int = 320
    """Messages before counting begins."""
    counted: int = 960
    copies: int = 1
    """So many subscriptions like the consumer's get each message; the figures are per copy."""
    has_connections: bool = False
    """Each of these subscriptions has a consumer on a connection of its own."""
    mebibytes: int = 0
    """How long each message is, if the figures are per MiB and not per message."""

    @property
    def units(self) -> int:
        """What the figures are per: messages, copies, or MiB."""
        return self.counted * (self.mebibytes or self.copies)


def _plain(kind: str, size: int, *, is_covered: bool = False) -> Scenario:
    durable = kind == "durable"
    message = encoded(bytes(size), durable=durable, properties=TWO_PROPERTIES)
    return Scenario(f"{kind} {size} B", (message,), durable, is_plain=True, is_covered=is_covered, counted=2560)


def _waiting(producers: int) -> Scenario:
    message = encoded(bytes(1024), durable=True, properties=TWO_PROPERTIES)
    name = f"{producers} that {'waits' if producers == 1 else 'wait'}, durable 1024 B"
    first, counted = (100, 500) if producers == 1 else (400, 2000)  # each turn costs as much whatever comes in it
    return Scenario(name, (message,), durable=True, producers=producers, batch=producers, first=first, counted=counted)


def _coming(name: str, *, waiting: int, memory_mib: int, shallow: str = "") -> Scenario:
    return _of_backlog(name, Driving.PUBLISH_BEHIND, waiting, memory_mib, shallow)


def _going(name: str, *, memory_mib: int, shallow: str = "") -> Scenario:
    return _of_backlog(name, Driving.CONSUME_BACKLOG, _WAITING, memory_mib, shallow)


_WAITING = 24_000
"""Of 1 KiB: a broker with `_LITTLE_MIB` has forgotten the bodies of most, one with `_MUCH_MIB` of none."""
_LITTLE_MIB, _MUCH_MIB = 64, 1024


def _of_backlog(name: str, driving: Driving, waiting: int, memory_mib: int, shallow: str) -> Scenario:
    message = encoded(bytes(1024), durable=True, properties=TWO_PROPERTIES)
    return Scenario(
        name,
        (message,),
        durable=True,
        driving=driving,
        waiting=waiting,
        memory_mib=memory_mib,
        shallow=shallow,
        counted=7680,  # so many that a refill more or less does not matter
    )


def _header(*, priority: int | None = None, ttl_ms: int | None = None) -> bytes:
    fields = b"\x42" + (b"\x50" + bytes([priority]) if priority is not None else b"\x40")
    if ttl_ms is not None:
        fields += b"\x70" + struct.pack(">I", ttl_ms)
    return b"\x00\x53\x70\xc0" + bytes([len(fields) + 1, 3 if ttl_ms is not None else 2]) + fields


def _grouped(group: str) -> bytes:
    """Properties whose eleventh field is the group-id."""
    fields = b"\x40" * 10 + b"\xa1" + bytes([len(group)]) + group.encode()
    return b"\x00\x53\x73\xc0" + bytes([len(fields) + 1, 11]) + fields


def _large(mebibytes: int) -> Scenario:
    message = encoded(bytes((mebibytes << 20) - 64), durable=True, properties=TWO_PROPERTIES)
    name = f"{mebibytes} MiB, each of them"
    return Scenario(name, (message,), durable=True, batch=4, first=4, counted=16 // mebibytes, mebibytes=mebibytes)


def _delayed(milliseconds: int) -> bytes:
    annotations: dict[Value, Value] = {Symbol("x-opt-delivery-delay"): milliseconds}
    return encode(Described(ULong(0x72), annotations))


def _binding(value: str) -> bytes:
    """A filter set with one binding to a Headers exchange."""
    headers: dict[Value, Value] = {"x-match": "all", "k1": value, "k2": None}
    return encode({Symbol("binding"): Described(ULong(0x0000_468C_0000_0002), headers)})


_BODY = bytes(100)
_MESSAGE = encoded(_BODY, durable=False, properties=TWO_PROPERTIES)
_KIB = encoded(bytes(1024), durable=False, properties=TWO_PROPERTIES)
_DURABLE_KIB = encoded(bytes(1024), durable=True, properties=TWO_PROPERTIES)
SCENARIOS = (
    _plain("volatile", 100),
    _plain("volatile", 1024, is_covered=True),
    _plain("durable", 100, is_covered=True),
    _plain("durable", 1024),
    Scenario("queue", (_MESSAGE,), address="count-queue", is_queue=True),
    Scenario("100 copies", (_MESSAGE,), is_covered=True, copies=100, batch=16, first=64, counted=192),
    Scenario("100 copies, durable 1024 B", (_DURABLE_KIB,), durable=True, copies=100, batch=16, first=64, counted=192),
    Scenario(
        "100 copies, 100 connections",
        (_DURABLE_KIB,),
        durable=True,
        copies=100,
        has_connections=True,
        batch=16,
        first=64,
        counted=192,
    ),
    Scenario("selector", (_MESSAGE,), selector="k2 > 5 AND k1 LIKE 'value%'"),
    Scenario("200 other equalities", (_MESSAGE,), others=tuple(f"k1 = 'other-{n}'" for n in range(200))),
    Scenario(
        "200 other headers",
        (_MESSAGE,),
        address="amq.match",
        filters=_binding("value-one"),
        other_filters=tuple(_binding(f"other-{n}") for n in range(200)),
    ),
    Scenario("selector on a queue", (_MESSAGE,), address="count-queue", is_queue=True, selector="k2 > 5"),
    Scenario("ten priorities", tuple(_header(priority=n) + _MESSAGE for n in range(10))),
    Scenario("time to live", (_header(ttl_ms=3_600_000) + _MESSAGE,)),
    Scenario(
        "eight groups",
        tuple(encoded(_BODY, durable=False, properties=_grouped(f"g{n}") + TWO_PROPERTIES) for n in range(8)),
    ),
    Scenario("delayed", (_delayed(5) + _MESSAGE,), delay_ms=6),
    Scenario(
        "published in transactions",
        (_MESSAGE,),
        address="count-queue",
        is_queue=True,
        driving=Driving.PUBLISH_IN_TRANSACTIONS,
    ),
    Scenario(
        "moved on in transactions",
        (_MESSAGE,),
        address="count-queue",
        is_queue=True,
        driving=Driving.MOVE_IN_TRANSACTIONS,
    ),
    Scenario("TLS", (_MESSAGE,), is_covered=True, way=Way.TLS),
    Scenario("TLS 1024 B", (_KIB,), way=Way.TLS),
    Scenario("WebSocket", (_MESSAGE,), is_covered=True, way=Way.WEB_SOCKET),
    Scenario("WebSocket 1024 B", (_KIB,), way=Way.WEB_SOCKET),
    _waiting(1),
    _waiting(50),
    _large(1),
    _large(4),
    _coming("1024 B that come to an empty queue", waiting=0, memory_mib=_MUCH_MIB),
    _going("1024 B that go from a small backlog", memory_mib=_MUCH_MIB),
    _coming(
        "1024 B that come behind a deep backlog",
        waiting=_WAITING,
        memory_mib=_LITTLE_MIB,
        shallow="1024 B that come to an empty queue",
    ),
    _going(
        "1024 B that go from a deep backlog",
        memory_mib=_LITTLE_MIB,
        shallow="1024 B that go from a small backlog",
    ),
)
