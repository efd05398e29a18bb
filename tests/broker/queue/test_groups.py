"""Who has which group, and that many of them are forgotten."""

from __future__ import annotations

from broker.queue.ordered_messages import Somebody, entry, message
from support.encoded_messages import amqp_value, described, fields

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue.groups import Groups


def owner(groups: Groups, name: str) -> str | None:
    group = groups.owner(entry(10_000_000 + hash(name) % 1_000_000, message(group=name)))
    return str(group.consumer) if group is not None else None


def take(groups: Groups, number: int, name: str, who: Somebody, *, closing: bool = False) -> None:
    groups.take(entry(number, message(group=name, closing=closing)), who)


def test_who_takes_the_first_message_has_the_group_until_it_leaves() -> None:
    groups, one, two = Groups(), Somebody("one"), Somebody("two")
    take(groups, 1, "a", one)
    take(groups, 2, "b", two)
    assert [owner(groups, name) for name in "abc"] == ["one", "two", None]
    groups.left(one)
    assert [owner(groups, name) for name in "ab"] == [None, "two"]


def test_who_takes_what_the_owner_does_not_want_does_not_get_the_group() -> None:
    groups, one, two = Groups(), Somebody("one"), Somebody("two")
    take(groups, 1, "a", one)
    take(groups, 2, "a", two)
    assert owner(groups, "a") == "one"


def test_a_closed_group_is_nobodys_and_opens_anew() -> None:
    groups, one, two = Groups(), Somebody("one"), Somebody("two")
    take(groups, 1, "a", one)
    take(groups, 2, "a", one, closing=True)
    assert owner(groups, "a") is None
    take(groups, 3, "a", two)
    for number in (1, 2):
        groups.release(number)
    assert (owner(groups, "a"), len(groups)) == ("two", 2)


def test_of_too_many_groups_those_used_longest_ago_are_forgotten() -> None:
    groups, one = Groups(max_idle=3), Somebody("one")
    for number, name in enumerate("abc"):
        take(groups, number, name, one)
        groups.release(number)
    take(groups, 3, "a", one)
    groups.release(3)
    take(groups, 4, "d", one)
    assert [owner(groups, name) for name in "abcd"] == ["one", None, "one", "one"]


def test_a_group_with_messages_at_its_consumer_is_not_forgotten() -> None:
    groups, one = Groups(max_idle=2), Somebody("one")
    for number in range(100):
        take(groups, number, str(number), one)
        if number:
            groups.release(number)
    assert owner(groups, "0") == "one"
    assert len(groups) <= 3


def test_of_long_names_no_more_than_a_digest_is_kept() -> None:
    """AMQP sets no limit to group-id, and a group is remembered when its messages are gone."""

    def named(number: int, name: str) -> Entry:
        string32 = b"\xb1" + len(name).to_bytes(4, "big") + name.encode()
        return entry(number, described(0x73, fields(*[b"\x40"] * 10, string32, wide=True)) + amqp_value("x"))

    groups, one, two = Groups(), Somebody("one"), Somebody("two")
    names = ["g" * 256, "g" * 100_000, "g" * 100_001]
    for number, (name, who) in enumerate(zip(names, (one, two, one), strict=True)):
        groups.take(named(number, name), who)
    found = [groups.owner(named(number + 10, name)) for number, name in enumerate(names)]
    assert [group and group.consumer for group in found] == [one, two, one]
    _, owned = groups.take_all()
    assert [len(name) for name in owned] == [256, 16, 16]


def test_a_message_that_is_reserved_and_then_taken_is_held_once() -> None:
    groups, one = Groups(max_idle=1), Somebody("one")
    take(groups, 1, "a", one)
    group = groups.owner(entry(1, message(group="a")))
    assert group is not None
    groups.hold(entry(1, message(group="a")), group)
    groups.release(1)
    take(groups, 2, "b", one)
    assert [owner(groups, name) for name in "ab"] == [None, "one"]


def test_the_end_of_a_message_that_nobody_holds_changes_nothing() -> None:
    """One that waited, of a group or of none, expires."""
    groups, one = Groups(), Somebody("one")
    take(groups, 1, "a", one)
    groups.release(2)
    assert (owner(groups, "a"), len(groups)) == ("one", 2)
