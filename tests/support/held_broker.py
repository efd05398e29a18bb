"""A broker on a clock of its own whose log is synced when the test says so."""

from __future__ import annotations

from support.broker_site import HeldSyncer
from support.stepped_broker import SteppedBroker

from penstock_broker.log import FileLayer

__all__ = ["HeldBroker"]


class HeldBroker:
    """`timed`: the broker. `syncer`: what its log has asked for."""

    def __init__(self) -> None:
        self.timed = SteppedBroker(syncer=self._make)

    def _make(self, files: FileLayer) -> HeldSyncer:
        self.syncer = HeldSyncer(files)
        return self.syncer

    def catch_up(self) -> None:
        """All that is asked for is synced, and answered."""
        for _ in range(4):
            self.syncer.complete()
            self.timed.pass_ms(10)
