"""The rules in sequence: a naive store applies decisions, as a broker would, and must never come to a state that the
page forbids.

Several containers, sessions, users and kinds of link attach, detach, close, end sessions and connections, look up and
declare, in any order that Hypothesis finds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from core.factories import ANN, BOB, asked, attaching, resource
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from penstock_core.attach import (
    AttachRequest,
    Create,
    FoundSubscription,
    Join,
    Rebind,
    decide,
    identities_to_look_up,
    look_up,
)
from penstock_core.binding import Binding, Filter
from penstock_core.declaration_rules import (
    DeclaredSubscription,
    DeleteExisting,
    DropAndRebind,
    Keep,
    Make,
    RebindInPlace,
    decide_declaration,
    decide_deletion,
)
from penstock_core.detach import DetachRequest, EndSubscription, SourceKind, decide_detach
from penstock_core.existing_subscription import ExistingSubscription, LiveLink
from penstock_core.identity import Identity, LinkKey
from penstock_core.reason import Refuse
from penstock_core.subscription_lifetime import AttachedSessions, SessionKey, has_ended
from penstock_core.terms import Durability, ExchangeType, Exclusivity, ExpiryPolicy, Lifetime, RebindPolicy

CONNECTIONS = {1: ("client-1", ANN), 2: ("client-2", ANN), 3: ("client-1", ANN), 4: ("client-3", BOB)}
"""Container-id and user of each connection; the first and third share a container."""


@dataclass
class Attached:
    """A consuming link."""

    identity: Identity
    live: LiveLink
    session: SessionKey
    durability: Durability


@dataclass
class Store:
    """What a broker keeps; comparable, so that a refusal can be seen to change nothing."""

    subscriptions: dict[Identity, ExistingSubscription] = field(default_factory=dict[Identity, ExistingSubscription])
    backlog: dict[Identity, int] = field(default_factory=dict[Identity, int])
    users: dict[Identity, AttachedSessions] = field(default_factory=dict[Identity, AttachedSessions])
    links: dict[LinkKey, Attached] = field(default_factory=dict[LinkKey, Attached])
    incarnation: int = 0

    def next_incarnation(self) -> int:
        self.incarnation += 1
        return self.incarnation

    def remove(self, identity: Identity) -> None:
        del self.subscriptions[identity], self.backlog[identity], self.users[identity]

    def end_what_is_over(self) -> None:
        for identity, each in list(self.subscriptions.items()):
            managed = each.managed is not None
            if has_ended(each.lifetime, each.consumers, self.users[identity], managed=managed):
                self.remove(identity)

    def drop_link(self, key: LinkKey) -> None:
        gone = self.links.pop(key)
        there = self.subscriptions[gone.identity]
        self.subscriptions[gone.identity] = replace(there, consumers=there.consumers - 1)

    def drop_links(self, keys: Iterable[LinkKey]) -> None:
        for key in list(keys):
            self.drop_link(key)


class Rules(RuleBasedStateMachine):
    """Steps of clients and of resources."""

    requests: Bundle[AttachRequest] = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.nonce = 0

    @rule(
        target=requests,
        name=st.sampled_from(["sub", "sub|2"]),
        shared=st.sampled_from([True, True, False]),
        global_=st.sampled_from([True, True, False]),
        durability=st.sampled_from([2, 2, 0]),
        expiry=st.sampled_from([ExpiryPolicy.NEVER, *ExpiryPolicy]),
        selector=st.sampled_from([None, "x = 1"]),
        connection=st.sampled_from(sorted(CONNECTIONS)),
    )
    def ask(
        self,
        name: str,
        shared: bool,
        global_: bool,
        durability: int,
        expiry: ExpiryPolicy,
        selector: str | None,
        connection: int,
    ) -> AttachRequest:
        container_id, user = CONNECTIONS[connection]
        return attaching(
            name,
            shared=shared,
            global_=global_,
            durability=durability,
            expiry=expiry,
            source=asked(filter=Filter(selector=selector)),
            container_id=container_id,
            user=user,
        )

    @rule(request=requests, session=st.integers(1, 2), connection=st.sampled_from([1, 3]))
    def attach(self, request: AttachRequest, session: int, connection: int) -> None:
        self.nonce += 1
        request = replace(request, nonce=str(self.nonce))
        home = {"client-1": connection, "client-2": 2, "client-3": 4}[request.container_id]
        (identity,) = identities_to_look_up(request)
        existing = self.store.subscriptions.get(identity)
        attached = self.store.links.get(request.link)
        before = copy.deepcopy(self.store)
        decision = decide(request, existing, None if attached is None else attached.live)
        match decision:
            case Refuse():
                assert self.store == before
                return
            case Create():
                self.create(decision)
            case Join():
                self.claim(decision.existing.identity, decision.claims)
            case Rebind():
                self.rebind(decision, attached)
        assert decision.steals is (attached is not None)
        self.consume(request, identity, SessionKey(home, session))
        self.store.end_what_is_over()

    def create(self, decision: Create) -> None:
        assert decision.identity not in self.store.subscriptions
        self.store.subscriptions[decision.identity] = ExistingSubscription(
            identity=decision.identity,
            incarnation=self.store.next_incarnation(),
            exclusivity=decision.exclusivity,
            lifetime=decision.lifetime,
            binding=decision.binding,
            exchange_type=ExchangeType.TOPIC,
            consumers=0,
            owner=decision.owner,
            user=decision.user,
        )
        self.store.backlog[decision.identity] = 0
        self.store.users[decision.identity] = AttachedSessions()

    def rebind(self, decision: Rebind, attached: Attached | None) -> None:
        identity = decision.existing.identity
        own = 1 if attached is not None and attached.identity == identity else 0
        assert self.store.subscriptions[identity].consumers == own, "a busy queue is never rebound"
        assert decision.existing.managed is None
        self.claim(identity, decision.claims)
        there = self.store.subscriptions[identity]
        incarnation = self.store.next_incarnation()
        self.store.subscriptions[identity] = replace(there, binding=decision.binding, incarnation=incarnation)
        self.store.backlog[identity] = 0

    def claim(self, identity: Identity, owner: LinkKey | None) -> None:
        if owner is not None:
            self.store.subscriptions[identity] = replace(self.store.subscriptions[identity], owner=owner)

    def consume(self, request: AttachRequest, identity: Identity, session: SessionKey) -> None:
        if request.link in self.store.links:
            self.store.drop_link(request.link)
        there = self.store.subscriptions[identity]
        self.store.subscriptions[identity] = replace(there, consumers=there.consumers + 1)
        self.store.users[identity] = self.store.users[identity].attached(session)
        live = LiveLink(kind=request.kind, identity=identity, user=request.user)
        self.store.links[request.link] = Attached(identity, live, session, request.durability)

    @rule(request=requests, closed=st.booleans())
    def detach(self, request: AttachRequest, closed: bool) -> None:
        attached = self.store.links.get(request.link)
        if attached is None:
            return
        existing = self.store.subscriptions[attached.identity]
        asks = DetachRequest(
            closed=closed, source=SourceKind.TOPIC, durability=attached.durability, user=attached.live.user
        )
        self.apply_close(asks, existing, existing.consumers - 1, request.link)

    @rule(request=requests, closed=st.booleans())
    def unsubscribe(self, request: AttachRequest, closed: bool) -> None:
        asks = replace(request, source=None)
        found = look_up(asks, self.store.subscriptions)
        if isinstance(found, FoundSubscription):
            close = DetachRequest(
                closed=closed, source=SourceKind.LOOKUP, durability=Durability.NONE, user=request.user
            )
            self.apply_close(close, found.existing, found.existing.consumers, None)

    def apply_close(
        self, asks: DetachRequest, existing: ExistingSubscription, others: int, link: LinkKey | None
    ) -> None:
        decision = decide_detach(asks, existing, others)
        if link is not None:
            self.store.drop_link(link)
        if isinstance(decision, EndSubscription):
            assert others == 0, "a busy queue is never ended"
            assert existing.managed is None
            self.store.remove(decision.identity)
        else:
            assert existing.identity in self.store.subscriptions
        self.store.end_what_is_over()

    @rule(connection=st.sampled_from(sorted(CONNECTIONS)), number=st.integers(1, 2))
    def end_session(self, connection: int, number: int) -> None:
        session = SessionKey(connection, number)
        self.store.drop_links(key for key, each in self.store.links.items() if each.session == session)
        for identity, users in self.store.users.items():
            self.store.users[identity] = users.session_ended(session)
        self.store.end_what_is_over()

    @rule(connection=st.sampled_from(sorted(CONNECTIONS)))
    def close_connection(self, connection: int) -> None:
        self.store.drop_links(key for key, each in self.store.links.items() if each.session.connection == connection)
        for identity, users in self.store.users.items():
            self.store.users[identity] = users.connection_closed(connection)
        self.store.end_what_is_over()

    @rule()
    def publish(self) -> None:
        for identity in self.store.backlog:
            self.store.backlog[identity] += 1

    @rule(
        exclusivity=st.sampled_from([Exclusivity.SHARED, *Exclusivity]),
        selector=st.sampled_from([None, "x = 1"]),
        policy=st.sampled_from(RebindPolicy),
        owner=st.sampled_from(["shop/a", "shop/b"]),
        lifetime=st.sampled_from(Lifetime),
    )
    def declare(
        self, exclusivity: Exclusivity, selector: str | None, policy: RebindPolicy, owner: str, lifetime: Lifetime
    ) -> None:
        (identity,) = identities_to_look_up(attaching("sub", shared=True, global_=True, durability=2))
        declared = DeclaredSubscription(
            identity=identity,
            exclusivity=exclusivity,
            lifetime=lifetime,
            binding=Binding("orders", frozenset({"#"}), Filter(selector=selector)),
            rebind_policy=policy,
            managed=resource(name=owner),
        )
        existing = self.store.subscriptions.get(identity)
        backlog = self.store.backlog.get(identity, 0)
        decision = decide_declaration(declared, existing, backlog)
        match decision:
            case Refuse():
                return
            case Make():
                self.put_declared(declared, declared.binding, self.store.next_incarnation(), 0, None)
                self.store.backlog[identity] = 0
                self.store.users[identity] = AttachedSessions()
            case Keep():
                assert existing is not None
                self.keep(decision, declared, existing, backlog)

    def keep(
        self, decision: Keep, declared: DeclaredSubscription, existing: ExistingSubscription, backlog: int
    ) -> None:
        binding, incarnation = existing.binding, existing.incarnation
        if isinstance(decision.rebinding, RebindInPlace):
            binding = declared.binding
        if isinstance(decision.rebinding, DropAndRebind):
            assert existing.consumers == 0, "a busy queue is never rebound"
            assert backlog == 0 or declared.rebind_policy is RebindPolicy.WHEN_IDLE
            binding, incarnation = declared.binding, self.store.next_incarnation()
            self.store.backlog[declared.identity] = 0
        self.put_declared(declared, binding, incarnation, existing.consumers, existing.owner)

    def put_declared(
        self, declared: DeclaredSubscription, binding: Binding, incarnation: int, consumers: int, owner: LinkKey | None
    ) -> None:
        self.store.subscriptions[declared.identity] = ExistingSubscription(
            identity=declared.identity,
            incarnation=incarnation,
            exclusivity=declared.exclusivity,
            lifetime=declared.lifetime,
            binding=binding,
            exchange_type=ExchangeType.TOPIC,
            consumers=consumers,
            owner=owner,
            user=None,
            managed=declared.managed,
        )

    @rule(if_empty=st.booleans())
    def delete(self, if_empty: bool) -> None:
        (identity,) = identities_to_look_up(attaching("sub", shared=True, global_=True, durability=2))
        existing = self.store.subscriptions.get(identity)
        backlog = self.store.backlog.get(identity, 0)
        if isinstance(decide_deletion(existing, backlog, if_empty=if_empty), DeleteExisting):
            assert existing is not None
            assert existing.consumers == 0, "a busy queue is never ended"
            assert backlog == 0 or not if_empty
            self.store.remove(identity)

    @invariant()
    def every_consumer_has_its_subscription(self) -> None:
        counted = dict.fromkeys(self.store.subscriptions, 0)
        for each in self.store.links.values():
            counted[each.identity] += 1
        assert counted == {identity: each.consumers for identity, each in self.store.subscriptions.items()}

    @invariant()
    def a_not_shared_one_has_one_consumer_at_most(self) -> None:
        for identity, each in self.store.subscriptions.items():
            if each.exclusivity is Exclusivity.LINK:
                assert each.consumers <= 1
                holders = [key for key, link in self.store.links.items() if link.identity == identity]
                assert not identity.durable or holders in ([], [each.owner])

    @invariant()
    def nothing_outlives_its_lifetime(self) -> None:
        for identity, each in self.store.subscriptions.items():
            managed = each.managed is not None
            assert not has_ended(each.lifetime, each.consumers, self.store.users[identity], managed=managed)


Rules.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestRules = Rules.TestCase
