"""Attach: decisions 1 to 8, 11, 14, 16 and 17 (docs/decisions), expected values typed from the page."""

from __future__ import annotations

import pytest
from core.factories import ANN, BOB, CONTAINER, asked, attaching, identity, live, resource, there

from penstock_core.attach import (
    AskedSource,
    AttachRequest,
    Create,
    FoundSubscription,
    Join,
    Rebind,
    decide,
    identities_to_look_up,
    look_up,
)
from penstock_core.binding import Binding, ByConnection, ByContainer, Filter, NoLocal, no_local_of
from penstock_core.identity import Identity, LinkKey, queue_name
from penstock_core.reason import ErrorCondition, Reason, Refuse
from penstock_core.terms import ClientOverrides, Exclusivity, ExpiryPolicy, Lifetime

OWNED = LinkKey(CONTAINER, "sub")
EU = Filter(selector="region = 'eu'")


def refused(decision: object) -> tuple[Reason, str]:
    """Reason and wire condition of a refusal."""
    assert isinstance(decision, Refuse)
    return decision.reason, decision.condition.value


# 1. Identity of a subscription = (scope, name, durable)


@pytest.mark.parametrize("link_name", ["sub", "sub|2", "sub|global", "sub|global-volatile1", "sub|a|b"])
def test_decision_01_the_suffix_of_a_shared_link_means_nothing(link_name: str) -> None:
    decision = decide(attaching(link_name, shared=True, global_=True, durability=2), None, None)
    assert isinstance(decision, Create)
    assert decision.identity == identity("sub")


def test_decision_01_a_bar_at_position_0_belongs_to_the_name() -> None:
    decision = decide(attaching("|sub|2", shared=True, global_=True, durability=2), None, None)
    assert isinstance(decision, Create)
    assert decision.identity == identity("|sub")


def test_decision_01_links_of_one_name_share_a_subscription() -> None:
    existing = there(identity("sub"), consumers=3)
    decision = decide(attaching("sub|4", shared=True, global_=True, durability=2, container_id="c4"), existing, None)
    assert decision == Join(existing=existing, claims=None, steals=False)


def test_decision_01_a_random_name_never_meets_a_shared_name() -> None:
    own = identities_to_look_up(attaching("x", nonce="sub"))
    shared = identities_to_look_up(attaching("private|sub", shared=True))
    assert own[0] != shared[0]


def test_decision_01_a_subscription_needs_a_name() -> None:
    assert refused(decide(attaching("", shared=True), None, None)) == (Reason.INVALID_NAME, "amqp:invalid-field")


def test_decision_01_a_durable_subscription_has_a_name_that_the_log_can_hold() -> None:
    longest = "x" * (65_535 - len("psub:durable:global:"))
    made = decide(attaching(longest, shared=True, global_=True, durability=2), None, None)
    assert isinstance(made, Create)
    assert len(queue_name(made.identity)) == 65_535
    for name in (longest + "x", "\u00e9" * 11_000):
        decision = decide(attaching(name, shared=True, global_=True, durability=2), None, None)
        assert refused(decision) == (Reason.INVALID_NAME, "amqp:invalid-field")
        volatile = decide(attaching(name, shared=True, global_=True, durability=0), None, None)
        assert isinstance(volatile, Create)


# 2. DURABLE is the terminus durability; the lifetime follows the expiry policy alone


@pytest.mark.parametrize(("durability", "durable"), [(0, False), (1, True), (2, True)])
def test_decision_02_durable_is_durability_1_or_2(durability: int, durable: bool) -> None:
    decision = decide(attaching(shared=True, durability=durability, expiry=ExpiryPolicy.NEVER), None, None)
    assert isinstance(decision, Create)
    assert decision.identity.durable is durable
    assert decision.lifetime is Lifetime.PERMANENT


@pytest.mark.parametrize(
    ("expiry", "lifetime"),
    [
        (ExpiryPolicy.LINK_DETACH, Lifetime.NO_OUTBOUND_LINK),
        (ExpiryPolicy.SESSION_END, Lifetime.SESSION_END),
        (ExpiryPolicy.CONNECTION_CLOSE, Lifetime.CONNECTION_CLOSE),
        (ExpiryPolicy.NEVER, Lifetime.PERMANENT),
        (None, Lifetime.SESSION_END),
    ],
)
def test_decision_02_the_lifetime_follows_the_expiry_policy(expiry: ExpiryPolicy | None, lifetime: Lifetime) -> None:
    for durability in (0, 2):
        decision = decide(attaching(durability=durability, expiry=expiry), None, None)
        assert isinstance(decision, Create)
        assert decision.lifetime is lifetime


# 3. Null source: the row's own queue first, then, without a capability, the name up to the bar


@pytest.mark.parametrize(
    ("link_name", "second"),
    [
        ("foo|global", identity("foo")),
        ("foo|global2", identity("foo")),
        ("foo|2", identity("foo", container_id=CONTAINER)),
        ("foo|volatile1", identity("foo", container_id=CONTAINER)),
    ],
)
def test_decision_03_without_capabilities_the_suffix_is_a_second_try(link_name: str, second: object) -> None:
    own = identity(link_name, container_id=CONTAINER)
    assert identities_to_look_up(attaching(link_name, null_source=True)) == (own, second)


def test_decision_03_the_rows_own_queue_wins() -> None:
    own, other = there(identity("foo|global", container_id=CONTAINER)), there(identity("foo"))
    request = attaching("foo|global", null_source=True)
    assert look_up(request, {own.identity: own, other.identity: other}) == FoundSubscription(own)
    assert look_up(request, {other.identity: other}) == FoundSubscription(other)


def test_decision_03_a_name_without_suffix_is_looked_for_once() -> None:
    assert identities_to_look_up(attaching("foo", null_source=True)) == (identity("foo", container_id=CONTAINER),)


@pytest.mark.parametrize(("shared", "global_"), [(True, False), (False, True), (True, True)])
def test_decision_03_with_a_capability_there_is_no_second_try(shared: bool, global_: bool) -> None:
    request = attaching("foo|global", shared=shared, global_=global_, null_source=True)
    assert len(identities_to_look_up(request)) == 1


# 4. A not-shared durable queue remembers the link that owns it


def test_decision_04_the_first_link_owns_it() -> None:
    decision = decide(attaching(durability=2), None, None)
    assert isinstance(decision, Create)
    assert decision.owner == LinkKey(CONTAINER, "sub")


@pytest.mark.parametrize(("shared", "durability"), [(True, 2), (True, 0), (False, 0)])
def test_decision_04_nothing_else_has_an_owner(shared: bool, durability: int) -> None:
    decision = decide(attaching(shared=shared, durability=durability), None, None)
    assert isinstance(decision, Create)
    assert decision.owner is None


def test_decision_04_the_owner_attaches_again() -> None:
    existing = there(identity(container_id=CONTAINER), exclusivity=Exclusivity.LINK, owner=OWNED)
    decision = decide(attaching(durability=2), existing, None)
    assert decision == Join(existing=existing, claims=None, steals=False)


def test_decision_04_the_owner_rebinds_by_the_rule_for_existing_queues() -> None:
    existing = there(identity(container_id=CONTAINER), exclusivity=Exclusivity.LINK, owner=OWNED)
    decision = decide(attaching(durability=2, source=asked(filter=EU)), existing, None)
    assert isinstance(decision, Rebind)
    assert decision.binding == Binding("orders", frozenset({"#"}), EU)


def test_decision_04_any_other_link_is_refused() -> None:
    existing = there(identity(), exclusivity=Exclusivity.LINK, owner=LinkKey("other", "sub"))
    decision = decide(attaching(global_=True, durability=2), existing, None)
    assert refused(decision) == (Reason.OWNED_BY_OTHER_LINK, "amqp:resource-locked")


def test_decision_04_it_never_has_two_consumers() -> None:
    existing = there(identity(container_id=CONTAINER), exclusivity=Exclusivity.LINK, owner=OWNED, consumers=1)
    decision = decide(attaching(durability=2), existing, None)
    assert refused(decision) == (Reason.SUBSCRIPTION_IN_USE, "amqp:resource-locked")


@pytest.mark.parametrize("container_id", [None, CONTAINER])
def test_decision_04_a_managed_one_without_owner_takes_the_first_link(container_id: str | None) -> None:
    existing = there(identity(container_id=container_id), exclusivity=Exclusivity.LINK, user=None, managed=resource())
    decision = decide(attaching(global_=container_id is None, durability=2), existing, None)
    assert decision == Join(existing=existing, claims=LinkKey(CONTAINER, "sub"), steals=False)


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
def test_decision_04_shared_and_not_shared_never_join_each_other(exclusivity: Exclusivity) -> None:
    # "If existing queue exclusivity policy is not 'shared', then link creation is refused ..."
    existing = there(identity(container_id=CONTAINER), exclusivity=exclusivity, owner=OWNED)
    decision = decide(attaching(shared=exclusivity is Exclusivity.LINK, durability=2), existing, None)
    assert refused(decision) == (Reason.EXCLUSIVITY_MISMATCH, "amqp:resource-locked")


# 5. Decide first, steal after


def test_decision_05_a_success_steals() -> None:
    existing = there(identity(container_id=CONTAINER), exclusivity=Exclusivity.LINK, owner=OWNED, consumers=1)
    decision = decide(attaching(durability=2), existing, live(existing.identity, durable=True))
    assert isinstance(decision, Join)
    assert decision.steals


def test_decision_05_the_live_link_does_not_count_as_a_consumer() -> None:
    existing = there(identity("sub"), consumers=1)
    request = attaching(shared=True, global_=True, durability=2, source=asked(filter=EU))
    decision = decide(request, existing, live(existing.identity, shared=True, global_=True, durable=True))
    assert isinstance(decision, Rebind)
    assert decision.steals


def test_decision_05_a_refused_attach_steals_nothing() -> None:
    existing = there(identity("sub"), consumers=2)
    request = attaching(shared=True, global_=True, durability=2, source=asked(filter=EU))
    decision = decide(request, existing, live(existing.identity, shared=True, global_=True, durable=True))
    assert refused(decision) == (Reason.SUBSCRIPTION_IN_USE, "amqp:resource-locked")


@pytest.mark.parametrize(("shared", "global_", "durability"), [(False, True, 2), (True, False, 2), (True, True, 0)])
def test_decision_05_live_for_another_kind_is_locked(shared: bool, global_: bool, durability: int) -> None:
    other = live(identity("sub"), shared=True, global_=True, durable=True)
    decision = decide(attaching(shared=shared, global_=global_, durability=durability), None, other)
    assert refused(decision) == (Reason.LINK_LIVE_FOR_OTHER_KIND, "amqp:resource-locked")


def test_decision_05_a_not_shared_volatile_link_is_stolen_for_a_new_queue() -> None:
    old = identity("private|n0", container_id=CONTAINER, durable=False)
    decision = decide(attaching(nonce="n1"), None, live(old))
    assert isinstance(decision, Create)
    assert decision.steals
    assert decision.identity.name == "private|n1"


# 6. Rebind = drop the backlog, new incarnation, new binding, and only with no consumer


@pytest.mark.parametrize(
    "source",
    [
        asked(exchange="invoices"),
        asked(keys=frozenset({"eu.#"})),
        asked(filter=EU),
    ],
    ids=["exchange", "keys", "filter"],
)
@pytest.mark.parametrize("consumers", [0, 1])
def test_decision_06_another_binding(source: AskedSource, consumers: int) -> None:
    existing = there(identity("sub"), consumers=consumers)
    request = attaching(shared=True, global_=True, durability=2, source=source)
    decision = decide(request, existing, None)
    if consumers:
        assert refused(decision) == (Reason.SUBSCRIPTION_IN_USE, "amqp:resource-locked")
    else:
        assert isinstance(decision, Rebind)
        assert decision.existing is existing


def test_decision_06_bindings_compare_after_parsing() -> None:
    existing = there(identity("sub"), keys=frozenset({"#"}), consumers=1)
    request = attaching(
        shared=True, global_=True, durability=2, source=asked(keys=frozenset({"#"}), address="orders/#")
    )
    assert isinstance(decide(request, existing, None), Join)


# 7. Another lifetime or durability than asked: the attach succeeds


@pytest.mark.parametrize("expiry", [None, *ExpiryPolicy])
def test_decision_07_another_lifetime_joins(expiry: ExpiryPolicy | None) -> None:
    existing = there(identity("sub"), lifetime=Lifetime.CONNECTION_CLOSE)
    decision = decide(attaching(shared=True, global_=True, durability=1, expiry=expiry), existing, None)
    assert decision == Join(existing=existing, claims=None, steals=False)


# 8. Null source


def test_decision_08_found_while_others_consume_and_whoever_owns_it() -> None:
    existing = there(identity("sub"), exclusivity=Exclusivity.LINK, owner=LinkKey("other", "x"), consumers=1)
    assert look_up(attaching(global_=True, null_source=True), {existing.identity: existing}) == FoundSubscription(
        existing
    )


def test_decision_08_not_found() -> None:
    assert refused(look_up(attaching("foo|global", null_source=True), {})) == (
        Reason.SUBSCRIPTION_NOT_FOUND,
        "amqp:not-found",
    )


# 14. Managed: the resource is the authority


def managed(overrides: ClientOverrides, request: AttachRequest) -> object:
    """The decision about a subscription that a resource declares on orders/eu.# with a selector, one link consuming."""
    existing = there(
        identity("sub"), keys=frozenset({"eu.#"}), filter=EU, consumers=1, user=None, managed=resource(overrides)
    )
    decision = decide(request, existing, None)
    if isinstance(decision, Join):
        assert decision.existing is existing
    return decision


def joining(source: AskedSource) -> AttachRequest:
    return attaching(shared=True, global_=True, durability=2, source=source)


AS_DECLARED = [
    pytest.param(asked(), id="exchange-alone"),
    pytest.param(asked(keys=frozenset({"eu.#"})), id="same-key"),
    pytest.param(asked(filter=EU), id="same-filter"),
    pytest.param(asked(keys=frozenset({"eu.#"}), filter=EU), id="all-the-same"),
]
OTHERWISE = [
    pytest.param(asked(exchange="invoices"), id="exchange"),
    pytest.param(asked(keys=frozenset({"us.#"})), id="key"),
    pytest.param(asked(filter=Filter(selector="x = 1")), id="filter"),
]


@pytest.mark.parametrize("source", AS_DECLARED)
@pytest.mark.parametrize("overrides", list(ClientOverrides))
def test_decision_14_naming_nothing_else_joins(overrides: ClientOverrides, source: AskedSource) -> None:
    assert isinstance(managed(overrides, joining(source)), Join)


@pytest.mark.parametrize("source", OTHERWISE)
def test_decision_14_refuse_names_the_resource(source: AskedSource) -> None:
    decision = managed(ClientOverrides.REFUSE, joining(source))
    assert refused(decision) == (Reason.MANAGED, "amqp:resource-locked")
    assert isinstance(decision, Refuse)
    assert "shop/orders-eu" in decision.description
    assert decision.error_info() == {"penstock:reason": "Managed", "resource": "shop/orders-eu"}


@pytest.mark.parametrize("source", OTHERWISE)
def test_decision_14_ignore_joins(source: AskedSource) -> None:
    assert isinstance(managed(ClientOverrides.IGNORE, joining(source)), Join)


@pytest.mark.parametrize("overrides", list(ClientOverrides))
def test_decision_14_even_an_idle_one_is_never_rebound_by_a_client(overrides: ClientOverrides) -> None:
    existing = there(identity("sub"), user=None, managed=resource(overrides))
    decision = decide(joining(asked(exchange="invoices")), existing, None)
    assert not isinstance(decision, Rebind)


def test_decision_14_the_mismatch_names_the_resource_too() -> None:
    existing = there(identity(), exclusivity=Exclusivity.LINK, user=None, managed=resource())
    decision = decide(joining(asked()), existing, None)
    assert refused(decision) == (Reason.EXCLUSIVITY_MISMATCH, "amqp:resource-locked")
    assert isinstance(decision, Refuse)
    assert "shop/orders-eu" in decision.description


# 16. A subscription records the user that made it


def test_decision_16_the_maker_is_recorded() -> None:
    decision = decide(attaching(user=BOB), None, None)
    assert isinstance(decision, Create)
    assert decision.user == BOB


@pytest.mark.parametrize("null_source", [False, True])
def test_decision_16_another_users_needs_a_permission(null_source: bool) -> None:
    existing = there(identity("sub"), user=ANN)

    def answer(may: bool) -> object:
        request = attaching(
            shared=True, global_=True, durability=2, user=BOB, may_use_others=may, null_source=null_source
        )
        if null_source:
            return look_up(request, {existing.identity: existing})
        return decide(request, existing, None)

    assert refused(answer(False)) == (Reason.OTHER_USER, "amqp:unauthorized-access")
    assert isinstance(answer(True), Join | FoundSubscription)


def test_decision_16_the_permission_is_never_assumed() -> None:
    request = AttachRequest(
        container_id="c", link_name="l", user=ANN, shared=True, global_=True, source=asked(), nonce="n"
    )
    assert not request.may_use_others


def test_decision_16_stealing_from_another_user_needs_a_permission() -> None:
    old = live(identity("private|n0", container_id=CONTAINER, durable=False), user=ANN)
    assert refused(decide(attaching(user=BOB), None, old)) == (Reason.OTHER_USER, "amqp:unauthorized-access")
    assert isinstance(decide(attaching(user=BOB, may_use_others=True), None, old), Create)


def test_decision_16_what_a_resource_declared_is_nobodys_own() -> None:
    existing = there(identity("sub"), user=None, managed=resource())
    assert isinstance(decide(attaching(shared=True, global_=True, durability=2, user=BOB), existing, None), Join)


# 17. No-local

NO_LOCAL = Filter(no_local=True)


@pytest.mark.parametrize(
    ("what", "owner", "leaves_out"),
    [
        (identity(container_id="client-1"), OWNED, ByContainer("client-1")),
        (identity(container_id="client-1"), None, ByContainer("client-1")),  # declared, nobody attached yet
        (identity(), LinkKey("client-2", "sub"), ByContainer("client-2")),  # global, by the link that owns it
        (identity(), None, ByConnection()),
        (identity(container_id="client-1", durable=False), None, ByConnection()),
    ],
)
def test_decision_17_durable_by_container_volatile_by_connection(
    what: Identity, owner: LinkKey | None, leaves_out: NoLocal
) -> None:
    assert no_local_of(Binding("orders", frozenset({"#"}), NO_LOCAL), what, owner) == leaves_out
    assert no_local_of(Binding("orders", frozenset({"#"})), what, owner) is None


def test_decision_17_what_is_asked_is_bound() -> None:
    for durability in (0, 2):
        decision = decide(attaching(durability=durability, source=asked(filter=NO_LOCAL)), None, None)
        assert isinstance(decision, Create)
        assert decision.binding.filter.no_local


@pytest.mark.parametrize("durability", [0, 2])
def test_decision_17_not_put_in_place_on_a_shared_source(durability: int) -> None:
    decision = decide(attaching(shared=True, durability=durability, source=asked(filter=NO_LOCAL)), None, None)
    assert isinstance(decision, Create)
    assert decision.binding.filter == Filter()


def test_decision_17_no_local_on_a_shared_source_is_no_other_filter() -> None:
    existing = there(identity("sub"), consumers=1)
    request = attaching(shared=True, global_=True, durability=2, source=asked(filter=NO_LOCAL))
    assert isinstance(decide(request, existing, None), Join)


# Limits


def test_a_binding_key_that_is_too_long_is_refused() -> None:
    decision = decide(attaching(source=asked(keys=frozenset({"k" * 256}))), None, None)
    assert refused(decision) == (Reason.INVALID_BINDING_KEY, ErrorCondition.INVALID_FIELD.value)
