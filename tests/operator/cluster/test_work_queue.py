"""The work queue with a fake clock: order, one entry per key, back-off; no key is lost, or handed out twice."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock_operator.cluster.work_queue import Priority, WorkQueue

RESYNC, CHANGE, DELETION, DEPENDENCY = Priority.RESYNC, Priority.CHANGE, Priority.DELETION, Priority.DEPENDENCY


def drain(queue: WorkQueue[str], now: float) -> list[str]:
    """Take everything that is due, in order."""
    taken: list[str] = []
    while (key := queue.take(now)) is not None:
        taken.append(key)
    return taken


def test_deletions_first_then_changes_then_the_rest() -> None:
    queue = WorkQueue[str]()
    for key, priority in (("resync", RESYNC), ("dependency", DEPENDENCY), ("change", CHANGE), ("deletion", DELETION)):
        queue.add(key, priority, now=0)
    assert drain(queue, 0) == ["deletion", "change", "dependency", "resync"]


def test_of_one_priority_first_come_first_served() -> None:
    queue = WorkQueue[str]()
    for key in ("c", "a", "b"):
        queue.add(key, CHANGE, now=0)
    assert drain(queue, 0) == ["c", "a", "b"]


def test_a_key_is_in_it_once_with_its_best_priority() -> None:
    queue = WorkQueue[str]()
    queue.add("a", CHANGE, now=0)
    queue.add("b", RESYNC, now=0)
    queue.add("b", DELETION, now=0)
    queue.add("a", RESYNC, now=0)
    assert drain(queue, 0) == ["b", "a"]
    assert len(queue) == 0


def test_a_delayed_key_comes_when_it_is_due_or_asked_for_earlier() -> None:
    queue = WorkQueue[str]()
    queue.add("a", CHANGE, now=0, delay=10)
    queue.add("b", CHANGE, now=0, delay=10)
    assert queue.next_due() == 10
    assert drain(queue, 9.9) == []
    queue.add("b", CHANGE, now=9.9)
    assert drain(queue, 9.9) == ["b"]
    assert drain(queue, 10) == ["a"]


def test_what_is_worked_on_is_handed_out_again_only_when_done() -> None:
    queue = WorkQueue[str]()
    queue.add("a", CHANGE, now=0)
    assert queue.take(0) == "a"
    queue.add("a", CHANGE, now=1)
    assert queue.take(1) is None
    queue.done("a")
    assert queue.take(1) == "a"


def test_failures_wait_longer_and_longer_up_to_half_a_minute() -> None:
    queue = WorkQueue[str]()
    delays: list[float] = []
    now = 0.0
    queue.add("a", CHANGE, now)
    for _ in range(7):
        assert queue.take(now) == "a"
        delays.append(queue.retry("a", CHANGE, now))
        now += delays[-1]
    assert delays == [1, 2, 4, 8, 16, 30, 30]


def test_what_fails_for_days_waits_no_longer() -> None:
    """A deletion that waits for consumers over a weekend is repeated ten thousand times."""
    queue = WorkQueue[str]()
    delays: list[float] = []
    for attempt in range(10_000):
        queue.add("a", CHANGE, 30.0 * attempt)
        assert queue.take(30.0 * attempt) == "a"
        delays.append(queue.retry("a", CHANGE, 30.0 * attempt))
    assert delays[-1] == 30


def test_up_to_half_of_a_delay_is_taken_off_at_random() -> None:
    """So that what failed together does not come back together."""
    numbers = iter([0.0, 1.0, 0.5, 0.0])
    queue = WorkQueue[str](lambda: next(numbers))
    for key in "abcd":
        queue.add(key, CHANGE, 0)
        queue.take(0)
    assert [queue.retry(key, CHANGE, 0) for key in "abcd"] == [1, 0.5, 0.75, 1]


def test_a_delay_begins_after_what_the_server_asks_to_wait() -> None:
    queue = WorkQueue[str](lambda: 0.5)
    queue.add("a", CHANGE, 0)
    queue.take(0)
    assert queue.retry("a", CHANGE, 0, at_least=7) == 7.75


def test_success_forgets_failures() -> None:
    queue = WorkQueue[str]()
    queue.add("a", CHANGE, 0)
    assert queue.take(0) == "a"
    assert queue.retry("a", CHANGE, 0) == 1
    assert queue.take(1) == "a"
    queue.done("a")
    queue.add("a", CHANGE, 1)
    assert queue.take(1) == "a"
    assert queue.retry("a", CHANGE, 1) == 1


KEYS = st.sampled_from("abc")


class QueueMachine(RuleBasedStateMachine):
    """Compares the queue with a dictionary that is searched completely at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WorkQueue[str]()
        self.now = 0.0
        self.waiting: dict[str, tuple[float, Priority]] = {}
        self.working: set[str] = set()

    @rule(key=KEYS, priority=st.sampled_from(Priority), delay=st.sampled_from([0, 1, 5]))
    def add(self, key: str, priority: Priority, delay: float) -> None:
        self.queue.add(key, priority, self.now, delay)
        due, before = self.waiting.get(key, (self.now + delay, priority))
        self.waiting[key] = (min(due, self.now + delay), min(before, priority))

    @rule(seconds=st.sampled_from([0.5, 1, 10]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        due = {
            key: priority
            for key, (when, priority) in self.waiting.items()
            if when <= self.now and key not in self.working
        }
        taken = self.queue.take(self.now)
        if not due:
            assert taken is None
            return
        assert taken is not None
        assert due[taken] == min(due.values())
        del self.waiting[taken]
        self.working.add(taken)

    @rule(fails=st.booleans())
    def finish(self, fails: bool) -> None:
        for key in sorted(self.working)[:1]:
            self.working.discard(key)
            if not fails:
                self.queue.done(key)
                continue
            delay = self.queue.retry(key, CHANGE, self.now)
            due, before = self.waiting.get(key, (self.now + delay, CHANGE))
            self.waiting[key] = (min(due, self.now + delay), min(before, CHANGE))

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.queue) == len(self.waiting)
        assert self.queue.working == len(self.working)
        idle = [when for key, (when, _) in self.waiting.items() if key not in self.working]
        due = self.queue.next_due()
        assert not idle or (due is not None and due <= min(idle))


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = hypothesis_settings(max_examples=100, stateful_step_count=40)
