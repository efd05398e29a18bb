"""Audits of a broker that a test steps: started, fetched and judged by the rules of the report."""

from __future__ import annotations

from collections import Counter
from typing import cast

from support.stepped_broker import SteppedBroker

from penstock_amqp.types.values import Value
from penstock_api.management import EntityType, Operation
from penstock_api.message_audit import AuditEvent, AuditRead, AuditStart, AuditState, EndedBy, unpacked
from penstock_broker.management import audits
from penstock_broker.management.replies import ManagementReply, to_value
from penstock_lag_rules.message_accounts import by_message, compared_with_totals, faults_of, shape_of, unfinished

__all__ = ["AuditedStory"]


class AuditedStory:
    """The audit that was started last, and its records as far as they were fetched."""

    def __init__(self) -> None:
        self.is_on = False
        self.events: list[AuditEvent] = []
        self.state: AuditState

    def begin(self, timed: SteppedBroker, name: str, seconds: int = 3600) -> None:
        """Start an audit of the subscription with this queue."""
        self.events.clear()
        self.state = AuditState.read(self._asked(timed, Operation.START_AUDIT, name, AuditStart(seconds=seconds)))
        self.is_on = True

    def stop(self, timed: SteppedBroker, name: str) -> None:
        """Stop it, and fetch all records."""
        self._asked(timed, Operation.STOP_AUDIT, name, None)
        self.fetch(timed, name)

    def fetch(self, timed: SteppedBroker, name: str) -> None:
        """Fetch what is there, once everything is written that was in the queue."""
        timed.pass_ms(1)
        while self.is_on:
            body = self._asked(
                timed, Operation.READ_AUDIT, name, AuditRead(audit=self.state.audit, after=len(self.events))
            )
            self.state = AuditState.read(body["state"])
            assert body["first"] == len(self.events)
            self.events += unpacked(cast(bytes, body["records"]))
            assert self.state.records == len(self.events) or body["count"]
            self.is_on = not self.state.is_written or self.state.records > len(self.events)
            if not body["count"]:
                break

    def check(self) -> None:
        """Each message has exactly one account, and the totals agree."""
        assert not self.is_on
        assert unfinished(self.state, len(self.events), True) == []
        ended_by = EndedBy(self.state.ended_by)
        for number, events in by_message(self.events).items():
            assert faults_of(shape_of(events), ended_by) == (), (number, events)
        assert compared_with_totals(self.state, Counter(event.kind for event in self.events)) == []

    def _asked(
        self, timed: SteppedBroker, operation: Operation, name: str, body: AuditStart | AuditRead | None
    ) -> dict[Value, Value]:
        answer: ManagementReply | audits.AuditTask | None = audits.handle(
            timed.broker, operation, EntityType.SUBSCRIPTION, name, None if body is None else to_value(body)
        )
        if isinstance(answer, audits.AuditTask):
            task = answer
            assert task.step(1) is None
            timed.turn()
            answer = task.step(1)
        assert answer is not None and answer.status == 200, answer
        return cast(dict[Value, Value], answer.body)
