"""Where the whole-broker machine's broker lives: files that lose what is not synced, syncs that end when told to, a
clock that stands still, and one process after the other, all within this one.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from broker.log.simulated_files import SimulatedFiles
from broker.machine.model import Identity, Image, ImageMessage, SubscriptionImage
from proton import Message
from support.broker_in_process import BrokerInProcess

from penstock_amqp.endpoint.events import DATA, NUMBER
from penstock_broker.clock import Clock
from penstock_broker.log import FileLayer
from penstock_broker.messages import paging
from penstock_broker.queue.queue import Queue
from penstock_broker.settings.security import Authentication
from penstock_broker.settings.settings import BrokerSettings, ListenerSettings
from penstock_broker.topology.records import Subscription
from penstock_core.terms import Exclusivity

__all__ = ["BrokerSite", "HeldSyncer", "waiting_in"]

SETTINGS = BrokerSettings(
    listeners=(ListenerSettings(address="127.0.0.1:0"),), authentication=Authentication(anonymous=True), link_credit=10
)


class HeldSyncer:
    """Syncs what was submitted when `complete` says so."""

    name = "held"
    is_immediate = False

    def __init__(self, files: FileLayer) -> None:
        self._files = files
        self.submitted: list[tuple[int, Sequence[int] | Path]] = []
        self._done: list[tuple[int, OSError | None]] = []
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def submit(self, token: int, handles: Sequence[int]) -> None:
        self.submitted.append((token, handles))

    def submit_folder(self, token: int, folder: Path) -> None:
        self.submitted.append((token, folder))

    def complete(self) -> None:
        """The fdatasyncs that were asked for have ended."""
        for token, handles in self.submitted:
            error = None
            try:
                if isinstance(handles, Path):
                    self._files.fsync_folder(handles)
                else:
                    for handle in handles:
                        self._files.fdatasync(handle)
            except OSError as broken:
                error = broken
            self._done.append((token, error))
            os.eventfd_write(self.descriptor, 1)
        self.submitted.clear()

    def done(self) -> list[tuple[int, OSError | None]]:
        done, self._done = self._done, []
        if done:
            os.eventfd_read(self.descriptor)
        return done

    def may_be_done(self) -> bool:
        return bool(self._done)

    def wait(self) -> list[tuple[int, OSError | None]]:
        self.complete()
        return self.done()

    def close(self) -> None:
        os.close(self.descriptor)


class BrokerSite:
    """One data folder and the broker that serves it now."""

    def __init__(self) -> None:
        self._folder = Path(mkdtemp())  # holds the lock only
        self.files = SimulatedFiles()
        self.now_ms = 1_000
        self.start()

    def start(self) -> int:
        """Start a broker on what there is; the last block that it found."""
        clock = Clock(lambda: self.now_ms * 1000, lambda: self.now_ms, lambda: self.now_ms / 1000)
        self._life = BrokerInProcess(
            SETTINGS,
            self.files,
            self._folder,
            clock,
            segment_bytes=16_384,
            syncer=self._new_syncer,
            digest_after_ms=0,
        )
        self.log, self.loop, self.broker = self._life.log, self._life.loop, self._life.broker
        assert self._life.recovered.damage == ()
        return self._life.found

    def _new_syncer(self, files: FileLayer) -> HeldSyncer:
        self.syncer = HeldSyncer(files)
        return self.syncer

    def connect(self) -> socket.socket:
        """The client's end of a new connection."""
        return self._life.connect()

    @property
    def has_work(self) -> bool:
        """The broker would not wait in its next turn."""
        broker = self.broker
        return bool(broker.work.ready or broker.work.browsing or broker.work.dirty or broker.work.draining)

    @property
    def is_synced(self) -> bool:
        """Nothing waits for a sync, in the log or before it."""
        return self.log.synced == self.log.sequence and self.broker.sync.is_idle

    def end_process(self) -> None:
        """What the kernel does when a process ends: sockets, lock and eventfd go."""
        self._life.end()

    def close(self) -> None:
        self.end_process()
        shutil.rmtree(self._folder)

    # -- what is there ----------------------------------------------------------------------------------------------

    def image(self) -> Image:
        """What a restarted broker found, read from the log where that left it there."""
        while any(len(each.backlog.normal.tail or ()) for each in self.broker.paging.queues):
            paging.serve_tails(self.broker)
        return {
            identity_of(each): SubscriptionImage(
                shared=each.exclusivity is Exclusivity.SHARED,
                key=",".join(each.binding.ordered_keys),
                owner=(each.owner_link.container_id, each.owner_link.link_name) if each.owner_link else None,
                messages={
                    body_of(entry[DATA]): ImageMessage(
                        each.queue.redelivery.attempts.get(entry[NUMBER], 0),
                        each.queue.redelivery.seen.holds(entry[NUMBER]),
                    )
                    for entry in each.queue.ready
                },
            )
            for each in self.broker.topology.subscriptions.values()
        }

    def named(self) -> dict[Identity, Subscription]:
        """The subscriptions whose name is not a random one."""
        found = {identity_of(each): each for each in self.broker.topology.subscriptions.values()}
        return {identity: each for identity, each in found.items() if not identity.name.startswith("private")}


def identity_of(subscription: Subscription) -> Identity:
    """In the model's terms."""
    identity = subscription.identity
    return Identity(identity.scope.container_id, identity.name, identity.durable)


def waiting_in(queue: Queue) -> list[str]:
    """The bodies of what waits, in order."""
    return [body_of(entry[DATA]) for entry in queue]


def body_of(data: bytes) -> str:
    """The machine's messages are m1, m2 and so on."""
    message = Message()
    message.decode(data)
    assert isinstance(message.body, str) and re.fullmatch(r"m\d+", message.body)
    return message.body
