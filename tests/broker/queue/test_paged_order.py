"""The order in which messages are handed out while most of them are not in memory, against a naive list: selectors,
groups, priorities, what comes back, what is dropped.
"""

from __future__ import annotations

from sys import getrefcount

from broker.queue.ordered_messages import Somebody, entry, message
from broker.queue.test_backlog import HandingOut, Waiting, selector, take
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from penstock_amqp.endpoint.events import DATA, NUMBER, Entry
from penstock_broker.queue.backlog import Backlog
from penstock_broker.queue.exclusions import Exclusions
from penstock_broker.queue.flags import SCHEDULED, priority_of
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.tail_pieces import pageable_if
from penstock_broker.queue.tail_snapshot import Stretch

ANY = pageable_if(lambda _: True)


def test_an_owner_gets_what_is_unread_of_its_group_before_what_another_met_behind_it() -> None:
    entries = [
        entry(1, message(group="g", colour="red")),
        entry(2, message(colour="red")),
        entry(3, message(group="g", colour="red")),
        entry(4, message(group="g", colour="blue")),
    ]

    def source(first: int, last: int, most: int, most_bytes: int) -> Stretch:
        found = [each for each in entries if first <= each[NUMBER] <= last]
        return Stretch(found, last + 1, sum(len(each[DATA]) for each in found))

    backlog, owner, other = Backlog(Exclusions()), Somebody("owner"), Somebody("other")
    backlog.put(entries[:2])
    assert take(backlog, owner) == 1
    tail = PagedTail(source, lambda count, size: None)
    backlog.normal.begin_tail(tail)
    backlog.put(entries[2:])
    tail.take_in(ANY, 5, 10)
    backlog.select(other, selector("colour = 'blue'"))
    assert take(backlog, other) is None
    assert take(backlog, owner) == 2
    assert take(backlog, owner) is None, "3 is not read yet, and 4 must wait for it"
    backlog.normal.pull(10, 1000)
    assert [take(backlog, owner), take(backlog, owner)] == [3, 4]


def test_of_delayed_messages_that_come_below_a_search_only_those_are_found_that_are_selected() -> None:
    """JMS 2.0, 3.8.1: a consumer gets only what its selector selects."""
    entries = [entry(number, message(colour="red")) for number in range(10, 14)]

    def source(first: int, last: int, most: int, most_bytes: int) -> Stretch:
        return Stretch([each for each in entries if first <= each[NUMBER] <= last], last + 1, 0)

    backlog, blue = Backlog(Exclusions()), Somebody()
    backlog.put(entries[:2])
    tail = PagedTail(source, lambda count, size: None)
    backlog.normal.begin_tail(tail)
    backlog.put(entries[2:])
    tail.take_in(ANY, 14, 10)
    backlog.select(blue, selector("colour = 'blue'"))
    assert take(backlog, blue) is None
    backlog.put([entry(each, message(colour=colour), SCHEDULED) for each, colour in ((3, "red"), (4, "blue"))])
    assert [take(backlog, blue), take(backlog, blue)] == [4, None]


def test_of_delayed_messages_that_come_before_a_search_nothing_is_kept() -> None:
    """A million may become due together, wanted by somebody who has no credit, and then their bodies are paged."""
    entries = [entry(number, message(colour="red")) for number in range(10, 14)]
    body = message(colour="blue")

    def source(first: int, last: int, most: int, most_bytes: int) -> Stretch:
        found = [*entries, entry(14, bytes(bytearray(body)), SCHEDULED)]
        return Stretch([each for each in found if first <= each[NUMBER] <= last], last + 1, 0)

    backlog, blue = Backlog(Exclusions()), Somebody()
    backlog.put(entries[:2])
    tail = PagedTail(source, lambda count, size: None)
    backlog.normal.begin_tail(tail)
    backlog.put(entries[2:])
    tail.take_in(ANY, 14, 10)
    backlog.select(blue, selector("colour = 'blue'"))
    assert take(backlog, blue) is None
    unheld = getrefcount(body)
    backlog.put([entry(14, body, SCHEDULED)])
    tail.take_in(ANY, 15, 10)
    assert (tail.runs_count, getrefcount(body)) == (3, unheld)
    assert [take(backlog, blue), take(backlog, blue)] == [14, None]


def test_a_search_looks_at_no_more_than_a_visit_may_and_finds_what_still_waits() -> None:
    """11 was there when it began, and has left the queue since."""
    colours = {10: "red", 11: "blue", 12: "red", 13: "red", 14: "red", 15: "blue"}
    entries = [entry(number, message(colour=colour)) for number, colour in colours.items()]

    def source(first: int, last: int, most: int, most_bytes: int) -> Stretch:
        return Stretch([each for each in entries if first <= each[NUMBER] <= last], last + 1, 0)

    backlog, blue, other = Backlog(Exclusions()), Somebody("blue"), Somebody("other")
    backlog.put(entries[:2])
    tail = PagedTail(source, lambda count, size: None)
    backlog.normal.begin_tail(tail)
    backlog.put(entries[2:])
    tail.take_in(ANY, 16, 10)
    backlog.select(blue, selector("colour = 'blue'"))

    def visit(budget: int) -> tuple[object, int]:
        backlog.examination.budget = budget
        return backlog.take(blue), backlog.examination.total

    assert visit(1) == (None, 1)
    assert [take(backlog, other), take(backlog, other)] == [10, 11]
    assert visit(2) == (None, 3), "12 and 13"
    assert visit(1) == (None, 4)
    assert backlog.has_for(blue), "it is found and left where it is"
    assert take(backlog, blue) == 15


class Paged:
    """A backlog with a window of three messages, 10 to 12, and a tail with the others; blue ones are `wanted`."""

    def __init__(self, *wanted: int, last: int = 20) -> None:
        colours = {number: "blue" if number in wanted else "red" for number in range(10, last + 1)}
        self.entries = {
            number: entry(number, bytes(bytearray(message(colour=colour)))) for number, colour in colours.items()
        }
        """What the log holds, each with bytes of its own."""
        self.unheld = {number: getrefcount(each[DATA]) for number, each in self.entries.items()}
        self.backlog, self.blue, self.other = Backlog(Exclusions()), Somebody("blue"), Somebody("other")
        self.tail = PagedTail(self.source, lambda count, size: None)
        every = self.copies(10, last)
        self.backlog.put(every[:3])
        self.backlog.normal.begin_tail(self.tail)
        self.backlog.put(every[3:])
        del every
        self.tail.take_in(ANY, last + 1, 1000)
        self.backlog.select(self.blue, selector("colour = 'blue'"))

    def source(self, first: int, last: int, most: int, most_bytes: int) -> Stretch:
        found = self.copies(first, last)[:4]
        return Stretch(found, found[-1][NUMBER] + 1, 0)

    def copies(self, first: int, last: int) -> list[Entry]:
        """Other entries of the same bytes."""
        return [(*each,) for number, each in self.entries.items() if first <= number <= last]

    def look(self, budget: int) -> Entry | None:
        self.backlog.examination.budget = budget
        return self.backlog.take(self.blue)

    def rest(self) -> None:
        """Two looks of the memory watch."""
        self.backlog.selections.rest(self.backlog.levels)
        self.backlog.selections.rest(self.backlog.levels)

    def held(self) -> list[int]:
        """The messages to whose bytes something refers."""
        return [number for number, each in self.entries.items() if getrefcount(each[DATA]) > self.unheld[number]]


def test_a_search_keeps_nothing_of_a_window_that_others_take() -> None:
    """A thousand consumers that wait for credit would keep a window each, of 4 MiB."""
    paged = Paged(14)
    assert paged.look(1) is None
    assert paged.held() == [10, 11, 12]
    assert [take(paged.backlog, paged.other) for _ in range(3)] == [10, 11, 12]
    assert paged.held() == []
    assert take(paged.backlog, paged.blue) == 14


def test_a_search_that_rests_keeps_nothing_of_what_it_read_and_goes_on_where_it_was() -> None:
    paged = Paged(20)
    assert paged.look(5) is None, "10 to 14"
    assert paged.held() == [10, 11, 12, 15, 16], "13 to 16 were read"
    paged.backlog.selections.rest(paged.backlog.levels)
    assert paged.held() == [10, 11, 12, 15, 16], "it was used since the last look"
    paged.backlog.selections.rest(paged.backlog.levels)
    assert paged.held() == [10, 11, 12]
    assert paged.look(4) is None, "15 to 18"
    assert paged.backlog.examination.total == 9, "nothing was looked at twice"
    paged.rest()
    assert take(paged.backlog, paged.blue) == 20
    assert paged.backlog.examination.total == 11


def test_a_copy_of_a_search_that_rests_reads_by_itself() -> None:
    """A consumer that refuses a message goes on with a search of its own."""
    paged, third = Paged(15, 20), Somebody("third")
    paged.backlog.select(third, selector("colour = 'blue'"))
    assert paged.look(5) is None
    paged.backlog.exclude(third, 10)
    paged.rest()
    assert [take(paged.backlog, third), take(paged.backlog, paged.blue)] == [15, 20]


def test_what_goes_from_the_window_to_the_tail_before_it_was_looked_at_is_found_there() -> None:
    paged = Paged(12, 18)
    assert paged.look(1) is None
    paged.tail.take_back(paged.backlog.normal.fresh, 0, ANY, 100)
    paged.rest()
    assert paged.held() == []
    assert [take(paged.backlog, paged.blue) for _ in range(3)] == [12, 18, None]
    assert paged.backlog.examination.total == 11, "each once"


def test_a_window_whose_numbers_do_not_ascend_is_looked_through_once() -> None:
    """11 was delayed, and became due behind 12 before there was a tail."""
    entries = [entry(number, message(colour="red")) for number in (10, 12, 13, 14)]
    late = entry(11, message(colour="blue"), SCHEDULED)

    def source(first: int, last: int, most: int, most_bytes: int) -> Stretch:
        return Stretch([each for each in entries if first <= each[NUMBER] <= last], last + 1, 0)

    backlog, blue, other = Backlog(Exclusions()), Somebody("blue"), Somebody("other")
    backlog.put([*entries[:2], late, entries[2]])
    tail = PagedTail(source, lambda count, size: None)
    backlog.normal.begin_tail(tail)
    backlog.put(entries[3:])
    tail.take_in(ANY, 15, 10)
    backlog.select(blue, selector("colour = 'blue'"))
    backlog.examination.budget = 2
    assert (backlog.take(blue), backlog.examination.total) == (None, 2)
    assert take(backlog, other) == 10
    assert take(backlog, blue) == 11
    assert take(backlog, blue) is None
    assert backlog.examination.total == 5


def test_of_delayed_messages_that_others_take_few_are_kept() -> None:
    """The consumer has no credit for weeks, and another takes what comes."""
    paged = Paged(last=200)
    assert take(paged.backlog, paged.blue) is None
    body = message(colour="blue")
    unheld = getrefcount(body)
    for number in range(1000):
        late = entry(-number, body, SCHEDULED)  # lower than all others
        paged.backlog.put([late])
        paged.tail.arrivals.remove(late)  # somebody else has taken it
        del late
        assert getrefcount(body) <= unheld + 65
    paged.rest()
    assert getrefcount(body) == unheld
    assert take(paged.backlog, paged.blue) is None


class PagedHandingOut(HandingOut):
    """What came back goes before what is fresh, also if its number is higher: the window can't know that it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False

    def source(self, first: int, last: int, most: int, most_bytes: int) -> Stretch:
        if self.failing:
            raise OSError(5, "Input/output error")
        found = [each.entry for number, each in sorted(self.waiting.items()) if first <= number <= last][:3]
        size = sum(len(each[DATA]) for each in found)
        return Stretch(found, found[-1][NUMBER] + 1 if len(found) == 3 else last + 1, size)

    def lost(self, count: int, size: int) -> None:
        raise AssertionError(f"{count} messages are lost")

    def returned(self, number: int, priority: int) -> bool:
        return any(each.priority == priority and each.back.find(number) is not None for each in self.backlog.levels)

    def reserved(self, number: int, who: Somebody) -> bool:
        own = [self.backlog._reserved.of(who, level) for level in self.backlog.levels]  # pyright: ignore[reportPrivateUsage]
        return any(messages is not None and messages.find(number) is not None for messages in own)

    def expected(self, who: Somebody) -> Waiting | None:
        for level in self.backlog.levels:
            waiting = [each for each in self.waiting.values() if priority_of(each.entry) == level.priority]
            waiting.sort(key=lambda one: one.entry[NUMBER])
            mine = [each for each in waiting if self.reserved(each.entry[NUMBER], who)]
            others = [each for each in waiting if each not in mine]
            others.sort(key=lambda one: not self.returned(one.entry[NUMBER], level.priority))
            free = [each for each in others if self.may_have(each, who)]
            heads = free[:1] + mine[:1]
            if heads:
                return min(heads, key=lambda one: one.entry[NUMBER])
        return None

    def may_have(self, each: Waiting, who: Somebody) -> bool:
        if not each.selected(who, self.takers[who]):
            return False
        owner = self.owners.get(each.group or "")
        return owner is None or owner is who or not each.selected(owner, self.takers[owner])

    def take_one(self, who: Somebody) -> None:
        if not any(level.tail is not None for level in self.backlog.levels):
            super().take_one(who)
            return
        expected = self.expected(who)
        number = take(self.backlog, who)
        while number is None and self.read_on():
            number = take(self.backlog, who)
        assert number == (expected.entry[NUMBER] if expected else None)
        if expected is not None and number is not None:
            self.taken(expected, who)

    def taken(self, each: Waiting, who: Somebody) -> None:
        number = each.entry[NUMBER]
        del self.waiting[number]
        self.held[number] = (each, who)
        if each.group is not None and self.owners.setdefault(each.group, who) is who and each.closing:
            del self.owners[each.group]

    def read_on(self) -> bool:
        """What the end of a turn does: fill windows that are empty."""
        empty = [level for level in self.backlog.levels if level.tail is not None and not level.fresh]
        for level in empty:
            level.pull(4, 1000)
        return bool(empty)

    @rule(oldest=st.booleans())
    def drop(self, oldest: bool) -> None:
        dropped = self.backlog.drop_oldest() if oldest else self.backlog.drop_newest()
        if dropped is not None:
            del self.waiting[dropped[NUMBER]]
            if self.backlog.groups is not None:
                self.backlog.groups.release(dropped[NUMBER])

    def tails(self) -> list[tuple[PriorityLevel, PagedTail]]:
        return [(level, level.tail) for level in self.backlog.levels if level.tail is not None]

    def put(self, messages: list[tuple[int, str | None, bool, str]]) -> None:
        super().put(messages)
        for level in self.backlog.levels:
            if level.tail is None:
                level.begin_tail(PagedTail(self.source, self.lost))

    @rule(
        messages=st.lists(
            st.tuples(st.just(4), st.sampled_from((None, None, "g")), st.just(False), st.sampled_from(("red", "blue"))),
            min_size=1,
            max_size=9,
        )
    )
    def put_more(self, messages: list[tuple[int, str | None, bool, str]]) -> None:
        self.put(messages)

    @precondition(lambda self: self.takers)
    @rule(index=st.integers(0, 9))
    def take_until_nothing_is_left(self, index: int) -> None:
        while self.expected(self.who(index)) is not None:
            self.take_one(self.who(index))
        self.take_one(self.who(index))

    @rule(keep=st.integers(0, 2), most=st.integers(1, 20))
    def forget_bodies(self, keep: int, most: int) -> None:
        for level, tail in self.tails():
            tail.take_in(ANY, self.number + 1, most)
            if self.came_back_first(level):
                if level.forget_bodies(keep, ANY, most):
                    self.backlog.selections.search_again(level)
            elif len(level.fresh) > keep:
                tail.take_back(level.fresh, keep, ANY, most)

    def came_back_first(self, level: PriorityLevel) -> bool:
        """What came back has lower numbers than all that did not, so that it keeps its place among these."""
        last = level.back.last()
        return last is not None and all(last[NUMBER] <= entry[NUMBER] for entry in level.all_fresh())

    @rule()
    def fill_windows(self) -> None:
        self.read_on()

    @precondition(lambda self: self.takers and self.tails())
    @rule(index=st.integers(0, 9), budget=st.integers(1, 4))
    def look_a_little(self, index: int, budget: int) -> None:
        """A visit that ends before the consumer's next message is found."""
        who = self.who(index)
        expected = self.expected(who)
        self.backlog.examination.budget = budget
        entry = self.backlog.take(who)
        assert entry is None or (expected is not None and entry[NUMBER] == expected.entry[NUMBER])
        if expected is not None and entry is not None:
            self.taken(expected, who)

    @rule()
    def rest(self) -> None:
        """Two looks of the memory watch, between which nobody searches."""
        self.backlog.selections.rest(self.backlog.levels)
        self.backlog.selections.rest(self.backlog.levels)

    @precondition(lambda self: self.takers and self.tails())
    @rule(index=st.integers(0, 9))
    def try_while_the_log_cannot_be_read(self, index: int) -> None:
        """Whoever gets something gets what it would have got; nobody's place is lost."""
        who = self.who(index)
        expected = self.expected(who)
        self.failing = True
        number = take(self.backlog, who)
        self.failing = False
        assert number is None or (expected is not None and number == expected.entry[NUMBER])
        if expected is not None and number is not None:
            self.taken(expected, who)


PagedHandingOut.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestPagedHandingOut = PagedHandingOut.TestCase
