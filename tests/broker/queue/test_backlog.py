"""The order in which a queue hands out: levels, places, groups and selectors, against a naive list."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from broker.queue.ordered_messages import Somebody, entry, message
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue import backlog as backlog_module
from penstock_broker.queue.backlog import Backlog
from penstock_broker.queue.exclusions import Exclusions
from penstock_broker.queue.flags import priority_of
from penstock_core.selector import Selector, compile_selector


def selector(text: str) -> Selector:
    compiled = compile_selector(text)
    assert isinstance(compiled, Selector)
    return compiled


def numbers(entries: list[Entry]) -> list[int]:
    return [each[0] for each in entries]


def by_number(*chosen: int) -> dict[int, Entry]:
    return {number: entry(number) for number in chosen}


def backlog(*entries: Entry) -> Backlog:
    made = Backlog(Exclusions())
    made.put(entries)
    return made


def take(of: Backlog, who: Somebody) -> int | None:
    of.examination.budget = 1_000_000
    taken = of.take(who)
    return taken[0] if taken is not None else None


def all_of(of: Backlog, who: Somebody) -> list[int]:
    taken: list[int] = []
    while (number := take(of, who)) is not None:
        taken.append(number)
    return taken


def test_higher_priorities_go_first_and_each_in_order_of_publishing() -> None:
    priorities = [4, 0, 9, 4, 9, 5]
    made = backlog(*(entry(number, message(priority)) for number, priority in enumerate(priorities, 1)))
    assert not made.is_plain
    assert numbers(list(made)) == [3, 5, 6, 1, 4, 2]
    assert all_of(made, Somebody()) == [3, 5, 6, 1, 4, 2]


def test_many_are_taken_in_the_order_of_single_ones() -> None:
    priorities = [4, 0, 9, 4, 9, 5]
    made = backlog(*(entry(number, message(priority)) for number, priority in enumerate(priorities, 1)))
    who = Somebody()
    assert numbers(made.take_many(who, 1)) == [3]
    made.put_back(entry(3, message(9)))
    assert [numbers(made.take_many(who, count)) for count in (3, 2, 5, 5)] == [[3, 5, 6], [1, 4], [2], []]


def test_priorities_above_nine_are_the_highest() -> None:
    made = backlog(entry(1, message(9)), entry(2, message(200)), entry(3, message(9)))
    assert all_of(made, Somebody()) == [1, 2, 3]


def test_what_comes_back_goes_before_the_fresh_ones_of_its_priority_only() -> None:
    made = backlog(entry(1, message(9)), entry(2), entry(3, message(9)), entry(4))
    who = Somebody()
    assert [take(made, who), take(made, who), take(made, who)] == [1, 3, 2]
    made.put_back(entry(2))
    made.put_back(entry(3, message(9)))
    assert all_of(made, who) == [3, 2, 4]


def test_a_queue_of_one_priority_is_plain_and_becomes_so_again() -> None:
    made = backlog(entry(1), entry(2))
    assert made.is_plain
    made.put([entry(3, message(5))])
    made.calm_down()
    assert not made.is_plain
    assert take(made, Somebody()) == 3
    made.calm_down()
    assert made.is_plain
    made.put_back(entry(3, message(5)))
    assert (made.is_plain, numbers(list(made))) == (False, [3, 1, 2])


def test_when_something_has_to_give_way_it_is_the_oldest_of_the_lowest_priority() -> None:
    made = backlog(entry(1, message(9)), entry(2), entry(3, message(1)), entry(4, message(1)))
    dropped = [made.drop_oldest() for _ in range(5)]
    assert [each[0] if each else None for each in dropped] == [3, 4, 2, 1, None]


def test_the_newest_is_what_came_last() -> None:
    made = backlog(entry(1), entry(2, message(9)), entry(3, message(1)), entry(4))
    dropped = [made.drop_newest() for _ in range(5)]
    assert [each[0] if each else None for each in dropped] == [4, 3, 2, 1, None]


def test_messages_are_taken_out_from_wherever_they_wait() -> None:
    made = backlog(entry(1), entry(2, message(9)), entry(3, message(group="g")), entry(4, message(group="g")))
    owner, other = Somebody(), Somebody()
    assert [take(made, owner), take(made, owner), take(made, owner)] == [2, 1, 3]
    made.put_back(entry(1))
    assert take(made, other) == 1
    made.put_back(entry(1))
    assert take(made, other) == 1
    assert take(made, other) is None  # 4 is put by for the owner
    made.put([entry(5)])
    assert numbers(made.pick(by_number(4, 5, 9), {5})) == [4, 5]
    assert (len(made), take(made, owner)) == (0, None)


def test_what_is_passed_over_is_set_aside_in_its_place() -> None:
    made = backlog(*(entry(number) for number in range(1, 7)))
    assert numbers(made.pick(by_number(2), {1, 2, 3})) == [2]
    assert [each[0] for each in made.normal.fresh] == [4, 5, 6]
    assert numbers(made.pick(by_number(5), {4, 5})) == [5]
    assert numbers(made.pick(by_number(1, 5, 9), set())) == [1]  # set aside, gone, never there
    made.put([entry(7)])
    assert [take(made, Somebody()) for _ in range(5)] == [3, 4, 6, 7, None]


def test_who_selects_finds_what_was_set_aside() -> None:
    made = backlog(*(entry(number, message(colour="red" if number % 3 == 0 else "blue")) for number in range(1, 10)))
    red = Somebody()
    made.select(red, selector("colour = 'red'"))
    assert take(made, red) == 3
    assert numbers(made.pick(by_number(4), {4, 5, 6, 7})) == [4]
    assert all_of(made, red) == [6, 9]
    assert all_of(made, Somebody()) == [1, 2, 5, 7, 8]


def test_a_snapshot_stays_what_it_was() -> None:
    made = backlog(entry(1), entry(2, message(9)), entry(3), entry(4))
    assert take(made, Somebody()) == 2
    made.put_back(entry(2, message(9)))
    snapshot = made.snapshot()
    assert take(made, Somebody()) == 2
    assert take(made, Somebody()) == 1
    made.put([entry(5)])
    assert len(made.take_all()) == 4
    assert len(made) == 0
    assert numbers(list(snapshot)) == [2, 1, 3, 4]


def test_a_copy_can_be_taken_from() -> None:
    made = backlog(entry(1), entry(2))
    copy = made.copy(below=3)
    assert (copy.popleft()[0], numbers(list(made))) == (1, [1, 2])
    assert take(made, Somebody()) == 1
    made.put_back(entry(1))
    assert numbers(list(made.copy(below=3))) == [1, 2]


def test_who_selects_leaves_the_others_in_their_order() -> None:
    made = backlog(*(entry(number, message(colour="red" if number % 3 == 0 else "blue")) for number in range(1, 10)))
    red, everything = Somebody(), Somebody()
    made.select(red, selector("colour = 'red'"))
    assert all_of(made, red) == [3, 6, 9]
    assert all_of(made, everything) == [1, 2, 4, 5, 7, 8]


def test_what_comes_back_is_found_by_who_selects_it_though_all_was_examined() -> None:
    colours = ("blue", "red", "blue", "red", "blue")
    made = backlog(*(entry(number, message(colour=colour)) for number, colour in enumerate(colours, 1)))
    red, also_red = Somebody(), Somebody()
    for who in (red, also_red):
        made.select(who, selector("colour = 'red'"))
    assert all_of(made, red) == [2, 4]
    for number in (4, 2):
        made.put_back(entry(number, message(colour="red")))
    assert all_of(made, also_red) == [2, 4]


def test_a_message_is_examined_once_per_selector_and_decoded_once() -> None:
    made = backlog()
    one, two = Somebody(), Somebody()
    made.select(one, selector("colour = 'red'"))
    made.select(two, selector("colour = 'green'"))
    for number in range(1, 1001):
        made.put([entry(number, message(colour="blue"))])
        assert (take(made, one), take(made, two)) == (None, None)
    assert made.examination.total == 2000


def test_consumers_with_the_same_selector_share_what_was_examined() -> None:
    made = backlog(*(entry(number, message(colour="blue")) for number in range(1, 101)))
    several = [Somebody() for _ in range(10)]
    for who in several:
        made.select(who, selector("colour = 'red'"))
    assert [take(made, who) for who in several] == [None] * 10
    assert made.examination.total == 100


def test_who_begins_to_select_finds_what_lies_before_that_which_others_look_at_now() -> None:
    made = backlog(*(entry(number, message(colour="blue")) for number in (1, 2)))
    red, blue = Somebody(), Somebody()
    made.select(red, selector("colour = 'red'"))
    assert take(made, red) is None
    made.select(blue, selector("colour = 'blue'"))
    made.put([entry(3, message(colour="blue"))])
    assert take(made, red) is None
    assert all_of(made, blue) == [1, 2, 3]


def test_a_delayed_message_that_another_selector_passes_over_is_found_below_the_cursor() -> None:
    """It has a lower number than those that did not wait for their time."""
    made = backlog(entry(9, message(colour="green")))
    red, blue = Somebody(), Somebody()
    for who, colour in ((red, "red"), (blue, "blue")):
        made.select(who, selector(f"colour = '{colour}'"))
        assert take(made, who) is None
    made.put([entry(5, message(colour="blue"))])
    assert (take(made, red), take(made, blue)) == (None, 5)


def test_what_comes_back_is_found_also_when_one_of_those_who_share_a_selector_has_left() -> None:
    made = backlog(*(entry(number, message(colour="blue" if number == 2 else "red")) for number in range(1, 4)))
    one, two = Somebody(), Somebody()
    for who in (one, two):
        made.select(who, selector("colour = 'blue'"))
    assert (take(made, one), take(made, two)) == (2, None)
    made.left(one)
    made.put_back(entry(2, message(colour="blue")))
    assert take(made, two) == 2


def test_who_shares_a_selector_and_calls_a_message_undeliverable_does_so_for_itself_alone() -> None:
    made = backlog(*(entry(number, message(colour="red" if number == 2 else "blue")) for number in range(1, 5)))
    one, two = Somebody(), Somebody()
    for who in (one, two):
        made.select(who, selector("colour = 'blue'"))
    assert take(made, one) == 1
    made.exclude(one, 1)
    made.put_back(entry(1, message(colour="blue")))
    assert [take(made, one), take(made, two), take(made, two), take(made, one)] == [3, 1, 4, None]
    assert all_of(made, Somebody()) == [2]


def test_a_visit_examines_no_more_than_its_budget_and_goes_on_where_it_was() -> None:
    made = backlog(
        *(entry(number, message(colour="blue")) for number in range(1, 31)), entry(31, message(colour="red"))
    )
    red = Somebody()
    made.select(red, selector("colour = 'red'"))
    visits = 0
    taken = None
    while taken is None:
        made.examination.budget = 10
        taken = made.take(red)
        visits += 1
    assert (taken[0], visits) == (31, 4)


def test_a_visit_examines_no_more_than_its_budget_of_what_others_looked_at_before() -> None:
    made = backlog(*(entry(number, message(colour="blue" if number < 11 else "green")) for number in range(1, 12)))
    red, green = Somebody(), Somebody()
    made.select(red, selector("colour = 'red'"))
    assert take(made, red) is None
    made.select(green, selector("colour = 'green'"))
    found: list[int | None] = []
    for _ in range(3):
        made.examination.budget = 4
        taken = made.take(green)
        found.append(taken[0] if taken is not None else None)
    assert found == [None, None, 11]


def test_a_message_that_cannot_be_read_is_not_selected() -> None:
    broken = (*entry(2)[:1], b"\x00\x53\x74\xc1\x05\x02\xa1\x01\xff\xff\xff", *entry(2)[2:])
    made = backlog(entry(1, message(colour="red")), broken, entry(3, message(colour="red")))
    red = Somebody()
    made.select(red, selector("colour = 'red' OR colour IS NULL"))
    assert all_of(made, red) == [1, 3]
    assert all_of(made, Somebody()) == [2]


def test_another_selector_may_ask_the_message_that_was_read_last_for_something_else() -> None:
    made = backlog(entry(1, message(priority=9, colour="red")))
    one, two = Somebody(), Somebody()
    made.select(one, selector("colour = 'blue'"))
    assert take(made, one) is None
    made.select(two, selector("JMSPriority = 9"))
    assert take(made, two) == 1


def test_a_message_that_everybody_calls_undeliverable_here_stays() -> None:
    made = backlog(entry(1), entry(2))
    one, two = Somebody(), Somebody()
    for who in (one, two):
        assert take(made, who) == 1
        made.exclude(who, 1)
        made.put_back(entry(1))
    assert take(made, one) == 2
    assert [take(made, one), take(made, two), take(made, Somebody())] == [None, None, 1]


def test_the_order_is_plain_again_once_all_that_was_undeliverable_somewhere_has_left() -> None:
    """But a selector stays, and so does a limit of length."""
    excluded = Exclusions()
    made = Backlog(excluded)
    made.put([entry(1), entry(2), entry(3)])
    one, two, short = Somebody(), Somebody(), Somebody()
    for number in (1, 2):
        assert take(made, one) == number
        made.exclude(one, number)
        made.put_back(entry(number))
    made.limit(short, 1_000_000)
    made.exclude(short, 1)
    for left in (1, 2):
        made.calm_down()
        assert one.cursor is not None
        assert take(made, two) == left
        excluded.forget(left)
    made.calm_down()
    assert (one.cursor, short.cursor is None, made.is_plain) == (None, False, False)
    made.left(short)
    made.calm_down()
    assert made.is_plain
    assert all_of(made, one) == [3]


def test_who_comes_with_the_same_selector_gets_what_another_called_undeliverable_and_leaves_nothing() -> None:
    made = backlog(entry(1, message(colour="red")))
    one, two = Somebody(), Somebody()
    made.select(one, selector("colour = 'red'"))
    assert take(made, one) == 1
    made.exclude(one, 1)
    made.put_back(entry(1, message(colour="red")))
    made.select(two, selector("colour = 'red'"))
    assert (take(made, one), take(made, two)) == (None, 1)
    for who in (one, two):
        made.left(who)
    made.calm_down()
    assert (made.is_plain, made.selections.cursors) == (True, [])


def test_of_who_called_a_message_undeliverable_here_nothing_is_left_once_it_leaves() -> None:
    """AMQP 1.0 part 3, 3.4.5: it is undeliverable at that link. Else a message that stays would be remembered for all
    consumers that ever refused it, and slow down the end of each other one."""
    excluded = Exclusions()
    made = Backlog(excluded)
    made.put([entry(1), entry(2)])
    one, two = Somebody(), Somebody()
    for who, number in ((one, 1), (two, 1), (one, 2)):
        assert take(made, who) == number
        made.exclude(who, number)
        made.put_back(entry(number))
    made.left(one)
    assert [excluded.holds(who, 1) for who in (one, two)] == [False, True]
    made.left(two)
    assert not excluded


def test_a_group_goes_to_one_consumer_until_it_leaves() -> None:
    made = backlog(*(entry(number, message(group="ab"[number % 2])) for number in range(1, 9)))
    one, two = Somebody(), Somebody()
    assert [take(made, one), take(made, two)] == [1, 2]
    assert [take(made, one), take(made, one)] == [3, 5]
    assert [take(made, two), take(made, one), take(made, one)] == [4, 7, None]
    made.left(one)
    for number in (7, 5, 3, 1):
        made.put_back(entry(number, message(group="b")))
    assert all_of(made, two) == [1, 3, 5, 6, 7, 8]


def test_what_is_reserved_is_first_before_what_came_back_behind_it_and_goes_first_when_it_has_to() -> None:
    """Within one priority messages are in publishing order, wherever they wait (decision 031)."""
    made = backlog(entry(1, message(group="g")), entry(2, message(group="g")), entry(3), entry(4))
    owner, other = Somebody("owner"), Somebody("other")
    assert [take(made, owner), take(made, other)] == [1, 3]  # 2 is put by for the owner
    made.put_back(entry(3))
    first = made.first()
    assert first is not None and (first[0][0], first[1]) == (2, owner)
    dropped = made.drop_oldest()
    assert dropped is not None and dropped[0] == 2
    first = made.first()
    assert first is not None and (first[0][0], first[1]) == (3, None)


def test_a_group_that_is_closed_is_anybodys() -> None:
    made = backlog(
        entry(1, message(group="g")), entry(2, message(group="g", closing=True)), entry(3, message(group="g"))
    )
    one, two = Somebody(), Somebody()
    assert [take(made, one), take(made, two)] == [1, None]  # 2 and 3 are put by
    assert [take(made, one), take(made, two)] == [2, 3]


def closed_with_35_reserved(monkeypatch: pytest.MonkeyPatch) -> tuple[Backlog, Somebody, Somebody]:
    """A group that was closed by the message that its owner took last, two; every third message is of another group."""
    monkeypatch.setattr(backlog_module, "GIVEN_BACK_PER_VISIT", 10)
    made = backlog(
        entry(1, message(group="g")),
        entry(2, message(group="g", closing=True)),
        *(entry(number, message(group="h" if number % 3 == 0 else "g")) for number in range(3, 38)),
    )
    owner, other = Somebody("owner"), Somebody("other")
    assert take(made, owner) == 1
    assert made.groups is not None
    made.groups.take(entry(3, message(group="h")), owner)  # the owner has the other group as well
    made.groups.release(3)
    assert take(made, other) is None  # all are put by for the owner
    assert take(made, owner) == 2
    return made, owner, other


def test_of_a_group_that_is_closed_a_slice_goes_back_in_each_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, other = closed_with_35_reserved(monkeypatch)
    back = [len(made.normal.back)]
    taken: list[int | None] = []
    while not taken or taken[-1] is None:
        assert made.has_for(other)
        taken.append(take(made, other))
        assert made.examination.budget <= 0 or taken[-1] is not None
        back.append(len(made.normal.back))
    # Ten are looked at in each visit: 4 of 3 to 12 are of the other group, 3 of the next ten; one was taken then.
    assert back == [6, 13, 20, 22]
    assert taken == [None, None, 4]
    assert all_of(made, other) == [number for number in range(5, 38) if number % 3]


def test_of_a_group_that_is_closed_all_priorities_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the lower one have come before the others."""
    monkeypatch.setattr(backlog_module, "GIVEN_BACK_PER_VISIT", 2)
    closing = entry(2, message(9, group="g", closing=True))
    lower = (entry(number, message(group="g")) for number in (3, 4))
    higher = (entry(number, message(9, group="g")) for number in (5, 6, 7))
    made = backlog(entry(1, message(9, group="g")), closing, *lower, *higher)
    owner, other = Somebody("owner"), Somebody("other")
    assert (take(made, owner), take(made, other), take(made, owner)) == (1, None, 2)
    found = [number for _ in range(10) if (number := take(made, other)) is not None]
    assert found == [5, 6, 7, 3, 4]


def test_the_owner_of_a_group_that_is_closed_may_leave_before_all_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made, owner, other = closed_with_35_reserved(monkeypatch)
    made.left(owner)
    assert all_of(made, other) == list(range(3, 38))


def test_what_leaves_before_a_closed_group_is_back_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, other = closed_with_35_reserved(monkeypatch)
    late = [each for each in made if each[0] in (20, 37)]
    assert [each[0] for each in made.pick({each[0]: each for each in late}, set())] == [20, 37]
    made.put([entry(38, message(group="g"))])
    taken = [take(made, other) for _ in range(4)]
    assert taken == [None, None, 4, 5]
    assert all_of(made, other) == [number for number in range(7, 39) if number % 3 and number not in (20, 37)]


def test_a_group_stays_with_its_consumer_while_the_queue_is_empty() -> None:
    made = backlog(entry(1, message(group="g")))
    one, two = Somebody(), Somebody()
    assert take(made, one) == 1
    assert made.groups is not None
    made.groups.release(1)
    made.calm_down()
    made.put([entry(2, message(group="g"))])
    assert [take(made, two), take(made, one)] == [None, 2]


def test_once_its_consumers_left_a_queue_with_groups_is_plain() -> None:
    made = backlog(entry(1, message(group="g")))
    one = Somebody()
    assert take(made, one) == 1
    assert made.groups is not None
    made.groups.release(1)
    made.left(one)
    made.calm_down()
    assert made.is_plain


def test_what_others_take_leaves_little_behind_for_who_does_not() -> None:
    made = backlog(entry(1, message(colour="blue")))
    red, blue, everything = Somebody(), Somebody(), Somebody()
    made.select(red, selector("colour = 'red'"))
    made.select(blue, selector("colour = 'blue'"))
    for number in range(2, 2000):
        made.put([entry(number, message(colour="blue"))])
        assert take(made, red) is None  # which hints to the one who selects blue
        assert take(made, everything) == number - 1
    assert blue.cursor is not None
    assert sum(len(hints) for hints in blue.cursor._hints.values()) < 100  # pyright: ignore[reportPrivateUsage]
    assert take(made, blue) == 1999


def test_what_others_took_meanwhile_is_stepped_over_in_slices() -> None:
    """Forty messages that were examined come back, and go again: the cursor has to forget forty numbers."""
    made = backlog(*(entry(number, message(colour="red")) for number in range(1, 41)))
    blue, other = Somebody(), Somebody()
    made.select(blue, selector("colour = 'blue'"))
    assert take(made, blue) is None
    for number in all_of(made, other):
        made.put_back(entry(number, message(colour="red")))
    assert len(all_of(made, other)) == 40
    made.put([entry(41, message(colour="blue"))])
    visits = 0
    found = None
    while found is None:
        made.examination.budget = 10
        found = made.take(blue)
        visits += 1
    assert (found[0], visits) == (41, 5)


def test_whether_there_is_something_for_a_consumer_is_known_without_taking_it() -> None:
    made = backlog(entry(1, message(colour="blue")), entry(2, message(group="g", colour="blue")))
    red, everything, owner = Somebody(), Somebody(), Somebody()
    made.select(red, selector("colour = 'red'"))
    assert [made.has_for(who) for who in (red, everything, everything)] == [False, True, True]
    assert all_of(made, owner) == [1, 2]
    made.put([entry(3, message(group="g"))])
    assert [made.has_for(everything), made.has_for(owner)] == [False, True]
    made.put([entry(number, message(colour="blue")) for number in range(4, 1000)])
    assert made.has_for(red)  # not all is examined yet
    assert all_of(made, red) == []
    assert not made.has_for(red)


# -- against a naive list -------------------------------------------------------------------------------------------

SELECTORS = (None, "colour = 'red'", "colour <> 'red'", "JMSPriority > 4 OR colour = 'red'")


@dataclass
class Waiting:
    """A message as the naive list knows it."""

    entry: Entry
    colour: str
    group: str | None
    closing: bool
    excluded: set[Somebody] = field(default_factory=set[Somebody])

    def selected(self, who: Somebody, text: str | None) -> bool:
        if who in self.excluded:
            return False
        match text:
            case None:
                return True
            case "colour = 'red'":
                return self.colour == "red"
            case "colour <> 'red'":
                return self.colour != "red"
            case _:
                return priority_of(self.entry) > 4 or self.colour == "red"


class HandingOut(RuleBasedStateMachine):
    """Whatever happens, `take` gives what a search through the whole sorted list would."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog(Exclusions())
        self.waiting: dict[int, Waiting] = {}
        self.takers: dict[Somebody, str | None] = {}
        self.held: dict[int, tuple[Waiting, Somebody]] = {}
        self.owners: dict[str, Somebody] = {}
        self.number = 0

    def who(self, index: int) -> Somebody:
        return list(self.takers)[index % len(self.takers)]

    @precondition(lambda self: len(self.takers) < 4)
    @rule(text=st.sampled_from(SELECTORS))
    def attach(self, text: str | None) -> None:
        who = Somebody(f"c{len(self.takers)}")
        self.takers[who] = text
        if text is not None:
            self.backlog.select(who, selector(text))

    @rule(
        messages=st.lists(
            st.tuples(
                st.sampled_from((4, 4, 4, 0, 9)),
                st.sampled_from((None, None, "g", "h")),
                st.booleans(),
                st.sampled_from(("red", "blue")),
            ),
            min_size=1,
            max_size=5,
        )
    )
    def put(self, messages: list[tuple[int, str | None, bool, str]]) -> None:
        for priority, group, closing, colour in messages:
            self.number += 1
            closing = closing and group is not None
            made = entry(self.number, message(priority, group, closing=closing, colour=colour))
            self.waiting[self.number] = Waiting(made, colour, group, closing)
            self.backlog.put([made])

    def expected(self, who: Somebody) -> Waiting | None:
        for each in sorted(self.waiting.values(), key=lambda one: (-priority_of(one.entry), one.entry[0])):
            if not each.selected(who, self.takers[who]):
                continue
            owner = self.owners.get(each.group or "")
            if owner is None or owner is who or not each.selected(owner, self.takers[owner]):
                return each
        return None

    @precondition(lambda self: self.takers)
    @rule(index=st.integers(0, 9), times=st.integers(1, 4))
    def take(self, index: int, times: int) -> None:
        for _ in range(times):
            self.take_one(self.who(index))

    def take_one(self, who: Somebody) -> None:
        expected = self.expected(who)
        assert self.backlog.has_for(who) == (expected is not None)
        assert take(self.backlog, who) == (expected.entry[0] if expected else None)
        if expected is None:
            return
        number = expected.entry[0]
        del self.waiting[number]
        self.held[number] = (expected, who)
        if expected.group is not None and self.owners.setdefault(expected.group, who) is who and expected.closing:
            del self.owners[expected.group]

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, 9), how=st.sampled_from(("accept", "release", "release", "exclude")))
    def settle(self, index: int, how: str) -> None:
        number = list(self.held)[index % len(self.held)]
        each, who = self.held.pop(number)
        if how == "accept":
            if self.backlog.groups is not None:
                self.backlog.groups.release(number)
            return
        if how == "exclude" and who in self.takers:
            each.excluded.add(who)
            self.backlog.exclude(who, number)
        self.waiting[number] = each
        self.backlog.put_back(each.entry)

    @precondition(lambda self: self.takers)
    @rule(index=st.integers(0, 9))
    def leave(self, index: int) -> None:
        who = self.who(index)
        del self.takers[who]
        self.owners = {group: owner for group, owner in self.owners.items() if owner is not who}
        for each in self.waiting.values():
            each.excluded.discard(who)
        self.backlog.left(who)
        for number, (each, holder) in list(self.held.items()):
            if holder is who:
                del self.held[number]
                self.waiting[number] = each
                self.backlog.put_back(each.entry)

    @rule(oldest=st.booleans())
    def drop(self, oldest: bool) -> None:
        dropped = self.backlog.drop_oldest() if oldest else self.backlog.drop_newest()
        if dropped is None:
            assert not oldest or not self.waiting
            return
        if oldest:
            assert dropped[0] == min((priority_of(each.entry), number) for number, each in self.waiting.items())[1]
        del self.waiting[dropped[0]]
        if self.backlog.groups is not None:
            self.backlog.groups.release(dropped[0])

    @rule()
    def calm_down(self) -> None:
        self.backlog.calm_down()

    @invariant()
    def nothing_is_lost_or_there_twice(self) -> None:
        order = sorted(self.waiting.values(), key=lambda one: (-priority_of(one.entry), one.entry[0]))
        assert len(self.backlog) == len(order)
        assert sorted(numbers(list(self.backlog))) == sorted(self.waiting)


HandingOut.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestHandingOut = HandingOut.TestCase
