"""The demo's story, wherever the broker runs: two consumers share a subscription, the broker dies, nothing is lost;
then the consumers stop and a backlog grows whose size the clients know.

A `Site` says how to reach the broker and what the observer sees; `Disruption`s say what happens to the broker and when.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from e2e import jms_tool
from e2e.jms_tool import Board, Client
from e2e.tally import Tally
from support.waiting import until

__all__ = ["Backlog", "Disruption", "Site", "StoryError", "ends_of_parts", "grow_backlog", "share_through_disruptions"]

CONSUMERS: Final = ("one", "two")
TOPIC: Final = "orders"
BILLING: Final = "billing"
ATTACH_SECONDS: Final = 60.0
"""How long a consumer is started again that gets no link."""


class StoryError(Exception):
    """The story did not go as it has to; the text says what is off."""


class Site(Protocol):
    """Where the broker runs."""

    def access(self, *, failover: bool) -> list[str]:
        """Options of the Java clients; with failover they reconnect by themselves."""
        ...

    def depth(self, subscription: str) -> int:
        """Unsettled messages of a durable global subscription, as the broker counts them now."""
        ...


@dataclass(frozen=True, slots=True)
class Disruption:
    """Something that happens to the broker once a share of the messages has been accepted."""

    share: float
    name: str
    act: Callable[[], str]
    """Does it, waits until the broker is back, and says what was seen."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many messages of each kind are published while nobody consumes, and how many one consumer then settles.

    The kinds follow examples/local/orders.yaml: `billing` gets all, `shipping-eu` those of one region (by routing key),
    `fraud` the large ones (by selector).
    """

    plain: int
    of_region: int
    large: int
    settled: int


def share_through_disruptions(
    site: Site,
    board: Board,
    messages: int,
    disruptions: Sequence[Disruption],
    logs: Path,
    say: Callable[[str], None],
) -> None:
    """Two consumers on two connections, without ClientID, share `messages` persistent messages.

    Their shares are counted behind the last disruption, when both have their links: after each, the one that attaches
    first may get all that waits.

    Raises:
        StoryError: a message was lost or repeated unmarked, or a consumer got less than a quarter of those.
    """
    with ExitStack() as clients:
        consumers = [clients.enter_context(_consumer(site, board, name, logs)) for name in CONSUMERS]
        for consumer in consumers:
            consumer.wait_ready()
        say(f"two consumers share the durable subscription {BILLING!r}; a producer sends {messages:,} messages")
        started = time.monotonic()
        access = site.access(failover=False)
        sent = 0
        for number, end in enumerate(ends_of_parts(messages, [each.share for each in disruptions])):
            part, log = f"m{number}", logs / "producer.log"
            count = end - sent
            with jms_tool.publish(board, part, access, TOPIC, count, log, connections=8, size=200) as producer:
                if number < len(disruptions):
                    _disrupt(board, producer, consumers, messages, disruptions[number], say)
                producer.finish(seconds=600)
            _wait_until_received(site, board, consumers)
            sent = end
        seconds = time.monotonic() - started
        for consumer in consumers:
            consumer.stop()
    tally = board.tally
    last_part = f"m{len(disruptions)}-"
    findings = tally.findings(CONSUMERS, shared={each for each in tally.accepted if each.startswith(last_part)})
    if len(tally.accepted) != messages:
        findings.append(f"{len(tally.accepted)} messages were accepted, not {messages}")
    if findings:
        raise StoryError("\n".join(findings))
    say(_account(tally, seconds))


def ends_of_parts(messages: int, shares: Sequence[float]) -> list[int]:
    """How many messages are sent by the end of each part: one part for each disruption, which comes while it is sent,
    and one behind the last. `shares`: how much is sent before each disruption.
    """
    following = [*shares, 1.0][1:]
    return [int(messages * (share + after) / 2) for share, after in zip(shares, following, strict=True)] + [messages]


def _disrupt(
    board: Board,
    producer: Client,
    consumers: Sequence[Client],
    messages: int,
    disruption: Disruption,
    say: Callable[[str], None],
) -> None:
    """Have it happen when enough was accepted, and wait until every consumer has its link again."""
    wanted = int(messages * disruption.share)
    _wait(board, producer, f"{wanted} accepted messages", _accepted(wanted))
    with board.lock:
        so_far = len(board.tally.accepted)
        before = [consumer.interruptions for consumer in consumers]
    say(f"{so_far:,} accepted: {disruption.name}: {disruption.act()}")
    for consumer, interruptions in zip(consumers, before, strict=True):
        consumer.wait_restored(interruptions + 1)


def _accepted(count: int) -> Callable[[Tally], bool]:
    return lambda tally: len(tally.accepted) >= count


def _consumer(site: Site, board: Board, name: str, logs: Path) -> Client:
    access = site.access(failover=True)
    return jms_tool.consume(board, name, access, TOPIC, BILLING, logs / f"consumer-{name}.log")


def _wait(board: Board, client: Client, what: str, condition: Callable[[Tally], bool]) -> None:
    """Wait for a condition, and not for a client that has died."""
    board.wait_for(what, lambda tally: condition(tally) or client.process.poll() not in (None, 0), seconds=600)
    if not condition(board.tally):
        client.finish()


def _wait_until_received(site: Site, board: Board, consumers: Sequence[Client]) -> None:
    """Wait until each accepted message was received and the broker holds none, doubtful ones included."""
    _wait(board, consumers[0], "every accepted message to be received", lambda tally: not tally.lost)
    until(
        lambda: site.depth(BILLING) == 0,
        "the broker to count no unsettled message any more, though all was received",
        jms_tool.PATIENCE_SECONDS,
    )


def _account(tally: Tally, seconds: float) -> str:
    share = tally.share()
    shares = ", ".join(f"{name} {share[name]:,}" for name in CONSUMERS)
    return (
        f"{len(tally.accepted):,} accepted and every one received within {seconds:.0f} s ({shares}); "
        f"{tally.repeated} came a second time, each marked so by its delivery-count; "
        f"{len(tally.doubtful)} sends got no answer and were repeated"
    )


def _settling(board: Board, access: Sequence[str], count: int, log: Path, say: Callable[[str], None]) -> Client:
    """A consumer with its link, which ends behind so many receipts. An attempt that gets none is told, and repeated.

    It has no failover, since a lost connection behind the attach would make its count doubtful.
    """
    deadline = time.monotonic() + ATTACH_SECONDS
    while True:
        consumer = jms_tool.consume(board, "three", access, TOPIC, BILLING, log, max=count)
        try:
            consumer.wait_ready()
            return consumer
        except (RuntimeError, TimeoutError) as refused:
            with consumer:
                if time.monotonic() > deadline:
                    raise
            say(f"it is tried again: {refused}")


def grow_backlog(site: Site, board: Board, backlog: Backlog, logs: Path, say: Callable[[str], None]) -> dict[str, int]:
    """Nobody consumes: publish, let one consumer of `billing` settle some and go.

    Returns:
        The lag of each subscription by the clients' own count.
    """
    access = site.access(failover=False)
    kinds: tuple[tuple[str, str, int, dict[str, object]], ...] = (
        ("plain", TOPIC, backlog.plain, {}),
        ("region", f"{TOPIC}/eu.fr.paris", backlog.of_region, {}),
        ("large", TOPIC, backlog.large, {"amount": 5000}),
    )
    for name, topic, count, more in kinds:
        log = logs / f"producer-{name}.log"
        with jms_tool.publish(board, name, access, topic, count, log, connections=4, **more) as producer:
            producer.finish()
    with _settling(board, access, backlog.settled, logs / "consumer-three.log", say) as consumer:
        consumer.finish()
    accepted = board.tally.accepted
    lag = {
        BILLING: board.tally.lag,
        "shipping-eu": sum(id_.startswith("region-") for id_ in accepted),
        "fraud": sum(id_.startswith("large-") for id_ in accepted),
    }
    known, settled = len(accepted | board.tally.received), len(board.tally.settled)
    say(f"the consumers stopped, a backlog grew, a third consumer settled {backlog.settled} and left")
    say(f"by the clients' own count {BILLING!r} lags by {known:,} sent - {settled:,} settled = {lag[BILLING]:,}")
    return lag
