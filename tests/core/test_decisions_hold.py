"""What holds of every decision: there is one; a busy queue is never rebound or ended; a refusal has no effect."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

from core.factories import ANN, BOB, asked, attaching, resource
from hypothesis import assume, given
from hypothesis import strategies as st

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
from penstock_core.attach_table import TABLE, AttachKey
from penstock_core.binding import Binding, Filter
from penstock_core.detach import DetachOnly, DetachRequest, EndSubscription, RefuseClose, SourceKind, decide_detach
from penstock_core.existing_subscription import ExistingSubscription, LiveLink, TopicLink
from penstock_core.identity import LinkKey
from penstock_core.reason import ErrorCondition, Reason, Refuse
from penstock_core.source_reply import source_reply
from penstock_core.terms import ClientOverrides, Durability, ExchangeType, Exclusivity, ExpiryPolicy, Lifetime

BOOLS = st.booleans()
NAMES = st.sampled_from(["sub", "sub|2", "sub|global", "|sub|x", "", "private|n1"])
CONTAINERS = st.sampled_from(["client-1", "client-2", ""])
USERS = st.sampled_from([ANN, BOB])
EXCHANGES = st.sampled_from(["orders", "invoices"])
KEYS = st.frozensets(st.sampled_from(["#", "a.*", "b"]), min_size=1, max_size=2)
FILTERS = st.builds(Filter, selector=st.sampled_from([None, "x = 1", "y = 2"]), no_local=BOOLS)
OWNERS = st.none() | st.builds(LinkKey, CONTAINERS, NAMES)
MANAGED = st.none() | st.builds(resource, st.sampled_from(ClientOverrides))


@st.composite
def requests(draw: st.DrawFn, null_source: st.SearchStrategy[bool] = BOOLS) -> AttachRequest:
    return attaching(
        draw(NAMES),
        shared=draw(BOOLS),
        global_=draw(BOOLS),
        durability=draw(st.sampled_from([0, 1, 2])),
        expiry=draw(st.none() | st.sampled_from(ExpiryPolicy)),
        source=asked(draw(EXCHANGES), draw(st.none() | KEYS), draw(FILTERS)),
        null_source=draw(null_source),
        container_id=draw(CONTAINERS),
        user=draw(USERS),
        may_use_others=draw(BOOLS),
    )


@st.composite
def existing_for(
    draw: st.DrawFn,
    request: AttachRequest,
    exclusivities: st.SearchStrategy[Exclusivity] = st.sampled_from(Exclusivity),  # noqa: B008 - a frozen strategy
) -> ExistingSubscription:
    """Anything the store could hold under the identity that the request means."""
    exclusivity = draw(exclusivities)
    shared = exclusivity is Exclusivity.SHARED
    asked_for = draw(FILTERS)
    managed = draw(MANAGED)
    return ExistingSubscription(
        identity=identities_to_look_up(request)[0],
        incarnation=draw(st.integers(1, 9)),
        exclusivity=exclusivity,
        lifetime=draw(st.sampled_from(Lifetime)),
        binding=Binding(draw(EXCHANGES), draw(KEYS), replace(asked_for, no_local=asked_for.no_local and not shared)),
        exchange_type=ExchangeType.TOPIC,
        consumers=draw(st.integers(0, 3 if shared else 1)),
        owner=None if shared else draw(OWNERS),
        user=None if managed else draw(USERS),
        managed=managed,
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[AttachRequest, ExistingSubscription | None, LiveLink | None]:
    """An attach with a source, what exists, and what is live under its (container, link name)."""
    request = draw(requests(st.just(False)))
    existing = draw(st.none() | existing_for(request))
    return request, existing, draw(live_for(request, existing))


@st.composite
def live_for(draw: st.DrawFn, request: AttachRequest, existing: ExistingSubscription | None) -> LiveLink | None:
    """What may be live under the request's (container, link name)."""
    consuming = existing is not None and existing.consumers > 0
    return draw(
        st.none()
        | st.builds(
            LiveLink,
            kind=st.builds(TopicLink, BOOLS, BOOLS, BOOLS) | st.just(request.kind),
            identity=st.just(existing.identity if existing is not None and consuming else None),
            user=USERS,
        )
    )


@given(situations())
def test_every_attach_has_an_answer(
    situation: tuple[AttachRequest, ExistingSubscription | None, LiveLink | None],
) -> None:
    request, existing, live = situation
    decision = decide(request, existing, live)
    assert isinstance(decision, Create | Join | Rebind | Refuse)
    if isinstance(decision, Create):
        assert existing is None
    if not isinstance(decision, Refuse):
        reply = source_reply(request, decision)
        assert reply.capabilities[0] == "topic"
        assert decision.steals is (live is not None)


@given(situations())
def test_a_busy_queue_is_never_rebound(
    situation: tuple[AttachRequest, ExistingSubscription | None, LiveLink | None],
) -> None:
    request, existing, live = situation
    decision = decide(request, existing, live)
    if isinstance(decision, Rebind):
        assert existing is not None
        own = 1 if live is not None and live.identity == existing.identity else 0
        assert existing.consumers - own == 0
        assert existing.managed is None
        assert decision.binding != existing.binding


@given(st.data())
def test_a_not_shared_one_never_gets_a_second_consumer(data: st.DataObject) -> None:
    request = replace(data.draw(requests(st.just(False))), shared=False)
    existing = data.draw(existing_for(request, st.just(Exclusivity.LINK)))
    live = data.draw(live_for(request, existing))
    decision = decide(request, existing, live)
    if isinstance(decision, Join | Rebind) and existing.consumers:
        assert live is not None
        assert decision.steals
        assert live.identity == existing.identity


@given(situations())
def test_decision_10_a_refusal_carries_no_effect(
    situation: tuple[AttachRequest, ExistingSubscription | None, LiveLink | None],
) -> None:
    decision = decide(*situation)
    if isinstance(decision, Refuse):
        assert [each.name for each in dataclasses.fields(decision)] == ["reason", "description", "info"]
        assert decision.condition in ErrorCondition
        assert decision.description.endswith(".")


@given(situations())
def test_other_users_things_stay_theirs(
    situation: tuple[AttachRequest, ExistingSubscription | None, LiveLink | None],
) -> None:
    request, existing, live = situation
    assume(not request.may_use_others)
    if not isinstance(decide(request, existing, live), Refuse):
        assert existing is None or existing.user in (None, request.user)
        assert live is None or live.user == request.user


@given(st.data())
def test_every_null_source_has_an_answer(data: st.DataObject) -> None:
    request = data.draw(requests(st.just(True)))
    held = {
        identity: replace(data.draw(existing_for(request)), identity=identity)
        for identity in identities_to_look_up(request)
        if data.draw(BOOLS)
    }
    answer = look_up(request, held)
    if isinstance(answer, FoundSubscription):
        assert answer.existing in held.values()
        assert answer.existing.identity.durable
        source_reply(request, answer)
    elif not held:
        assert answer.reason is Reason.SUBSCRIPTION_NOT_FOUND
    else:
        assert answer.reason is Reason.OTHER_USER


@given(st.data())
def test_every_detach_has_an_answer_and_no_busy_queue_ends(data: st.DataObject) -> None:
    request = data.draw(
        st.builds(
            DetachRequest,
            closed=BOOLS,
            source=st.sampled_from(SourceKind),
            durability=st.sampled_from(Durability),
            user=USERS,
            may_use_others=BOOLS,
        )
    )
    existing = data.draw(st.none() | existing_for(data.draw(requests())))
    others = data.draw(st.integers(0, 2))
    decision = decide_detach(request, existing, others)
    assert isinstance(decision, DetachOnly | EndSubscription | RefuseClose)
    if isinstance(decision, EndSubscription):
        assert others == 0
        assert request.closed
        assert existing is not None
        assert existing.managed is None
    if isinstance(decision, RefuseClose):
        assert request.closed


@given(requests(st.just(False)))
def test_what_was_created_is_found_again(request: AttachRequest) -> None:
    """The same attach again, once its link is gone, joins what it made: durable names lead back to themselves."""
    created = decide(request, None, None)
    assume(isinstance(created, Create) and created.identity.durable)
    assert isinstance(created, Create)
    kept = ExistingSubscription(
        identity=created.identity,
        incarnation=1,
        exclusivity=created.exclusivity,
        lifetime=created.lifetime,
        binding=created.binding,
        exchange_type=ExchangeType.TOPIC,
        consumers=0,
        owner=created.owner,
        user=created.user,
    )
    assert identities_to_look_up(request) == (kept.identity,)
    joined = decide(request, kept, None)
    assert isinstance(joined, Join)
    assert joined == Join(existing=kept, claims=None, steals=False)
    assert source_reply(request, joined) == source_reply(request, created)


@given(requests())
def test_the_row_is_the_tables(request: AttachRequest) -> None:
    assert request.row is TABLE[AttachKey(request.shared, request.global_, request.durability in (1, 2))]
