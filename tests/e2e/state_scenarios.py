"""One scenario for each state of a subscription: what is done to it, and what has to be seen, typed from
docs/concepts/lag.md ("States") and from what is done, never from what was seen.

All of them happen at the same time on different subscriptions of one broker. Each message has the subscription's name
as its routing key. Commands are those of Fleet (tests/jms); `{s}` stands for the name of the subscription. A feed sends
two messages a second, and a worker's handler accepts each at once, unless they are told otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock_api.lag_result import LagState

__all__ = ["EXCHANGE", "INTERVAL_SECONDS", "SCENARIOS", "Scenario"]

EXCHANGE: Final = "states"
INTERVAL_SECONDS: Final = 10
"""Between two polls of the observer, as in production."""
RECENT_SECONDS: Final = 60
STOP_SECONDS: Final = 60
LAG_SECONDS: Final = 60
STALL_SECONDS: Final = 120
"""The spans of docs/concepts/lag.md: recent span; no consumer; age of a backlog that is judged; no message accepted."""

FEED: Final = "feed {s} --topic states/{s} --per-second 2"
WORKER: Final = "work {s}-a --topic states --subscription {s}"
OTHER: Final = "work {s}-b --topic states --subscription {s}"
STOP: Final = "stop {s}-a"

LOST: Final = r"(1 message was|\d+ messages were) lost in the last \d+ s"
WAITING: Final = r"\d+ messages wait, the oldest for \d+ s"
SPENT: Final = r"(; on average a message waited [\d.]+ m?s for a consumer and was held for [\d.]+ m?s)?"
ONE_OF_TWO: Final = "although 2 consumers are attached, of which 1 may take the first message that is ready"
CAUGHT_UP: Final = (
    r"the consumers have caught up; no message waits"
    r"|the consumers keep up; (1 message waits|\d+ messages wait), the oldest for \d+ ms"
    r"|(1 message waits|\d+ messages wait), the oldest for \d s, which is too short for a judgement"  # a busy machine
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One subscription, from its healthy beginning to its state."""

    name: str
    injected: str
    """What is done to it, in words."""
    spec: Mapping[str, object] = field(default_factory=dict[str, object])
    """More of the Subscription's spec."""
    doomed: tuple[str, ...] = ()
    """Commands of a process that is killed with -9."""
    healthy: tuple[str, ...] = (FEED, WORKER)
    """Commands before."""
    trouble: tuple[str, ...] = ()
    """Commands that do it."""
    return_at: LagState | None = None
    """When this state was seen, `back` is done; seconds are counted from then."""
    back: tuple[str, ...] = ()
    path: tuple[LagState, ...]
    """The states that it may have, in this order; those before the last may be left out."""
    period_seconds: int
    """The span after which the rule of the last state may match first."""
    sentence: str
    """A regular expression for the whole sentence."""

    @property
    def state(self) -> LagState:
        """What has to be seen."""
        return self.path[-1]


SCENARIOS: Final = (
    Scenario(
        name="healthy",
        injected="nothing: a healthy neighbour",
        path=(LagState.OK,),
        period_seconds=INTERVAL_SECONDS,
        sentence=CAUGHT_UP,
    ),
    Scenario(
        name="killed",
        injected="the consumer's process is killed with `kill -9`",
        doomed=(WORKER,),
        healthy=(FEED,),
        path=(LagState.OK, LagState.LAGGING, LagState.UNCONSUMED),
        period_seconds=STOP_SECONDS,
        sentence=rf"no consumer for \d+ s; {WAITING}",
    ),
    Scenario(
        name="hung",
        injected="the handler hangs; the consumer's buffer has room",
        trouble=(f"{OTHER} --handler hang --prefetch 1000", STOP),
        path=(LagState.OK, LagState.LAGGING, LagState.STALLED),
        period_seconds=STALL_SECONDS,
        sentence=rf"no message was accepted for \d+ s, although 1 consumer is attached; {WAITING}",
    ),
    Scenario(
        name="no-credit",
        injected="the handler hangs; the consumer's buffer of 10 is full",
        trouble=(f"{OTHER} --handler hang --prefetch 10", STOP),
        path=(LagState.OK, LagState.LAGGING, LagState.NO_CREDIT),
        period_seconds=RECENT_SECONDS,
        sentence=(
            r"1 consumer holds 10 messages, the longest for \d+ s, and neither accepts them nor gives credit for more; "
            + WAITING
        ),
    ),
    Scenario(
        name="narrow",
        injected="messages of which the subscription's selector takes none",
        spec={"filter": {"selector": "region = 'mars'"}},
        healthy=(WORKER,),
        trouble=(FEED,),
        path=(LagState.IDLE,),
        period_seconds=INTERVAL_SECONDS,
        sentence="no message waits, and none arrived or was delivered",
    ),
    Scenario(
        name="poison",
        injected="one message that the handler rolls back each time, in a healthy flow",
        healthy=(FEED, f"{WORKER} --handler roll-back --prefetch 1", f"{OTHER} --handler roll-back --prefetch 1"),
        trouble=("feed {s}-poison --topic states/{s} --burst 1 --most 1 --poison yes",),
        path=(LagState.OK, LagState.POISON),
        period_seconds=INTERVAL_SECONDS,
        sentence=(
            r"the delivery of some messages fails again and again \(ID:\S+ failed \d+ times\); "
            r"\d+ other messages were accepted in the last \d+ s; "
            r"(1 message waits|\d+ messages wait), the oldest for \d+ s"
        ),
    ),
    Scenario(
        name="poison-alone",
        injected="the same message, and no other",
        healthy=(f"{WORKER} --handler roll-back --prefetch 1",),
        trouble=("feed {s}-poison --topic states/{s} --burst 1 --most 1 --poison yes",),
        path=(LagState.IDLE, LagState.OK, LagState.POISON),
        period_seconds=INTERVAL_SECONDS,
        sentence=(
            r"(the delivery of some messages fails again and again \(ID:\S+ failed \d+ times\); "
            r"0 other messages were accepted in the last \d+ s"
            r"|\d+ of \d+ deliveries in the last \d+ s were repeated ones and none was accepted "
            r"\(ID:\S+ failed \d+ times\)); 1 message waits, the oldest for \d+ s"
        ),
    ),
    Scenario(
        name="rejecting",
        injected="the handler rejects every message; there is a dead-letter queue",
        spec={"delivery": {"deadLetter": "rejected"}},
        trouble=(f"{OTHER} --handler reject", STOP),
        path=(LagState.OK, LagState.LOSING),
        period_seconds=INTERVAL_SECONDS,
        sentence=(
            rf"{LOST} \(\d+ became (a dead letter|dead letters)\), and \d+ were accepted; "
            r"(0 messages wait|1 message waits, the oldest for \d+ s)"
        ),
    ),
    Scenario(
        name="slow",
        injected="the handler needs two seconds for each message",
        trouble=(f"{OTHER} --per-second 0.5 --prefetch 10", STOP),
        path=(LagState.OK, LagState.LAGGING),
        period_seconds=LAG_SECONDS,
        sentence=rf"the consumers fall behind: \d+ messages a minute arrive and \d+ are accepted; {WAITING}{SPENT}",
    ),
    Scenario(
        name="steady",
        injected="100 messages at once; the handler is as fast as the producer, not faster",
        trouble=(
            f"{OTHER} --per-second 2 --prefetch 10",
            STOP,
            "feed {s}-burst --topic states/{s} --burst 100 --most 100",
        ),
        path=(LagState.OK, LagState.LAGGING, LagState.BACKLOG_STEADY),
        period_seconds=LAG_SECONDS,
        sentence=(
            r"the backlog neither grows nor shrinks: \d+ messages a minute arrive and \d+ are accepted; "
            + WAITING
            + SPENT
        ),
    ),
    Scenario(
        name="outage",
        injected="after an outage of more than a minute the consumer is back; it accepts 8 messages a second",
        trouble=(STOP, "feed {s}-burst --topic states/{s} --burst 600 --most 600"),
        return_at=LagState.UNCONSUMED,
        back=(f"{OTHER} --per-second 8",),
        path=(
            LagState.OK,
            LagState.LAGGING,
            LagState.UNCONSUMED,
            LagState.LAGGING,
            LagState.BACKLOG_STEADY,
            LagState.RECOVERING,
        ),
        period_seconds=RECENT_SECONDS,
        sentence=(
            r"the backlog fell from \d+ to \d+ messages in \d+ s and will be empty in \d+ to \d+ s if this goes on; "
            + WAITING
        ),
    ),
    Scenario(
        name="expiring",
        injected="messages live 10 s, and the handler needs 5 s for each",
        healthy=(f"{FEED} --ttl-millis 10000", WORKER),
        trouble=(f"{OTHER} --per-second 0.2 --prefetch 2", STOP),
        path=(LagState.OK, LagState.LOSING),
        period_seconds=10 + INTERVAL_SECONDS,
        sentence=rf"{LOST} \(\d+ expired\), and \d+ were accepted; {WAITING}",
    ),
    Scenario(
        name="dropping",
        injected="the consumer leaves; `limits: {maxMessages: 20, overflow: DropOldest}`",
        spec={"limits": {"maxMessages": 20, "overflow": "DropOldest"}},
        trouble=(STOP,),
        path=(LagState.OK, LagState.LOSING),
        period_seconds=10 + INTERVAL_SECONDS,
        sentence=(
            rf"{LOST} \(\d+ (was|were) dropped\), and no consumer is attached; "
            r"20 messages wait, the oldest for \d+ s"
        ),
    ),
    Scenario(
        name="standby",
        injected="`exclusiveConsumer`: the active one hangs with a full buffer; a standby gives credit",
        spec={"delivery": {"exclusiveConsumer": True}},
        trouble=(
            f"{OTHER} --handler hang --prefetch 5",
            STOP,
            "await hangs {s}-b",
            "work {s}-c --topic states --subscription {s}",
        ),
        path=(LagState.OK, LagState.LAGGING, LagState.STALLED),
        period_seconds=STALL_SECONDS,
        sentence=rf"no message was accepted for \d+ s, {ONE_OF_TWO}; {WAITING}",
    ),
    Scenario(
        name="groups",
        injected="one message group, whose consumer hangs with a full buffer; another consumer gives credit",
        healthy=(f"{FEED} --group g", WORKER),
        trouble=(
            f"{OTHER} --handler hang --prefetch 5",
            STOP,
            "await hangs {s}-b",
            "work {s}-c --topic states --subscription {s}",
        ),
        path=(LagState.OK, LagState.LAGGING, LagState.STALLED),
        period_seconds=STALL_SECONDS,
        sentence=rf"no message was accepted for \d+ s, {ONE_OF_TWO}; {WAITING}",
    ),
    Scenario(
        name="rank",
        injected="a consumer of higher rank takes everything; one of lower rank gives credit",
        healthy=(FEED, "work {s}-a --topic states?consumer-priority=7 --subscription {s}"),
        trouble=(OTHER,),
        path=(LagState.OK,),
        period_seconds=INTERVAL_SECONDS,
        sentence=CAUGHT_UP,
    ),
)
