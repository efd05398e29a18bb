"""Answers Opens: offers the capabilities that work, and keeps a container-id unique where a client asked for it.

The older connection of the same container-id is probed first: an empty frame is sent, and TCP says whether its peer
acknowledged it. So a client that fails over does not have to wait for the idle time-out of the connection that it lost.
Source: docs/decisions/013-container-uniqueness.md, docs/decisions/015-offered-capabilities.md.
"""

from __future__ import annotations

from typing import Final, assert_never

from penstock_amqp.endpoint.events import AmqpError, Opened
from penstock_amqp.types.values import UInt, Value
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.connection_client import NOT_OPENED, ClientOpen
from penstock_broker.access.rejections import RejectionReason
from penstock_broker.attach import connection_end
from penstock_broker.errors import amqp_error
from penstock_broker.settings.settings import open_properties
from penstock_broker.state.broker import Broker
from penstock_broker.version import VERSION
from penstock_core.connection_open import (
    ENFORCEMENT_POLICY,
    Admit,
    Capability,
    ClosePredecessor,
    Enforcement,
    Predecessor,
    Probe,
    ProbeResult,
    decide_sole_connection,
    offer,
)
from penstock_core.permissions import TargetKind
from penstock_core.reason import Refuse

__all__ = ["opened"]

OFFERED: Final = offer(tuple(Capability))

PROBE_STEP_MS: Final = 10
PROBE_STEPS: Final = 50
"""Half a second in which a live peer's kernel acknowledges a probe, even over a slow network."""


def opened(broker: Broker, connection: Connection, event: Opened) -> None:
    """Answer an Open, at once or when the predecessor has been probed."""
    if connection.client is not NOT_OPENED:
        # The engine reports it like the first; the connection would count twice for its container-id.
        if connection.phase in (Phase.OPENING, Phase.OPEN):
            connection_end.close_connection(
                broker, connection, AmqpError("amqp:connection:framing-error", "A second Open came; send one.")
            )
        return
    policy = event.properties.get(ENFORCEMENT_POLICY)
    connection.client = ClientOpen(
        container_id=event.container_id,
        properties={key: str(value) for key, value in event.properties.items() if isinstance(value, str | int | bool)},
        asks_sole=Capability.SOLE_CONNECTION.value in event.desired,
        enforcement=Enforcement.CLOSE_EXISTING if policy == 1 else Enforcement.REFUSE,
    )
    _decide(broker, connection, ProbeResult.UNKNOWN, PROBE_STEPS)


def _decide(broker: Broker, connection: Connection, probe: ProbeResult, steps: int) -> None:
    same_id = broker.clients.containers.get(connection.client.container_id, ())
    others = [each for each in same_id if each is not connection]
    predecessor = next((each for each in others if each.client.asks_sole), others[0] if others else None)
    decision = decide_sole_connection(
        asks_sole=connection.client.asks_sole,
        enforcement=connection.client.enforcement,
        user=connection.login.user,
        may_use_others=broker.permissions.may_manage(connection, TargetKind.MANAGEMENT, ""),
        predecessor=None
        if predecessor is None
        else Predecessor(
            is_sole=predecessor.client.asks_sole,
            enforcement=predecessor.client.enforcement,
            user=predecessor.login.user,
            probe=probe,
        ),
    )
    match decision:
        case Admit():
            _admit(broker, connection)
        case Probe():
            assert predecessor is not None
            predecessor.send_heartbeat()
            _probe_later(broker, connection, predecessor, steps)
        case ClosePredecessor():
            assert predecessor is not None
            if probe is ProbeResult.ALIVE:
                # If the peer of the older one does not answer, this is a failover and no contest.
                number = connection.number
                broker.clients.contests.record(
                    connection.client.container_id, number, now_ms=broker.clock.now_ms, now_us=broker.clock.now_us
                )
            connection_end.close_connection(broker, predecessor, amqp_error(decision.told))
            # Others of the same container may still be open; each is decided on in its turn.
            _decide(broker, connection, ProbeResult.UNKNOWN, PROBE_STEPS)
        case Refuse():
            broker.clients.rejections.count(RejectionReason.CONTAINER_IN_USE)
            connection.endpoint.refuse_open(broker.instance.container_id, amqp_error(decision))
            connection.phase = Phase.CLOSING
            broker.work.touch(connection)
        case _:
            assert_never(decision)


def _probe_later(broker: Broker, connection: Connection, predecessor: Connection, steps: int) -> None:
    broker.clock.after(
        PROBE_STEP_MS,
        lambda: _probed(broker, connection, predecessor, steps),
        failed=lambda: broker.fail_connection(connection),
    )


def _probed(broker: Broker, connection: Connection, predecessor: Connection, steps: int) -> None:
    if connection.phase is not Phase.OPENING:
        return
    if predecessor.phase in (Phase.GONE, Phase.CLOSING, Phase.LEAVING):
        _decide(broker, connection, ProbeResult.UNKNOWN, PROBE_STEPS)
    elif predecessor.transport.is_acknowledged():
        _decide(broker, connection, ProbeResult.ALIVE, 0)
    elif steps == 0:
        _decide(broker, connection, ProbeResult.DEAD, 0)
    else:
        _probe_later(broker, connection, predecessor, steps - 1)


def _admit(broker: Broker, connection: Connection) -> None:
    refused = broker.clients.counts.check(connection)
    if refused is not None:
        broker.clients.rejections.warn(
            RejectionReason.TOO_MANY_CONNECTIONS,
            "Refused %s on listener %s as user %r: %s",
            connection.transport.peer,
            connection.listener.name,
            connection.login.user[:100],
            refused.description[:300],
        )
        connection.endpoint.refuse_open(broker.instance.container_id, amqp_error(refused))
        connection.phase = Phase.CLOSING
        broker.work.touch(connection)
        return
    broker.clients.counts.enter(connection)
    properties: dict[str, Value] = {
        "product": "Penstock",
        "version": VERSION,
        **open_properties(broker.settings.announce),
    }
    if connection.client.asks_sole:
        properties[ENFORCEMENT_POLICY] = UInt(connection.client.enforcement.value)
    connection.endpoint.open(broker.instance.container_id, OFFERED, properties)
    connection.phase = Phase.OPEN
    connection.opened_us = broker.clock.now_us
    connection.due_ms = 0  # the peer may want to hear from us soon
    broker.clients.containers.setdefault(connection.client.container_id, []).append(connection)
    broker.work.touch(connection)
