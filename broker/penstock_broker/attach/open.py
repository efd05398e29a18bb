"""Answers Opens: offers what works, and keeps container-ids unique where somebody asked for it.

A predecessor is probed first: an empty frame goes out, and TCP says whether its peer acknowledged it; so a client that
fails over is not held up until the idle time-out. Source: design, decisions 13 and 15.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from typing import Final, assert_never

from penstock_amqp.endpoint.events import AmqpError, Opened
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.rejections import RejectionReason
from penstock_broker.attach import detach
from penstock_broker.errors import amqp_error
from penstock_broker.settings.settings import open_properties
from penstock_broker.state.broker import Broker
from penstock_broker.version import VERSION
from penstock_core.connection_open import (
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
    if connection.has_opened:
        # The engine takes it as news; the connection would count twice among those of its container-id.
        if connection.phase in (Phase.OPENING, Phase.OPEN):
            close(broker, connection, AmqpError("amqp:connection:framing-error", "A second Open came; send one."))
        return
    connection.has_opened = True
    connection.container_id = event.container_id
    connection.hostname = event.hostname
    connection.properties = {
        key: str(value) for key, value in event.properties.items() if isinstance(value, str | int | bool)
    }
    connection.asks_sole = Capability.SOLE_CONNECTION.value in event.desired
    policy = event.properties.get("sole-connection-enforcement-policy")
    connection.enforcement = Enforcement.CLOSE_EXISTING if policy == 1 else Enforcement.REFUSE
    _decide(broker, connection, ProbeResult.UNKNOWN, PROBE_STEPS)


def _decide(broker: Broker, connection: Connection, probe: ProbeResult, steps: int) -> None:
    others = [each for each in broker.clients.containers.get(connection.container_id, ()) if each is not connection]
    predecessor = next((each for each in others if each.asks_sole), others[0] if others else None)
    decision = decide_sole_connection(
        asks_sole=connection.asks_sole,
        enforcement=connection.enforcement or Enforcement.REFUSE,
        user=connection.user,
        may_use_others=broker.permissions.may_manage(connection, TargetKind.MANAGEMENT, ""),
        predecessor=None
        if predecessor is None
        else Predecessor(is_sole=predecessor.asks_sole, user=predecessor.user, probe=probe),
    )
    match decision:
        case Admit():
            _admit(broker, connection)
        case Probe():
            assert predecessor is not None
            predecessor.send_heartbeat()
            broker.clock.after(PROBE_STEP_MS, lambda: _probed(broker, connection, predecessor, steps))
        case ClosePredecessor():
            assert predecessor is not None
            if probe is ProbeResult.ALIVE:
                # One whose peer is gone is a failover, and no fight.
                number = connection.number
                broker.clients.contests.record(
                    connection.container_id, number, now_ms=broker.clock.now_ms, now_us=broker.clock.now_us
                )
            close(broker, predecessor, amqp_error(decision.told))
            # Others of the same container may be left; each is looked at in its turn.
            _decide(broker, connection, ProbeResult.UNKNOWN, PROBE_STEPS)
        case Refuse():
            broker.clients.rejections.count(RejectionReason.CONTAINER_IN_USE)
            connection.endpoint.refuse_open(broker.instance.container_id, amqp_error(decision))
            connection.phase = Phase.CLOSING
            broker.work.touch(connection)
        case _:
            assert_never(decision)


def _probed(broker: Broker, connection: Connection, predecessor: Connection, steps: int) -> None:
    if connection.phase is not Phase.OPENING:
        return
    if predecessor.phase in (Phase.GONE, Phase.CLOSING):
        _decide(broker, connection, ProbeResult.UNKNOWN, PROBE_STEPS)
    elif _is_acknowledged(predecessor):
        _decide(broker, connection, ProbeResult.ALIVE, 0)
    elif steps == 0:
        _decide(broker, connection, ProbeResult.DEAD, 0)
    else:
        broker.clock.after(PROBE_STEP_MS, lambda: _probed(broker, connection, predecessor, steps - 1))


def _is_acknowledged(connection: Connection) -> bool:
    """True if the peer's TCP has acknowledged all that was sent, and did not reset."""
    if connection.backlog:
        return False
    unsent = struct.unpack("i", fcntl.ioctl(connection.fd, termios.TIOCOUTQ, b"\0\0\0\0"))[0]
    return unsent == 0 and connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def _admit(broker: Broker, connection: Connection) -> None:
    refused = broker.clients.counts.check(connection)
    if refused is not None:
        broker.clients.rejections.count(RejectionReason.TOO_MANY_CONNECTIONS)
        told = (connection.peer, connection.port.name, connection.user[:100], refused.description[:300])
        broker.clients.warnings.warn("Refused %s on listener %s as user %r: %s", *told)
        connection.endpoint.refuse_open(broker.instance.container_id, amqp_error(refused))
        connection.phase = Phase.CLOSING
        broker.work.touch(connection)
        return
    broker.clients.counts.enter(connection)
    properties = {"product": "Penstock", "version": VERSION, **open_properties(broker.settings.announce)}
    connection.endpoint.open(broker.instance.container_id, OFFERED, properties)
    connection.phase = Phase.OPEN
    connection.opened_us = broker.clock.now_us
    broker.clients.containers.setdefault(connection.container_id, []).append(connection)
    broker.work.touch(connection)


def close(broker: Broker, connection: Connection, error: AmqpError) -> None:
    """Close a connection of our own accord, telling its peer why; the socket goes once that is out."""
    detach.connection_gone(broker, connection)
    if connection.phase is Phase.OPENING:
        connection.endpoint.refuse_open(broker.instance.container_id, error)
    elif connection.phase is Phase.OPEN:
        connection.endpoint.close(error)
    connection.phase = Phase.CLOSING
    broker.work.touch(connection)
