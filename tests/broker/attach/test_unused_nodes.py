"""Subscriptions that clients left behind end where that is wanted, and since when they are unused outlives restarts."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from proton import Endpoint, Receiver, Terminus
from support.proton_client import Browsing, put_symbols
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.access.permissions import PermissionCheck
from penstock_broker.attach.unused_nodes import SWEEP_MS, SWEPT_AT_ONCE
from penstock_broker.clock import STINT_SECONDS
from penstock_core.existing_subscription import OwnerMark
from penstock_core.terms import ClientOverrides

LIMIT = 900


@pytest.fixture
def timed() -> Iterator[SteppedBroker]:
    broker = SteppedBroker({"delivery": {"idleExpirySeconds": LIMIT}})
    yield broker
    broker.close()


def subscribe(
    peer: Peer, name: str = "billing", *, durability: int = Terminus.DELIVERIES, shares: bool = True
) -> Receiver:
    link = peer.session.receiver(name)
    link.source.address = "amq.topic"
    link.source.durability = durability
    link.source.expiry_policy = Terminus.EXPIRE_NEVER
    put_symbols(link.source.capabilities, ["topic", "shared", "global"] if shares else ["topic"])
    link.open()
    peer.pump()
    return link


def pass_seconds(timed: SteppedBroker, seconds: int) -> None:
    """Sweep by sweep."""
    while seconds > 0:
        step = min(seconds, SWEEP_MS // 1000)
        timed.pass_ms(step * 1000)
        seconds -= step


def unused_since_ms(timed: SteppedBroker) -> int | None:
    subscriptions = list(timed.broker.topology.subscriptions.values())
    return subscriptions[0].queue.links.unused_since_us // 1000 if subscriptions else None


def test_a_subscription_left_behind_ends(timed: SteppedBroker) -> None:
    peer = timed.connect()
    subscribe(peer)
    pass_seconds(timed, 2 * LIMIT)
    assert unused_since_ms(timed) == 0, "somebody consumes"
    peer.drop()
    left = timed.now_ms
    pass_seconds(timed, LIMIT - 60)
    assert unused_since_ms(timed) == left
    pass_seconds(timed, 120)
    assert unused_since_ms(timed) is None
    timed.restart()
    assert unused_since_ms(timed) is None


def test_who_browses_one_that_ends_is_told(timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def may(*_: object) -> bool:
        return True

    monkeypatch.setattr(PermissionCheck, "may_use_others", may)
    peer, browser = timed.connect(), timed.connect("administrator")
    subscribe(peer)
    link = browser.session.receiver("look")
    link.source.address = "psub:durable:global:billing"
    Browsing().apply(link)
    link.open()
    link.flow(10)
    browser.pump()
    assert link.state & Endpoint.REMOTE_ACTIVE
    peer.drop()
    pass_seconds(timed, LIMIT + 60)
    browser.pump()
    assert link.state & Endpoint.REMOTE_CLOSED
    assert link.remote_condition is not None
    assert link.remote_condition.name == "amqp:resource-deleted"


def test_a_volatile_one_that_never_expires_ends_too(timed: SteppedBroker) -> None:
    """Its lifetime is permanent, and a restart may be months away."""
    peer = timed.connect()
    link = subscribe(peer, durability=Terminus.NONDURABLE)
    assert link.remote_source.expiry_policy == Terminus.EXPIRE_NEVER
    peer.drop()
    pass_seconds(timed, LIMIT - 60)
    assert unused_since_ms(timed) is not None
    pass_seconds(timed, 120)
    assert unused_since_ms(timed) is None


def test_one_that_no_link_can_find_again_ends_too(timed: SteppedBroker) -> None:
    """A not-shared volatile subscription has a random name, and each link that comes back gets another one."""
    peer = timed.connect()
    link = subscribe(peer, durability=Terminus.NONDURABLE, shares=False)
    assert link.remote_source.expiry_policy == Terminus.EXPIRE_NEVER
    peer.drop()
    assert len(timed.broker.topology.subscriptions) == 1
    pass_seconds(timed, LIMIT + 60)
    assert not timed.broker.topology.subscriptions


def test_a_sweep_checks_a_few_in_each_turn(timed: SteppedBroker) -> None:
    """There may be ten thousand, and all of them may have been left behind at the same time."""
    topology, count = timed.broker.topology, 3 * SWEPT_AT_ONCE
    peer = timed.connect()
    for number in range(count):
        subscribe(peer, f"s{number}")
    peer.drop()
    pass_seconds(timed, LIMIT - 60)
    assert len(topology.subscriptions) == count
    timed.step_seconds = STINT_SECONDS  # each look at the clock takes as long as a slice may
    timed.now_ms += 2 * SWEEP_MS
    left: list[int] = []
    while topology.subscriptions and len(left) < count:
        timed.turn()
        left.append(len(topology.subscriptions))
    assert [before - after for before, after in pairwise((count, *left)) if before > after] == [SWEPT_AT_ONCE] * 3


def test_a_restart_neither_forgets_nor_hurries(timed: SteppedBroker) -> None:
    peer = timed.connect()
    subscribe(peer)
    peer.drop()
    left = timed.now_ms
    pass_seconds(timed, 120)
    timed.restart()
    assert unused_since_ms(timed) == left
    timed.now_ms += 10 * LIMIT * 1000  # it was down for hours
    timed.restart()
    pass_seconds(timed, 500)
    assert unused_since_ms(timed) == left, "its client has time to come back"
    pass_seconds(timed, 200)
    assert unused_since_ms(timed) is None


def test_what_was_in_use_at_a_crash_is_unused_from_then_on(timed: SteppedBroker) -> None:
    peer = timed.connect()
    subscribe(peer)
    pass_seconds(timed, 120)
    timed.restart()
    assert unused_since_ms(timed) == timed.now_ms


def test_a_resource_s_subscription_stays(timed: SteppedBroker) -> None:
    peer = timed.connect()
    subscribe(peer)
    (subscription,) = timed.broker.topology.subscriptions.values()
    subscription.managed = OwnerMark("n/s", "u", "c", ClientOverrides.REFUSE)
    peer.drop()
    pass_seconds(timed, 3 * LIMIT)
    assert unused_since_ms(timed) is not None


def test_nothing_ends_unless_the_broker_is_told_to() -> None:
    timed = SteppedBroker()
    try:
        peer = timed.connect()
        subscribe(peer)
        peer.drop()
        pass_seconds(timed, 2 * LIMIT)
        assert unused_since_ms(timed) is not None
    finally:
        timed.close()
