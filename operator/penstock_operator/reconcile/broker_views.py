"""What the plans of Exchanges, Subscriptions and Queues get to know about their Broker.

Source: docs/decisions/055-deletion.md, docs/decisions/097-outages.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from penstock_api import declaration
from penstock_api.resources import Declaring
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.plans.decisions import BrokerView, Reach
from penstock_operator.reconcile.broker_findings import BrokerFindings

__all__ = ["BrokerViews"]


@dataclass(slots=True)
class BrokerViews:
    """The Brokers as those see them that are declared on them."""

    cache: Cache
    sessions: BrokerSessions
    findings: Mapping[ResourceKey, BrokerFindings]
    clock: Callable[[], datetime]
    _unreadable_since: dict[ResourceKey, datetime] = field(default_factory=dict[ResourceKey, datetime])
    """Since when this operator can't parse the specs of these Brokers."""

    def forget(self, key: ResourceKey) -> None:
        """The Broker is gone, or another operator's."""
        self._unreadable_since.pop(key, None)

    def findings_of(self, resource: Declaring) -> BrokerFindings:
        """What was found out about the Broker that a resource names."""
        return self.findings.get(ResourceKey("Broker", *declaration.broker_key(resource)), BrokerFindings())

    def of(self, resource: Declaring) -> BrokerView:
        """The Broker that a resource names."""
        namespace, name = declaration.broker_key(resource)
        key, broker = ResourceKey("Broker", namespace, name), self.cache.broker(namespace, name)
        if broker is None:
            if not self.cache.is_unreadable(key):
                return BrokerView(reach=Reach.ABSENT)
            now = self.clock()
            # The clock may have been set back since: then its time counts from now on.
            since = self._unreadable_since[key] = min(self._unreadable_since.get(key, now), now)
            return BrokerView(
                reach=Reach.UNREADABLE,
                problem="This operator can't parse the Broker's spec.",
                unreachable_since=since,
            )
        self.forget(key)
        if broker.metadata.deletion_timestamp is not None:
            return BrokerView(reach=Reach.DELETING, broker=broker, problem="The Broker is being deleted.")
        if broker.spec.replicas == 0:
            return BrokerView(reach=Reach.STOPPED, broker=broker)
        session, contact = self.sessions.get(broker.key), self.sessions.contacts.of(broker.key)
        found = self.findings_of(resource)
        if session is None:
            return BrokerView(
                reach=Reach.NOT_ASKED,
                broker=broker,
                problem=f"The operator has not connected to Broker {name} yet.",
                is_out=found.is_out,
                unreachable_since=contact.unasked_since,
                is_awaited=contact.is_awaited(self.clock(), has_session=False),
            )
        state, reach = session.state, session.reach
        return BrokerView(
            reach=reach,
            broker=broker,
            problem=session.problem_sentence,
            is_out=found.is_out,
            unreachable_since=contact.unasked_since,
            is_awaited=reach is Reach.NOT_ASKED and contact.is_awaited(self.clock(), has_session=True),
            version="" if state is None else state.version,
            understands=None if state is None or state.understands is None else frozenset(state.understands),
        )
