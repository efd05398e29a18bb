"""A whole broker within this process: loop, endpoint, rules and log, on simulated files and a clock of the test's."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from broker.log.simulated_files import SimulatedFiles

from penstock_broker.access import listeners
from penstock_broker.assembly import assemble
from penstock_broker.clock import Clock
from penstock_broker.log import FileLayer, Log, LogOptions, SyncChoice, Syncer
from penstock_broker.messages.memory_watch import Process
from penstock_broker.messages.pageable import PageableMessages
from penstock_broker.settings.settings import BrokerSettings
from penstock_broker.state.storage import VolumeSpace

__all__ = ["BrokerInProcess"]


class BrokerInProcess:
    """One life of a broker, from its start on what the files hold until `end`, which is like kill -9.

    `folder` holds the lock file only. `syncer`: makes what syncs the log, instead of whoever writes it, and at once.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        files: SimulatedFiles,
        folder: Path,
        clock: Clock,
        *,
        segment_bytes: int,
        syncer: Callable[[FileLayer], Syncer] | None = None,
        measure: Callable[[], VolumeSpace] | None = None,
        process: Process | None = None,
        process_limit: int = 0,
        kept_bytes: int = LogOptions().kept_bytes,
        digest_after_ms: int = LogOptions().digest_after_ms,
    ) -> None:
        """`measure`: the space of the volume; without it the broker does not know how full that is. `process`: what it
        takes for its own, and `process_limit` what that may have. `kept_bytes`: what recovery may keep in memory of
        messages before it leaves their bodies in the log.
        """
        self.log, self.recovered = Log.open(
            folder,
            files=files,
            options=LogOptions(
                segment_bytes=segment_bytes,
                sync=SyncChoice.INLINE,
                kept_bytes=kept_bytes,
                digest_after_ms=digest_after_ms,
            ),
            clock=clock.now_ms,
            entropy=lambda size: b"\7" * size,
            syncer=syncer,
            pageable=PageableMessages(),
            begins=False,
        )
        self.found = self.log.sequence
        """The last block that was found; what a start writes comes behind it."""
        self.log.begin()
        ports = listeners.listeners_of(settings)
        self.port = ports[0]
        """Where clients come in; it is not bound."""
        self.loop = assemble(
            settings,
            self.log,
            self.recovered,
            ports,
            clock=clock,
            measure=measure,
            process=process,
            process_limit=process_limit,
        )
        self.broker = self.loop.broker

    def connect(self) -> socket.socket:
        """The client's end of a new connection, which does not block."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        self.loop.add(self.port, ours, "client")
        return theirs

    def end(self) -> None:
        """What the kernel does when a process ends: sockets, lock and event descriptors go."""
        for connection in self.broker.clients.connections.values():
            connection.free()
            connection.transport.close()
        self.broker.clients.connections.clear()
        self.log.crash()
        self.loop.close()
