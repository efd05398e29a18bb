"""Each poll is judged at once: by the rules of the lag job, with the same sentence, without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observer.samples import START_MS, a_poll, a_subscription

from penstock_api.lag_result import LagState, SlowPart, SubscriptionLag
from penstock_api.management import Owner
from penstock_api.state_documents import DurationHistogram, RepeatedMessage, SubscriptionState
from penstock_lag_rules.entry import subscription_lag, time_of
from penstock_lag_rules.figures import Coverage, Figures
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer import live_lag
from penstock_observer.live_lag import LiveLag, Watched
from penstock_observer.live_view import LiveView

STEP_MS = 10_000
OWNER = Owner(cluster_id="c", kind="Subscription", namespace="shop", name="orders", uid="u-1")


class Story:
    """A broker with one subscription that is polled every ten seconds."""

    def __init__(self) -> None:
        self.live = LiveLag(2, STEP_MS, Thresholds())
        self.now_ms = START_MS
        self.values: dict[str, Any] = {"owner": OWNER, "consumers": 2, "credit": 10, "usable_credit": 0}

    def poll(
        self, *, times: int = 1, broker: dict[str, Any] | None = None, clock_step_ms: int = 0, **changes: Any
    ) -> SubscriptionLag:
        """Poll so often with these values; how it stands then. A value that is a pair grows: from, by."""
        for step in range(times):
            values: dict[str, Any] = {
                name: change[0] + change[1] * step if isinstance(change, tuple) and name != "repeated" else change
                for name, change in changes.items()
            }
            self.values |= values
            poll = a_poll(self.now_ms, a_subscription(**self.values), **(broker or {}))
            self.live.observe(replace(poll, clock_step_ms=clock_step_ms if step == 0 else 0))
            self.now_ms += STEP_MS
        (lag,) = self.live.lags()
        return lag


def test_a_subscription_is_unknown_until_there_are_three_snapshots() -> None:
    story = Story()
    first = story.poll()
    assert (first.state, first.message) == (LagState.UNKNOWN, "there is only 1 snapshot so far; 3 are needed")
    assert story.poll().message == "there are only 2 snapshots so far; 3 are needed"
    assert story.poll().state is LagState.IDLE


def test_one_name_of_any_length_does_not_take_the_lag_of_the_others() -> None:
    """A client's link may have a name of thousands of characters, and the broker makes its subscription."""
    live = LiveLag(2, STEP_MS, Thresholds())
    live.observe(a_poll(START_MS, a_subscription(), a_subscription("n" * 20_000)))
    lags = tuple(live.lags())
    assert sorted(len(lag.queue_name) for lag in lags) == [26, 20_020]


def test_where_messages_spend_their_time_is_known_live() -> None:
    """100 messages a poll wait a second each and are held for three; the window is five minutes. Percentiles need the
    ledger.
    """
    story = Story()
    lag = story.poll()
    for poll in range(1, 41):
        waits = DurationHistogram(indexes=(3, 79), counts=(900, 100 * poll), sum_ms=100_000 * poll + 5)
        holds = DurationHistogram(indexes=(92,), counts=(100 * poll,), sum_ms=300_000 * poll)
        lag = story.poll(wait=waits, hold=holds)
    assert (lag.mean_wait_millis, lag.mean_hold_millis, lag.slow_part) == (1_000, 3_000, SlowPart.HANDLER)
    assert (lag.wait_p95_millis, lag.hold_p95_millis) == (None, None)


def test_a_handler_that_always_takes_long_is_not_stalled_live_either() -> None:
    """Of 10 messages each took 95 to 104 s (bucket 132). The next one may take 290 s, as the lag job says, too."""
    story = Story()
    holds = DurationHistogram(indexes=(132,), counts=(10,), sum_ms=1_000_000)
    story.poll(depth=3, ready=3, acked=10, delivered=10, oldest_available_ms=START_MS, hold=holds)
    taken_ms = story.now_ms
    lag = story.poll(times=29, ready=2, in_flight=1, delivered=11, oldest_hold_ms=taken_ms)
    assert lag.longest_hold_seconds == 280
    assert lag.state is LagState.LAGGING
    lag = story.poll(times=2)
    assert (lag.longest_hold_seconds, lag.state) == (300, LagState.STALLED)


def test_a_handler_that_is_fast_otherwise_is_stalled_after_two_minutes_live() -> None:
    story = Story()
    holds = DurationHistogram(indexes=(92,), counts=(10,), sum_ms=30_000)
    story.poll(depth=3, ready=3, acked=10, delivered=10, oldest_available_ms=START_MS, hold=holds)
    assert story.poll(times=13, ready=2, in_flight=1, delivered=11).state is LagState.STALLED


def test_what_expires_before_its_turn_is_known_live() -> None:
    """600 wait, at most two a minute leave by chance, and all live for a minute more: 598 of them too short."""
    story = Story()
    story.poll(times=10)
    end_ms = story.now_ms
    lag = story.poll(
        depth=600,
        ready=600,
        oldest_available_ms=end_ms,
        first_expires_ms=end_ms + 60_000,
        last_expires_ms=end_ms + 60_000,
    )
    assert (lag.expiring_soon, lag.expiry_risk_percent) == (598, 99)


def test_consumers_that_died_are_named_within_a_minute_and_a_poll() -> None:
    story = Story()
    story.poll(times=10, enqueued=(0, 100), delivered=(0, 100), acked=(0, 100))
    gone_ms = story.now_ms - STEP_MS
    lag = story.poll(
        times=7,
        consumers=0,
        credit=0,
        unused_since_ms=gone_ms,
        enqueued=(1_000, 100),
        depth=(100, 100),
        ready=(100, 100),
        oldest_available_ms=gone_ms + 5_000,
    )
    assert (lag.state, lag.message) == (
        LagState.UNCONSUMED,
        "no consumer for 70 s; 700 messages wait, the oldest for 65 s",
    )
    assert (lag.owner_namespace, lag.owner_name, lag.owner_uid) == ("shop", "orders", "u-1")
    # 1,600 came in 160 s, 900 were accepted
    assert (lag.arrival_per_minute, lag.settled_per_minute, lag.velocity_per_minute) == (600, 338, 263)


def test_losses_show_at_the_next_poll() -> None:
    story = Story()
    story.poll(times=5, enqueued=(0, 100), delivered=(0, 100), acked=(0, 100))
    lag = story.poll(enqueued=500, delivered=500, acked=450, dead_lettered=50)
    assert lag.state is LagState.LOSING
    assert lag.message == (
        "50 messages were lost in the last 50 s (50 became dead letters), and 450 were accepted; 0 messages wait"
    )


def test_a_subscription_that_appears_counts_from_zero_and_one_that_goes_is_forgotten() -> None:
    live = LiveLag(0, STEP_MS, Thresholds())
    live.observe(a_poll(START_MS))
    for step in range(1, 4):
        live.observe(a_poll(START_MS + step * STEP_MS, a_subscription(enqueued=10 * step, acked=10 * step)))
    (lag,) = live.lags()
    assert (lag.arrival_per_minute, lag.state) == (60, LagState.OK)  # 20 in the 20 s since it was first seen
    live.observe(a_poll(START_MS + 4 * STEP_MS, complete=False))
    assert len(list(live.lags())) == 1
    live.observe(a_poll(START_MS + 5 * STEP_MS))
    assert list(live.lags()) == []


def test_what_came_before_the_first_look_is_counted_but_is_in_no_rate() -> None:
    """It was made 9.9 s before the poll that shows it first, and 1,000 came at once; 10 a second since."""
    live = LiveLag(0, STEP_MS, Thresholds())
    live.observe(a_poll(START_MS))
    for step in range(4):
        came = 1_000 + 100 * step
        live.observe(
            a_poll(
                START_MS + (step + 1) * STEP_MS,
                a_subscription(
                    enqueued=came, depth=came - 7, ready=came - 7, expired=7, oldest_available_ms=START_MS + 100
                ),
            )
        )
    (lag,) = live.lags()
    assert (lag.arrival_per_minute, lag.settled_per_minute, lag.velocity_per_minute) == (600, 0, 600)
    assert (lag.lost, lag.expired) == (7, 7)
    assert lag.state is LagState.LOSING


def test_a_subscription_that_was_made_anew_under_its_name_does_not_fall() -> None:
    """5,000 waited in the one that was deleted. Nobody has accepted these."""
    story = Story()
    story.poll(times=20, depth=5_000, ready=5_000, oldest_available_ms=START_MS, enqueued=5_000, expired=3)
    moving: dict[str, Any] = dict.fromkeys(("enqueued", "delivered", "acked"), (40, 100))
    lag = story.poll(incarnation=12, depth=0, ready=0, oldest_available_ms=None, expired=0, **moving)
    assert (lag.state, lag.message) == (LagState.UNKNOWN, "there is only 1 snapshot so far; 3 are needed")
    moving = dict.fromkeys(moving, (140, 100))
    lag = story.poll(times=2, **moving)
    assert (lag.state, lag.message) == (LagState.OK, "the consumers have caught up; no message waits")
    assert (lag.arrival_per_minute, lag.settled_per_minute, lag.velocity_per_minute) == (600, 600, 0)
    assert (lag.lost, lag.since_caught_up_seconds) == (0, 0)


def test_a_subscription_that_was_made_anew_under_its_name_is_not_stalled() -> None:
    """In the one that was deleted nothing was accepted for three minutes. This one is there for 30 s."""
    story = Story()
    story.poll(times=20, depth=9, ready=9, oldest_available_ms=START_MS, enqueued=9)
    born_ms = story.now_ms - 5_000
    lag = story.poll(times=4, incarnation=12, depth=9, ready=9, oldest_available_ms=born_ms, enqueued=9)
    assert (lag.state, lag.message) == (
        LagState.OK,
        "9 messages wait, the oldest for 35 s, which is too short for a judgement",
    )


def test_a_restart_counts_no_recovered_message() -> None:
    story = Story()
    story.poll(times=4, enqueued=1_000, acked=400, depth=600, ready=600, oldest_available_ms=START_MS - 60_000)
    lag = story.poll(times=3, enqueued=600, acked=0, broker={"epoch": 4})
    assert (lag.arrival_per_minute, lag.settled_per_minute, lag.lost) == (0, 0, 0)


def test_a_broker_of_a_backup_counts_no_recovered_message_although_its_epoch_came_before() -> None:
    story = Story()
    story.poll(times=4, enqueued=500, acked=400, depth=100, ready=100, oldest_available_ms=START_MS - 60_000)
    lag = story.poll(times=3, enqueued=600, acked=0, broker={"started_ms": START_MS + 35_000})
    assert (lag.arrival_per_minute, lag.settled_per_minute, lag.lost) == (0, 0, 0)


@pytest.mark.parametrize("back_ms", [60_000, 3_600_000, 40 * 86_400_000])
def test_a_clock_that_was_set_back_is_said_for_a_window(back_ms: int) -> None:
    """However far: the polls before it are five minutes old when thirty more have come."""
    story = Story()
    story.poll(times=3)
    story.now_ms -= back_ms
    assert story.poll().state is LagState.UNKNOWN
    assert "set back" in story.poll(times=30).message
    lag = story.poll()
    assert (lag.state, lag.arrival_per_minute) == (LagState.IDLE, 0)


@pytest.mark.parametrize(
    ("step_ms", "how"), [(60_000, "forward by 60 s"), (3_600_000, "forward by 3600 s"), (-2_000, "back by 2 s")]
)
def test_a_clock_that_the_observer_saw_being_set_is_said_for_a_window(step_ms: int, how: str) -> None:
    """Backlog and consumers are as before. The rates of a time whose length is not known are absent."""
    story = Story()
    waits: dict[str, Any] = {"depth": 5, "ready": 5}
    story.poll(times=12, enqueued=(0, 100), acked=(0, 100), oldest_available_ms=START_MS, **waits)
    story.now_ms += step_ms
    lag = story.poll(clock_step_ms=step_ms, oldest_available_ms=START_MS + step_ms)
    said = (
        f"the clock of its broker was set {how} within the window, so rates are not known; 5 messages wait, the oldest"
    )
    assert (lag.state, lag.message) == (LagState.UNKNOWN, f"{said} for 120 s")
    lag = story.poll(times=30)
    assert (lag.state, lag.message) == (LagState.UNKNOWN, f"{said} for 420 s")
    assert (lag.arrival_per_minute, lag.settled_per_minute, lag.velocity_per_minute) == (None, None, None)
    lag = story.poll()
    assert (lag.state, lag.oldest_age_seconds, lag.arrival_per_minute) == (LagState.STALLED, 430, 0)


def test_what_was_there_before_the_clock_was_set_back_is_no_arrival() -> None:
    story = Story()
    story.poll(times=3, enqueued=(0, 100), acked=(0, 100))
    story.now_ms -= 3_600_000
    lag = story.poll(times=4)
    assert (lag.arrival_per_minute, lag.settled_per_minute) == (None, None)
    lag = story.poll(times=31)
    assert (lag.arrival_per_minute, lag.settled_per_minute) == (0, 0)


def test_messages_that_fail_again_and_again_are_named() -> None:
    story = Story()
    worst = RepeatedMessage(id="ID:7", delivery_count=9, available_ms=START_MS, state="InFlight")
    lag = story.poll(times=7, depth=1, in_flight=1, oldest_available_ms=START_MS, repeated=(worst,))
    assert lag.state is LagState.POISON
    assert [(each.id, each.delivery_count, each.age_seconds) for each in lag.repeated] == [("ID:7", 9, 60)]


def test_a_broker_of_an_earlier_release_does_not_say_which_credit_is_usable() -> None:
    """Then that of all links counts, as before."""
    story = Story()
    del story.values["usable_credit"]
    backlog: dict[str, Any] = {"depth": 100, "ready": 100, "oldest_available_ms": START_MS - 90_000}
    assert story.poll(times=8, **backlog).state is LagState.BROKER_STUCK


FORECAST = {
    "drain_seconds": 60,
    "drain_seconds_low": 50,
    "drain_seconds_high": 70,
    "suggested_consumers": 3,
    "expiring_soon": 7,
    "expiry_risk_percent": 40,
}


def test_while_the_broker_is_away_the_figures_stay_without_forecasts_and_the_state_is_unknown() -> None:
    story = Story()
    lag = story.poll(times=5).model_copy(update=FORECAST)
    view = LiveView()
    view.answered(a_poll(story.now_ms), (lag,))
    assert [each.state for each in view.known.lags_now()] == [LagState.IDLE]
    view.away("the broker does not answer: refused")
    view.away("the broker does not answer: refused")
    (away,) = view.known.lags_now()
    assert (away.state, away.message) == (LagState.UNKNOWN, "the broker does not answer: refused")
    assert (away.messages, away.consumers, away.observed_time) == (0, 2, lag.observed_time)
    assert {name: getattr(away, name) for name in FORECAST} == dict.fromkeys(FORECAST)


def test_one_missed_poll_is_no_outage() -> None:
    """Neither is every second one that is missed. The second in a row is, and so is silence before the first answer."""
    view = LiveView()
    view.away("the broker does not answer: refused")
    assert view.known.outage == "the broker does not answer: refused"
    told: list[str | None] = []
    for answers in (True, False, True, False, False, False, True, False):
        if answers:
            view.answered(a_poll(START_MS))
        else:
            view.away("the broker does not answer: refused")
        assert view.known.reachable is answers
        told.append(view.known.outage)
    away = "the broker does not answer: refused"
    assert told == [None, None, None, None, away, away, None, None]


NAMES = ("a", "b", "c")
CHANGES = st.one_of(
    st.just({}),
    st.just({}),
    st.just({}),
    st.fixed_dictionaries({"consumers": st.integers(0, 2)}),
    st.fixed_dictionaries({"come": st.integers(0, 3), "go": st.integers(0, 3), "lost": st.integers(0, 1)}),
    st.fixed_dictionaries({"incarnation": st.integers(11, 12)}),
)
POLLS = st.lists(
    st.tuples(
        st.fixed_dictionaries(dict.fromkeys(NAMES, CHANGES)),
        st.sampled_from([10_000, 10_000, 10_000, 10_000, 70_000, 400_000, -3_000]),
        st.sampled_from([0, 0, 0, 0, 0, 1]),  # the broker is restarted
        st.sets(st.sampled_from(NAMES), max_size=1),  # not in this poll
        st.booleans(),
    ),
    min_size=1,
    max_size=50,
)


class JudgesAnew(LiveLag):
    """Remembers no entry."""

    def _judged(self, watched: Watched, coverage: Coverage, end_ms: int) -> SubscriptionLag:
        lag = super()._judged(watched, coverage, end_ms)
        watched.lag = None
        return lag


@given(POLLS)
def test_what_did_not_change_is_judged_as_if_it_were_judged_anew(polls: list[Any]) -> None:
    """The same polls for one that repeats entries and for one that never does."""
    short, full = LiveLag(0, STEP_MS, Thresholds()), JudgesAnew(0, STEP_MS, Thresholds())
    known = {name: a_subscription(name) for name in NAMES}
    now_ms, epoch = START_MS, 3
    for changes, later_ms, restarts, missing, complete in polls:
        now_ms += later_ms
        epoch += restarts
        for name, change in changes.items():
            if change or restarts:
                known[name] = changed(known[name], change, now_ms)
        states = [known[name] for name in NAMES if name not in missing]
        poll = replace(a_poll(now_ms, *states, epoch=epoch), complete=complete)
        short.observe(poll)
        full.observe(poll)
        assert list(short.lags()) == list(full.lags())


def changed(state: SubscriptionState, change: dict[str, int], now_ms: int) -> SubscriptionState:
    """Messages come and go, consumers attach, or a new life begins."""
    come, lost = change.get("come", 0), change.get("lost", 0)
    lost = min(lost, state.depth + come)
    gone = min(change.get("go", 0), state.depth + come - lost)
    depth = state.depth + come - gone - lost
    values: dict[str, Any] = {
        "depth": depth,
        "ready": depth,
        "enqueued": state.enqueued + come,
        "delivered": state.delivered + gone,
        "acked": state.acked + gone,
        "expired": state.expired + lost,
        "oldest_available_ms": now_ms if depth else None,
        "consumers": change.get("consumers", state.consumers),
    }
    if change.get("incarnation", state.incarnation) != state.incarnation:
        values |= {"incarnation": change["incarnation"], "depth": 0, "ready": 0, "oldest_available_ms": None}
        values |= dict.fromkeys(("enqueued", "delivered", "acked", "expired"), 0)
    return state.model_copy(update=values)


def test_an_idle_subscription_is_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them cost one judgement a poll from the fourth on; the entries tell the time of the poll."""
    states = [a_subscription(f"s{number}") for number in range(1000)]
    live = LiveLag(0, STEP_MS, Thresholds())
    judged: list[str] = []

    def noted(figures: Figures, missing: str | None, end_ms: int, thresholds: Thresholds) -> SubscriptionLag:
        judged.append(figures.subject.queue_name)
        return subscription_lag(figures, missing, end_ms, thresholds)

    monkeypatch.setattr(live_lag, "subscription_lag", noted)
    counts: list[int] = []
    lags: list[SubscriptionLag] = []
    for step in range(6):
        judged.clear()
        live.observe(a_poll(START_MS + STEP_MS * step, *states))
        lags = list(live.lags())
        counts.append(len(judged))
        assert {lag.observed_time for lag in lags} == {time_of(START_MS + STEP_MS * step)}
    assert counts == [1000, 1000, 1000, 1, 1, 1]
    assert {lag.state for lag in lags} == {LagState.IDLE}


def test_what_an_idle_subscription_lost_leaves_its_window() -> None:
    """Five messages expired: Losing, then Idle with the loss among its figures, and after five minutes without."""
    waiting = a_subscription(depth=5, ready=5, enqueued=5, oldest_available_ms=START_MS)
    empty = a_subscription(enqueued=5, expired=5)
    live = LiveLag(0, STEP_MS, Thresholds())
    told: dict[int, tuple[LagState, int | None, int | None]] = {}
    for step in range(75):
        live.observe(a_poll(START_MS + STEP_MS * step, waiting if step < 36 else empty))
        (lag,) = live.lags()
        told[step] = (lag.state, lag.lost, lag.velocity_per_minute)
    assert told[36] == (LagState.LOSING, 5, -1)
    assert told[50] == (LagState.IDLE, 5, -1)
    assert told[65] == (LagState.IDLE, 5, -1)
    assert told[66] == told[74] == (LagState.IDLE, 0, 0)
