"""Fetches the records of audits from the broker, as long as one is on; asks nothing while none is.

Which audits there are stands in each poll of the broker. Source: docs/reference/observer.md, "Audits".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from penstock_api.management import EntityType, Operation, StatusCode
from penstock_api.message_audit import AuditEvent, AuditRead, AuditState, EndedBy, unpacked
from penstock_api.state_documents import BrokerState
from penstock_observer.audit_files import AuditFull, AuditStore
from penstock_observer.broker_client import FAILURES
from penstock_observer.broker_details import Connect, DetailsConnection
from penstock_observer.live_view import LiveView

__all__ = ["AuditFetcher"]

log = logging.getLogger(__name__)

FETCHED_BYTES: Final = 32 * 1024 * 1024
"""Of records in one go: twice what the broker keeps."""

ANSWER_SECONDS: Final = 10.0


class AuditFetcher:
    """Looks at each poll for audits, and stores what the broker tells of them."""

    def __init__(self, live: LiveView, connect: Connect, store: AuditStore, interval_seconds: float) -> None:
        self._live = live
        self._connect = connect
        self._store = store
        self._interval = interval_seconds
        self._told: str | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Fetch every interval until `stop`."""
        while not stop.is_set():
            await self.once()
            try:
                async with asyncio.timeout(self._interval):
                    await stop.wait()
            except TimeoutError:
                continue

    async def once(self) -> None:
        """Fetch what there is; a failure is logged, and the next call tries again."""
        poll = self._live.known.poll
        if poll is None or self._live.known.problem is not None:
            return
        try:
            await self._fetch(poll.broker)
        except (*FAILURES, TimeoutError, AuditFull) as error:
            self._failed(str(error) or type(error).__name__)
        except (ValidationError, ValueError, KeyError) as error:
            self._failed(f"an answer of the broker was not understood: {error}")
        else:
            self._told = None

    def _failed(self, problem: str) -> None:
        if problem != self._told:  # once per reason, not once per poll
            log.error("records of an audit can't be fetched: %s", problem)
        self._told = problem

    async def _fetch(self, broker: BrokerState) -> None:
        open_audits = self._store.unfinished()
        for state in open_audits:
            if (state.instance_id, state.epoch) != (broker.instance_id, broker.epoch):
                log.warning("the audit of %s ended with a restart of the broker", state.queue_name)
                await asyncio.to_thread(self._store.lost, state.audit, EndedBy.RESTART)
        names = {*broker.audits, *(each.queue_name for each in self._store.unfinished())}
        if not names:
            return
        async with asyncio.timeout(ANSWER_SECONDS):
            client = await self._connect()
        full: AuditFull | None = None
        try:
            for name in sorted(names):
                try:
                    await self._fetch_one(client, name)
                except AuditFull as error:  # there is room for the others
                    full = full or error
        finally:
            await client.close()
        if full is not None:
            raise full

    async def _fetch_one(self, client: DetailsConnection, queue_name: str) -> None:
        known = next((each.audit for each in self._store.unfinished() if each.queue_name == queue_name), None)
        fetched = 0
        while fetched < FETCHED_BYTES:
            part = await self._part(client, queue_name, known)
            if part is None:
                if known is None:
                    return
                log.warning("the broker has forgotten the rest of the audit of %s", queue_name)
                await asyncio.to_thread(self._store.lost, known, EndedBy.FORGOTTEN)
                known = None
                continue
            state, first, events, size = part
            await asyncio.to_thread(self._store.append, state, first, events)
            if not events:
                return
            known = state.audit
            fetched += size

    async def _part(
        self, client: DetailsConnection, queue_name: str, audit: str | None
    ) -> tuple[AuditState, int, list[AuditEvent], int] | None:
        """The next records of the audit (None: of whichever is there); None if the broker does not have it."""
        after = 0 if audit is None else self._store.next_of(audit)
        wanted = AuditRead(audit=audit, after=after)
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await client.request(Operation.READ_AUDIT, EntityType.SUBSCRIPTION, queue_name, wanted)
        if answer.status == StatusCode.NOT_FOUND:
            return None
        body: Mapping[str, object] = answer.check().attributes
        records, first = body["records"], body["first"]
        if not isinstance(records, bytes) or not isinstance(first, int):
            raise ValueError("records and first have other types")
        return AuditState.read(body["state"]), first, list(unpacked(records)), len(records)
