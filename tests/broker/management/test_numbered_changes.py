"""QUERY with `statesSince` where very many subscriptions have changed: they get their versions a slice per step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker.management.known_states import ATTRIBUTES, KnownStates
from support.stepped_broker import SteppedBroker

from penstock_api.management import EntityType, SubscriptionDeclaration
from penstock_broker.management import changed_states, declare
from penstock_broker.management.replies import to_value
from penstock_broker.topology import state_changes
from penstock_broker.topology.records import Subscription


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedBroker]:
    monkeypatch.setattr(changed_states, "NUMBERED_PER_STEP", 10)
    monkeypatch.setattr(state_changes, "WALKED", 5)
    broker = SteppedBroker()
    for number in range(25):
        declared(broker, f"{number:02}")
    yield broker
    broker.close()


def declared(site: SteppedBroker, name: str) -> None:
    body = to_value(SubscriptionDeclaration(subscription_name=name, exchange="amq.topic"))
    assert declare.declare(site.broker, EntityType.SUBSCRIPTION, None, body, update=False).status == 201


def subscription(site: SteppedBroker, name: str) -> Subscription:
    (found,) = [each for each in site.broker.topology.subscriptions.values() if each.identity.name == name]
    return found


def known_names(known: KnownStates) -> list[str]:
    return sorted(each.subscription_name for each in known.states.values())


def test_what_changed_gets_its_versions_a_slice_per_step(site: SteppedBroker) -> None:
    task = changed_states.begin(site.broker, "", ATTRIBUTES, 100)
    left = [site.broker.topology.state_changes.pending]
    for _ in range(3):
        assert task.changes is None
        assert task.step(10) is None
        left.append(site.broker.topology.state_changes.pending)
    assert left == [25, 15, 5, 0]
    assert task.changes is not None
    assert [name.rpartition(":")[2] for name in task.changes.states] == [f"{number:02}" for number in range(25)]


def test_what_changes_between_two_steps_is_told_to_the_next_request(site: SteppedBroker) -> None:
    """One that has its version already, one that waits for it, and one that is new: the first two are told as they are
    in the first reply, and whatever changed after its version was given is told again."""
    task = changed_states.begin(site.broker, "", ATTRIBUTES, 100)
    task.step(10)
    for name in ("03", "17"):
        subscription(site, name).queue.note_change()
    declared(site, "new")
    while task.step(10) is None:
        pass
    assert task.changes is not None
    assert len(task.changes.states) == 25
    again = changed_states.begin(site.broker, _token(site, task), ATTRIBUTES, 100)
    while again.step(10) is None:
        pass
    assert again.changes is not None
    assert [name.rpartition(":")[2] for name in again.changes.states] == ["03", "new"]


def _token(site: SteppedBroker, task: changed_states.ChangedStatesTask) -> str:
    return f"{site.broker.instance.id}.{site.broker.log.epoch}.{task.until}"


def test_two_readers_at_once_are_told_everything(site: SteppedBroker) -> None:
    """The second begins while half of the first generation has no version yet, and after another change."""
    first = changed_states.begin(site.broker, "", ATTRIBUTES, 100)
    first.step(10)
    declared(site, "new")
    second = changed_states.begin(site.broker, "", ATTRIBUTES, 100)
    while first.changes is None or second.changes is None:
        first.step(10)
        second.step(10)
    assert (len(first.changes.states), len(second.changes.states)) == (25, 26)


def test_what_ends_between_two_steps_gets_no_version(site: SteppedBroker) -> None:
    task = changed_states.begin(site.broker, "", ATTRIBUTES, 100)
    task.step(10)
    site.broker.topology.end(subscription(site, "03"))
    site.broker.topology.end(subscription(site, "17"))
    while task.step(10) is None:
        pass
    assert task.changes is not None
    assert len(task.changes.states) == 23
    assert not site.broker.topology.state_changes.pending


@pytest.mark.parametrize("changed", [1, 4, 5, 6, 25])
def test_few_and_many_changes_are_told_alike(site: SteppedBroker, changed: int) -> None:
    """One by one up to `WALKED`, here 5, else by copying; in pages of three and with ends among them."""
    known = KnownStates()
    known.ask(site.broker)
    for number in range(changed):
        subscription(site, f"{number:02}").queue.note_change()
    site.broker.topology.end(subscription(site, "24"))
    known.ask(site.broker, 3)
    assert known.told == min(changed, 24)
    assert not known.was_whole
    assert known_names(known) == [f"{number:02}" for number in range(24)]
    subscription(site, "23").queue.note_change()  # which has its version since the first question, or the second
    known.ask(site.broker, 3)
    assert known.told == 1
    for number in range(18):
        site.broker.topology.end(subscription(site, f"{number:02}"))
    known.ask(site.broker, 3)
    assert known_names(known) == [f"{number:02}" for number in range(18, 24)]
