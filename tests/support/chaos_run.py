"""Chaos with JMS traffic: a seed decides what happens, and in the end the broker has what the manifests declare, and
nothing that it has accepted is lost.

Needs the node of hack/cluster, root, a JDK and Maven.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from e2e import jms_tool, local_demo
from e2e.jms_tool import Board, Client
from e2e.kube import ROOT, pick, wait_for
from e2e.story import StoryError
from support.chaos_checks import converges, subscriptions
from support.chaos_faults import FAULTS
from support.chaos_sequence import Step, steps
from support.installed_operator import MINUTE, Installation, Team

from penstock_api.management import EntityType

__all__ = ["Clients", "Figures", "cause", "clients", "documented_uri"]

SUBSCRIPTION: Final = "billing"
CONSUMERS: Final = ("one", "two")
PAUSE_MILLIS: Final = 20
SETTLED_EACH: Final = 4
"""After so many faults everything has to be as declared before the next one."""
PATIENCE: Final = 10 * MINUTE
"""A machine may be slow; how long it took is among the figures."""
COLLECTED_SECONDS: Final = 15 * MINUTE
"""What was deleted while its broker did not answer may stay there for ten minutes if the operator has been restarted
(docs/decisions/055-deletion.md). A shorter run does not wait for that.
"""
EVERY: Final = 1_000_000_000
"""More than a producer sends before it is stopped."""


@dataclass(slots=True)
class Figures:
    """What a run has seen."""

    faults: list[str] = field(default_factory=list[str])
    converged_seconds: list[float] = field(default_factory=list[float])
    accepted: int = 0
    repeated: int = 0
    doubtful: int = 0

    def __str__(self) -> str:
        worst = max(self.converged_seconds, default=0)
        return (
            f"{len(self.faults)} faults; {self.accepted} messages accepted, none lost, {self.repeated} delivered "
            f"again, {self.doubtful} without an answer; all as declared {len(self.converged_seconds)} times, after at "
            f"most {worst:.0f} s"
        )


@dataclass(frozen=True, slots=True)
class Clients:
    """A JMS producer and the consumers of one subscription, and what they saw."""

    board: Board
    producer: Client
    consumers: tuple[Client, ...]

    def go_on(self, seconds: float) -> None:
        """Return when more was sent than now, and more received. Raises TimeoutError."""
        with self.board.lock:
            accepted, received = len(self.board.tally.accepted), len(self.board.tally.receipts)
        self.board.wait_for(
            "producer and consumers to go on",
            lambda tally: len(tally.accepted) > accepted and len(tally.receipts) > received,
            seconds,
        )

    def finish(self) -> None:
        """Stop the producer, let the consumers take the rest, and stop them. Raises if a message was lost."""
        self.producer.stop(PATIENCE)
        self.board.wait_for("every accepted message", lambda tally: not tally.lost, PATIENCE)
        for each in self.consumers:
            each.stop(PATIENCE)
        tally = self.board.tally
        assert not tally.lost, f"{len(tally.lost)} messages were accepted and never came"
        assert not tally.foreign(), "messages came that nobody sent"
        assert not tally.unmarked_repeats(), "messages came twice without a delivery-count that says so"


def documented_uri(address: str) -> str:
    """The failover URI of the documentation, for a broker at HOST:PORT without TLS."""
    page = (ROOT / "docs/how-to/jms.md").read_text()
    found = re.search(r"^\| `(failover:\(amqps://host:5671.*?)` \|", page, re.MULTILINE)
    assert found is not None
    return found[1].replace("amqps://host:5671", f"amqp://{address}")


@contextmanager
def clients(team: Team, work: Path) -> Generator[Clients]:
    """JMS clients of the Exchange `orders` with the options of the documentation; logs are written to the folder."""
    local_demo.build_clients(work / "maven.log")
    uri, board = documented_uri(f"{team.field('service', 'main-amqp', 'spec', 'clusterIP')}:5672"), Board()
    (inner,) = re.findall(r"failover:\((.*?)\)", uri)
    consuming = tuple(
        jms_tool.consume(board, name, ["--uri", uri], "orders", SUBSCRIPTION, work / f"{name}.log")
        for name in CONSUMERS
    )
    # Without failover it tries again each tenth of a second: one of its attempts meets the address that is gone.
    more = {"connections": 1, "size": 20, "pause_millis": PAUSE_MILLIS, "until_input_ends": 1}
    producing = jms_tool.publish(board, "p", ["--uri", inner], "orders", EVERY, work / "producer.log", **more)
    with ExitStack() as stack:
        for each in (*consuming, producing):
            stack.enter_context(each)
        for each in consuming:
            each.wait_ready()
        yield Clients(board, producing, consuming)


def cause(
    installation: Installation, team: Team, traffic: Clients, seed: int, seconds: float, say: Callable[[str], None]
) -> Figures:
    """Cause faults for so many seconds, then check everything.

    Raises:
        AssertionError: something is not as declared, or a message was lost.
        TimeoutError: messages do not flow any more.
    """
    figures, started = Figures(), time.monotonic()
    declared: Mapping[str, str] = {}
    deleted = set[str]()
    for step in steps(seed, list(FAULTS)):
        if time.monotonic() - started >= seconds:
            break
        say(f"{time.monotonic() - started:6.0f} s: {step.fault}")
        _edit(team, step)
        FAULTS[step.fault](installation, team, step.share)
        figures.faults.append(step.fault)
        declared = step.declared
        deleted.update(step.deleted)
        if len(figures.faults) % SETTLED_EACH == 0:
            figures.converged_seconds.append(_settle(team, traffic, declared, deleted))
    figures.converged_seconds.append(_settle(team, traffic, declared, deleted))
    if seconds > COLLECTED_SECONDS:
        converges(team, declared, seconds=COLLECTED_SECONDS)
    assert "because of a bug in the operator" not in installation.log()
    tally = traffic.board.tally
    traffic.finish()
    figures.accepted, figures.repeated, figures.doubtful = len(tally.accepted), tally.repeated, len(tally.doubtful)
    return figures


def _edit(team: Team, step: Step) -> None:
    """Apply and delete as often as it takes: the API server may still be away."""

    def is_done() -> bool:
        try:
            if step.applied:
                team.apply(
                    *(it for name, key in step.applied.items() for it in subscriptions([name], bindingKeys=[key]))
                )
            if step.deleted:
                team.kube.kubectl("delete", "subscription", *step.deleted, "--wait=false", "--ignore-not-found")
        except StoryError:
            return False
        return True

    wait_for("the API server to take the manifests", is_done, PATIENCE)


def _settle(team: Team, traffic: Clients, declared: Mapping[str, str], deleted: set[str]) -> float:
    """Seconds until messages flow and everything is as declared."""
    began = time.monotonic()
    while not _goes_on(traffic):
        if time.monotonic() - began > PATIENCE:
            raise TimeoutError(f"for {PATIENCE} s no message was sent, or none received")
        _touch_stale_services(team)

    def help_kubernetes() -> None:
        _apply_missing(team, declared)
        if time.monotonic() - began > MINUTE:
            _touch_stale_services(team)

    converges(team, declared, seconds=PATIENCE, may_stay=deleted, before_each_look=help_kubernetes)
    bound = asyncio.run(_bound(team))
    differing = {name: bound.get(name) for name, key in declared.items() if bound.get(name) != ("orders", [key])}
    assert not differing, f"bound otherwise than declared: {differing}"
    return time.monotonic() - began


def _goes_on(traffic: Clients) -> bool:
    try:
        traffic.go_on(MINUTE)
    except TimeoutError:
        return False
    return True


def _apply_missing(team: Team, declared: Mapping[str, str]) -> None:
    """As Argo CD and Flux do: what was applied while it was still being deleted is gone when the deletion ends."""
    there = team.kube.kubectl("get", "subscriptions", "-o", "jsonpath={.items[*].metadata.name}").split()
    for name in sorted(set(declared).difference(there)):
        team.apply(*subscriptions([name], bindingKeys=[declared[name]]))


def _touch_stale_services(team: Team) -> None:
    """Change an annotation of Services whose EndpointSlices name pods that are gone.

    When the API server has just come back, Kubernetes' controller of EndpointSlices can say that its cache is out of
    date, and try again after up to 1,000 s; a change of the Service makes it look at once.
    """
    found = cast("list[Any]", pick(team.kube.get("endpointslices,pods"), "items") or [])
    pods = {item["metadata"]["uid"] for item in found if item["kind"] == "Pod"}
    for item in found:
        named = {pick(endpoint, "targetRef", "uid") for endpoint in cast("list[Any]", item.get("endpoints") or [])}
        if item["kind"] == "EndpointSlice" and named - pods:
            service = item["metadata"]["labels"]["kubernetes.io/service-name"]
            team.kube.kubectl("annotate", "service", service, f"chaos={time.monotonic():.0f}", "--overwrite")


async def _bound(team: Team) -> dict[str, tuple[str, list[str]]]:
    """Exchange and binding keys of each subscription, as the broker has them."""
    management = await team.management()
    try:
        attributes = ["subscriptionName", "exchange", "bindingKeys"]
        rows = await management.query_all(EntityType.SUBSCRIPTION, attributes=attributes)
    finally:
        await management.close()
    return {
        str(row["subscriptionName"]): (str(row["exchange"]), [*cast("list[str]", row["bindingKeys"])]) for row in rows
    }
