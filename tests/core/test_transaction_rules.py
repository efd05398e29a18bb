"""What a transaction takes, how long, and what a discharge leads to; the conditions typed from AMQP part 4, 4.5.8."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock_core.reason import Reason, Refuse
from penstock_core.transaction_rules import (
    UNKNOWN,
    BeginTransaction,
    CommitTransaction,
    Fail,
    RollBackTransaction,
    Taken,
    TransactionLimits,
    TransactionState,
    Usage,
    abandon,
    acquired,
    acquisition_room,
    age_deadline_ms,
    decide_acquisition,
    decide_declare,
    decide_discharge,
    decide_post,
    decide_settle,
    failed_commit,
    time_out,
    with_fault,
)

LIMITS = TransactionLimits(
    messages=3, bytes=100, connection_bytes=150, memory_bytes=1000, connection_open=2, age_ms=60_000
)
FULL = Refuse(Reason.LIMIT_EXCEEDED, "The queue is full.")
OTHER = Refuse(Reason.ADDRESS_NOT_FOUND, "No such place.")


def posted(*sizes: int) -> TransactionState:
    """A transaction in which these messages were sent at 1,000 ms."""
    state = TransactionState()
    for size in sizes:
        decision = decide_post(state, Usage(1, state.bytes), size, LIMITS, 1_000)
        assert isinstance(decision, Taken)
        state = decision.state
    return state


def refused(decision: Taken | Fail) -> tuple[str, str, bool]:
    """Condition, reason, and whether the transaction can still be committed."""
    assert isinstance(decision, Fail)
    return decision.refuse.condition.value, decision.refuse.reason.value, decision.state.is_sound


def test_a_transaction_begins_while_the_connection_has_fewer_than_its_limit() -> None:
    assert decide_declare(Usage(1, 0), LIMITS, names_global=False) == BeginTransaction()
    refuse = decide_declare(Usage(2, 0), LIMITS, names_global=False)
    assert isinstance(refuse, Refuse)
    assert refuse.condition.value == "amqp:resource-limit-exceeded"
    assert "2 open transactions" in refuse.description


def test_a_global_name_is_not_implemented() -> None:
    refuse = decide_declare(Usage(), LIMITS, names_global=True)
    assert isinstance(refuse, Refuse)
    assert refuse.condition.value == "amqp:not-implemented"


def test_messages_and_deliveries_are_counted_from_the_first_work_on() -> None:
    assert posted(40, 60) == TransactionState(messages=2, bytes=100, memory=100, since_ms=1_000)
    assert decide_settle(posted(40), LIMITS, 9_000) == TransactionState(messages=2, bytes=40, memory=40, since_ms=1_000)
    assert decide_settle(TransactionState(), LIMITS, 9_000) == TransactionState(messages=1, bytes=0, since_ms=9_000)


@pytest.mark.parametrize(
    ("state", "usage", "size"),
    [
        (posted(1, 1, 1), Usage(1, 3), 1),  # the fourth message
        (posted(60), Usage(1, 60), 41),  # 101 bytes in one
        (posted(60), Usage(2, 120), 31),  # 151 bytes on the connection
        (posted(60), Usage(1, 60, 961), 40),  # 1,001 bytes in the memory of the broker
    ],
)
def test_beyond_a_limit_a_message_is_refused_and_dooms_its_transaction(
    state: TransactionState, usage: Usage, size: int
) -> None:
    decision = decide_post(state, usage, size, LIMITS, 2_000)
    assert refused(decision) == ("amqp:resource-limit-exceeded", "LimitExceeded", False)
    assert (decision.state.bytes, decision.state.memory) == (0, 0)
    again = decide_post(decision.state, Usage(1, 0), 1, LIMITS, 3_000)
    assert refused(again) == ("amqp:resource-limit-exceeded", "LimitExceeded", False)


@pytest.mark.parametrize(("usage", "size"), [(Usage(1, 60), 40), (Usage(2, 110), 40), (Usage(1, 60, 960), 40)])
def test_a_limit_may_be_reached(usage: Usage, size: int) -> None:
    assert isinstance(decide_post(posted(60), usage, size, LIMITS, 2_000), Taken)


def test_what_is_in_the_log_already_takes_no_memory() -> None:
    decision = decide_post(posted(10), Usage(1, 10, 990), 80, LIMITS, 2_000, in_memory=10)
    assert isinstance(decision, Taken)
    assert (decision.state.bytes, decision.state.memory) == (90, 20)


def test_messages_at_once_count_as_they_would_one_by_one() -> None:
    decision = decide_post(posted(10), Usage(1, 10), 30, LIMITS, 2_000, messages=2)
    assert isinstance(decision, Taken)
    assert (decision.state.messages, decision.state.bytes, decision.state.memory) == (3, 40, 40)
    assert refused(decide_post(posted(10), Usage(1, 10), 30, LIMITS, 2_000, messages=3))[1] == "LimitExceeded"


def test_deliveries_at_once_doom_beyond_the_limit_only() -> None:
    assert decide_settle(posted(1), LIMITS, 2_000, 2) == TransactionState(messages=3, bytes=1, memory=1, since_ms=1_000)
    state = decide_settle(posted(1), LIMITS, 2_000, 3)
    assert (state.messages, state.is_sound) == (4, False)


def test_a_delivery_beyond_the_limit_dooms_the_transaction_but_stays_with_it() -> None:
    state = decide_settle(posted(1, 1, 1), LIMITS, 2_000)
    assert (state.messages, state.is_sound) == (4, False)
    assert decide_settle(state, LIMITS, 2_000).messages == 5


def test_the_first_fault_is_the_one_that_is_told() -> None:
    state = with_fault(with_fault(posted(10), FULL), OTHER)
    assert state.fault is FULL
    assert state.bytes == 0


def test_a_sound_transaction_is_committed() -> None:
    assert decide_discharge(posted(10), fail=False) == CommitTransaction()
    assert decide_discharge(TransactionState(), fail=False) == CommitTransaction()


def test_a_failed_discharge_rolls_back_and_is_no_error_whatever_came_before() -> None:
    for state in (posted(10), with_fault(posted(10), FULL), time_out(posted(10), LIMITS)):
        assert decide_discharge(state, fail=True) == RollBackTransaction(None)


def test_a_doomed_transaction_is_rolled_back_and_its_cause_told() -> None:
    decision = decide_discharge(with_fault(posted(10), FULL), fail=False)
    assert isinstance(decision, RollBackTransaction)
    assert decision.refuse is not None
    assert decision.refuse.condition.value == "amqp:transaction:rollback"
    assert decision.refuse.error_info() == {
        "penstock:reason": "TransactionRolledBack",
        "penstock:cause": "LimitExceeded",
    }
    assert decision.refuse.description.endswith("The queue is full.")


def test_a_failed_commit_keeps_what_the_cause_had_to_say() -> None:
    told = failed_commit(Refuse(Reason.LIMIT_EXCEEDED, "Full.", (("queue", "q"),)))
    assert told.error_info()["queue"] == "q"


def test_what_is_not_known_is_told_so() -> None:
    decision = decide_discharge(None, fail=False)
    assert decision is UNKNOWN
    assert decide_discharge(None, fail=True) is UNKNOWN
    assert UNKNOWN.condition.value == "amqp:transaction:unknown-id"


def test_age_counts_from_the_first_work_and_may_be_without_limit() -> None:
    assert age_deadline_ms(TransactionState(), LIMITS) is None
    assert age_deadline_ms(posted(1), LIMITS) == 61_000
    assert age_deadline_ms(posted(1), replace(LIMITS, age_ms=0)) is None
    assert age_deadline_ms(time_out(posted(1), LIMITS), LIMITS) is None


def test_a_transaction_that_timed_out_tells_so_at_everything_that_follows() -> None:
    state = time_out(posted(10), LIMITS)
    assert (state.is_over, state.bytes) == (True, 0)
    assert refused(decide_post(state, Usage(), 1, LIMITS, 99_000))[:2] == (
        "amqp:transaction:timeout",
        "TransactionTimedOut",
    )
    decision = decide_discharge(state, fail=False)
    assert isinstance(decision, RollBackTransaction)
    assert decision.refuse is not None
    assert decision.refuse.condition.value == "amqp:transaction:timeout"
    assert "60 s after its first work" in decision.refuse.description


def test_a_doomed_transaction_may_time_out_too() -> None:
    state = time_out(with_fault(posted(10), FULL), LIMITS)
    assert state.fault is not None
    assert state.fault.reason is Reason.TRANSACTION_TIMED_OUT


@given(st.lists(st.integers(0, 120), max_size=6))
def test_whatever_is_sent_no_limit_is_passed(sizes: list[int]) -> None:
    state = TransactionState()
    for size in sizes:
        state = decide_post(state, Usage(1, state.bytes), size, LIMITS, 0).state
        assert state.messages <= LIMITS.messages
        assert state.bytes <= LIMITS.bytes


class TransactionMachine(RuleBasedStateMachine):
    """One transaction against plain counters; `taken` is what a commit would apply."""

    def __init__(self) -> None:
        super().__init__()
        self.state = TransactionState()
        self.taken: list[int] = []
        self.settled = 0
        self.now_ms = 0
        self.began_ms: int | None = None
        self.doomed = False
        self.over = False

    def begin(self) -> None:
        if self.began_ms is None:
            self.began_ms = self.now_ms

    @rule(size=st.integers(1, 60))
    def post(self, size: int) -> None:
        fits = len(self.taken) + self.settled < 3 and sum(self.taken) + size <= 100
        decision = decide_post(self.state, Usage(1, self.state.bytes), size, LIMITS, self.now_ms)
        assert isinstance(decision, Taken) == (fits and not self.doomed)
        self.state = decision.state
        if isinstance(decision, Taken):
            self.begin()
            self.taken.append(size)
        elif not self.doomed:
            self.begin()
            self.doomed = True

    @precondition(lambda self: not self.over)
    @rule()
    def settle(self) -> None:
        self.begin()
        if not self.doomed and len(self.taken) + self.settled >= 3:
            self.doomed = True
        self.settled += 1
        self.state = decide_settle(self.state, LIMITS, self.now_ms)

    @rule(passed=st.integers(1, 50_000))
    def wait(self, passed: int) -> None:
        self.now_ms += passed
        deadline = age_deadline_ms(self.state, LIMITS)
        if deadline is not None and deadline <= self.now_ms:
            self.state = time_out(self.state, LIMITS)
            self.doomed = self.over = True
            self.taken, self.settled = [], 0

    @invariant()
    def a_discharge_commits_if_and_only_if_nothing_went_wrong(self) -> None:
        assert (decide_discharge(self.state, fail=False) == CommitTransaction()) == (not self.doomed)
        assert self.state.is_over == self.over

    @invariant()
    def it_never_outlives_its_age(self) -> None:
        if self.began_ms is not None and self.now_ms - self.began_ms >= 60_000:
            assert self.over

    @invariant()
    def what_it_holds_is_counted(self) -> None:
        if not self.doomed:
            assert (self.state.messages, self.state.bytes) == (len(self.taken) + self.settled, sum(self.taken))
        else:
            assert self.state.bytes == 0


TestTransactionMachine = TransactionMachine.TestCase


def test_an_abandoned_one_holds_nothing() -> None:
    assert abandon(with_fault(posted(10), FULL)) == TransactionState(since_ms=1_000, fault=FULL, is_over=True)


def test_a_link_acquires_in_a_transaction_that_is_there_and_not_over() -> None:
    assert decide_acquisition(None) == UNKNOWN
    assert decide_acquisition(TransactionState()) is None
    assert decide_acquisition(with_fault(TransactionState(), FULL)) is None  # its discharge will say so
    refused = decide_acquisition(time_out(TransactionState(since_ms=0), LIMITS))
    assert refused is not None
    assert refused.reason is Reason.TRANSACTION_TIMED_OUT


def test_what_is_acquired_begins_the_age_and_is_counted_by_itself() -> None:
    state = acquired(TransactionState(messages=2), 1_000, 2, settled=False)
    assert state == TransactionState(messages=2, acquired=2, since_ms=1_000)
    assert acquisition_room(state, LIMITS, settled=False) == 1
    assert acquisition_room(state, LIMITS, settled=True) == 1


def test_what_is_acquired_and_sent_settled_counts_as_settled() -> None:
    state = acquired(TransactionState(since_ms=500), 1_000, 4, settled=True)
    assert state == TransactionState(messages=4, since_ms=500)
    assert acquisition_room(state, LIMITS, settled=True) == 0  # and not below
    assert acquisition_room(state, LIMITS, settled=False) == 3
