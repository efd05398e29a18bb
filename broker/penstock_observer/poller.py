"""The loop that polls the broker at a fixed rate and hands each poll to the live view and the ledger.

It owns no socket and no file: it is given objects for both. A broker that does not answer is a normal case here.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from penstock_api.lag_result import SubscriptionLag
from penstock_observer.durations import Durations, DurationTotals
from penstock_observer.ledger import Ledger, LedgerFull
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.rows import Poll

__all__ = ["BrokerAway", "BrokerSource", "Poller"]

log = logging.getLogger(__name__)

POLL_TIMEOUT_SECONDS: Final = 30.0
"""A poll of a hundred thousand subscriptions takes a few seconds; a broker that needs longer counts as unreachable."""

LEDGER_SECONDS: Final = 30.0
"""A ledger that takes longer for a poll is not waited for: its volume may hang, and live figures must not."""


class BrokerAway(Exception):
    """The broker did not answer a poll; the message is a sentence without its full stop."""


class BrokerSource(Protocol):
    """Where polls come from."""

    async def poll(self) -> Poll:
        """Read the broker and all its subscriptions. Raises BrokerAway; the next call then starts anew."""
        ...

    async def close(self) -> None:
        """Close the connection, if there is one."""
        ...


class Poller:
    """Polls until told to stop, then seals the ledger."""

    def __init__(
        self,
        source: BrokerSource,
        live: LiveView,
        lag: LiveLag,
        ledger: Ledger,
        interval_seconds: float,
        ledger_seconds: float = LEDGER_SECONDS,
    ) -> None:
        self._source = source
        self._lag = lag
        self._live = live
        self._ledger = ledger
        self._interval = interval_seconds
        self._ledger_seconds = ledger_seconds
        self._recording: asyncio.Task[None] | None = None
        """On its way to the ledger; polls that come meanwhile are not in it."""
        self._durations = DurationTotals()
        self._judging = ThreadPoolExecutor(1, thread_name_prefix="judge")
        """Of its own: all threads of the loop may wait for a volume that hangs."""

    async def run(self, stop: asyncio.Event) -> None:
        """Poll every interval until ``stop``. A poll that takes longer delays the next one; they never pile up."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not stop.is_set():
            await self.once()
            due = max(due + self._interval, loop.time())
            await _until(stop, due - loop.time())
        await self._source.close()
        await self._seal()

    async def once(self) -> None:
        """Poll once; a failure is noted in the live view and logged, never raised."""
        try:
            async with asyncio.timeout(POLL_TIMEOUT_SECONDS):
                poll = await self._source.poll()
        except BrokerAway as error:
            self._away(str(error))
        except TimeoutError:
            await self._source.close()
            self._away(f"the broker did not answer within {POLL_TIMEOUT_SECONDS:.0f} s")
        else:
            if not self._live.known.reachable:
                log.info("the broker answers, epoch %d", poll.broker.epoch)
            # On a thread: to judge ten thousand subscriptions takes a second.
            judging = asyncio.get_running_loop().run_in_executor(self._judging, self._judge, poll)
            self._live.answered(poll, *await judging)
            await self._record(poll)

    def _judge(self, poll: Poll) -> tuple[tuple[SubscriptionLag, ...], Durations]:
        self._lag.observe(poll)
        return tuple(self._lag.lags()), self._durations.observe(poll)

    async def _record(self, poll: Poll) -> None:
        if self._recording is not None and not self._is_recorded(self._recording):
            return
        self._recording = asyncio.create_task(asyncio.to_thread(self._ledger.append, poll))
        await asyncio.wait([self._recording], timeout=self._ledger_seconds)
        if self._is_recorded(self._recording):
            self._recording = None

    def _is_recorded(self, recording: asyncio.Task[None]) -> bool:
        """Whether the ledger has taken a poll, or has failed to; what became of it is noted in the live view."""
        if not recording.done():
            self._live.ledger_silent()
            self._ledger_failed(
                LedgerFull(
                    f"the ledger takes more than {self._ledger_seconds:g} s for a poll: its volume does not answer. "
                    "What is polled until it does is not in the ledger"
                )
            )
            return False
        try:
            recording.result()
        except LedgerFull as error:
            self._ledger_failed(error)
        else:
            self._live.ledger(None)
        return True

    async def _seal(self) -> None:
        known = self._live.known.poll
        if known is None:
            return
        try:
            await asyncio.to_thread(self._ledger.seal, known.broker.now_ms)
        except LedgerFull as error:
            self._ledger_failed(error)

    def _away(self, problem: str) -> None:
        if self._live.known.problem != problem:  # once per reason, not once per poll
            log.warning(
                "%s; the last known state is still served; the next attempt is in %g s", problem, self._interval
            )
        self._live.away(problem)

    def _ledger_failed(self, error: LedgerFull) -> None:
        if self._live.known.ledger_problem is None:
            log.error("%s", error)
        self._live.ledger(str(error))


async def _until(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
