"""Plays the scenarios of state_scenarios.py on one broker of `penstock up`, and watches what the observer says live;
beside it, those of broken_node.py on another one.

At the end `penstock lag` has to say of each subscription what the observer said live at the same poll, word by word
apart from the mean wait and hold, and the commands of docs/reference/lag-compared.md have to show what that page says
they do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import yaml
from e2e import compared_page
from e2e.broken_node import BrokenNode
from e2e.jms_fleet import Fleet
from e2e.local_site import LocalSite
from e2e.state_scenarios import EXCHANGE, INTERVAL_SECONDS, SCENARIOS, Scenario
from e2e.state_watch import Expectation, Seen, Sighting, WrongState, sighting_of
from support.waiting import found

from penstock_api import observer_api
from penstock_api.lag_result import LagResult, LagState

__all__ = ["manifests", "play"]

PATIENCE_SECONDS: Final = 600.0
LOOK_SECONDS: Final = 0.5

ON_A_QUEUE: Final = (
    "work queue-a --queue work --selector region='mars'",
    "feed queue-f --queue work --burst 5 --most 5",
)
"""A point-to-point queue whose only consumer selects nothing: the observer judges subscriptions, so nothing is said."""

MEANS: Final = re.compile(r"; on average a message waited [0-9.]+ m?s for a consumer and was held for [0-9.]+ m?s$")
"""Of the time that the ledger has histograms of, which are at the ends of its segments; the observer has each poll."""

Say = Callable[[str], None]


def manifests(folder: Path) -> Path:
    """Write the resources of all scenarios into a folder."""
    broker, version = {"name": "shop"}, "penstock.dev/v1alpha1"
    documents: list[dict[str, object]] = [
        {"kind": "Broker", "metadata": broker, "spec": {"authentication": {"anonymous": True}}},
        {"kind": "Exchange", "metadata": {"name": EXCHANGE}, "spec": {"brokerRef": broker, "type": "Topic"}},
    ]
    for each in SCENARIOS:
        spec = {"brokerRef": broker, "exchangeRef": {"name": EXCHANGE}, "bindingKeys": [each.name], **each.spec}
        documents.append({"kind": "Subscription", "metadata": {"name": each.name}, "spec": spec})
    folder.mkdir(parents=True)
    text = yaml.safe_dump_all({"apiVersion": version, **document} for document in documents)
    (folder / "states.yaml").write_text(text, encoding="utf-8")
    return folder


class Watch:
    """Every poll of the observer, as far as it was asked in time."""

    def __init__(self, site: LocalSite) -> None:
        self._site = site
        self.last_ms = 0
        self.sightings: dict[str, list[Sighting]] = {each.name: [] for each in SCENARIOS}

    def begin(self) -> None:
        """Forget what was said so far: nothing was right yet."""
        for sightings in self.sightings.values():
            sightings.clear()

    def pass_over(self) -> None:
        """Ignore what was polled last: it may be older than what the caller has done."""
        found(self._newer, "the observer's first poll", PATIENCE_SECONDS, every=LOOK_SECONDS)

    def next_poll(self) -> int:
        """Wait for the next poll and note what it says; its time. Raises `WrongState` for other subscriptions."""
        result = found(self._newer, "the observer's next poll", PATIENCE_SECONDS, every=LOOK_SECONDS)
        names = {lag.owner_name for lag in result.subscriptions}
        if names != self.sightings.keys():
            raise WrongState(f"the observer judges {names}, and not the subscriptions alone")
        for lag in result.subscriptions:
            assert lag.owner_name is not None
            self.sightings[lag.owner_name].append(Sighting(self.last_ms, lag.state, lag.message))
        return self.last_ms

    def _newer(self) -> LagResult | None:
        result = LagResult.model_validate(self._site.get(observer_api.LIVE_LAG))
        time_ms = _milliseconds(result)
        if time_ms == self.last_ms:
            return None
        self.last_ms = time_ms
        return result

    def state(self, name: str) -> LagState | None:
        """What the last poll said."""
        return self.sightings[name][-1].state if self.sightings[name] else None

    def at(self, time_ms: int) -> dict[str, tuple[LagState, str]]:
        """State and sentence of each subscription at one poll."""
        return {
            name: (each.state, each.sentence)
            for name, sightings in self.sightings.items()
            for each in sightings
            if each.time_ms == time_ms
        }


def play(work: Path, say: Say) -> list[Seen]:
    """All scenarios at the same time; what was seen, in their order.

    Raises:
        WrongState: a state, a sentence or a time is not what it has to be.
        TimeoutError: something that has to happen did not.
        RuntimeError: a client has failed.
    """
    pace = {"snapshot_seconds": INTERVAL_SECONDS, "segment_seconds": INTERVAL_SECONDS}
    with LocalSite(manifests(work / "manifests"), work / "penstock", **pace) as site, ExitStack() as ends:
        node = ends.enter_context(BrokenNode(work / "node"))
        site.wait_until_serving()
        access = ["--uri", f"amqp://{site.state()['amqp']}"]
        fleet = ends.enter_context(Fleet(access, work / "fleet.log"))
        doomed = ends.enter_context(Fleet(access, work / "doomed.log"))
        for command in (*node.left_commands, *ON_A_QUEUE):
            fleet.obey(command)
        beside = ends.enter_context(ThreadPoolExecutor(1)).submit(node.play)
        watch = _begin(site, fleet, doomed)
        say(f"{len(SCENARIOS)} subscriptions are as healthy as they have to be at the beginning")
        injected = _inject(fleet, doomed)
        say("trouble was made in all but the healthy ones")
        seen = _watch_until_seen(watch, fleet, injected, say)
        if fleet.failures:
            raise RuntimeError(f"clients failed: {fleet.failures}")
        _check_poison(fleet, seen)
        compared_page.check(site, say, of_job=False)  # at once: what recovers has soon recovered
        _compare_with_job(site, watch)
        say("penstock lag (Spark) says the same of each, word by word")
        compared_page.check(site, say, of_job=True)
        of_node = beside.result()
        for line in of_node:
            say(f"{line.injected}: {line.state or 'no answer'} after {line.seconds} s: {line.sentence}")
        return [*(seen[each.name] for each in SCENARIOS), *of_node]


def _begin(site: LocalSite, fleet: Fleet, doomed: Fleet) -> Watch:
    """Start what is healthy, and wait until every subscription is in the first state of its path."""
    for each in SCENARIOS:
        _obey(doomed, each, each.doomed)
        _obey(fleet, each, each.healthy)
    watch = Watch(site)
    watch.pass_over()  # the first poll may have come before `penstock up` had declared the subscriptions
    watch.next_poll()
    while not all(watch.state(each.name) is each.path[0] for each in SCENARIOS):
        watch.begin()
        watch.next_poll()
    return watch


def _obey(fleet: Fleet, scenario: Scenario, commands: tuple[str, ...]) -> None:
    for command in commands:
        fleet.obey(command.format(s=scenario.name))


def _inject(fleet: Fleet, doomed: Fleet) -> dict[str, int]:
    """Do what each scenario says; when it was done, in milliseconds since 1970."""
    injected: dict[str, int] = {}
    doomed.kill()
    for each in SCENARIOS:
        _obey(fleet, each, each.trouble)
        injected[each.name] = time.time_ns() // 1_000_000
    return injected


def _watch_until_seen(watch: Watch, fleet: Fleet, injected: dict[str, int], say: Say) -> dict[str, Seen]:
    """Watch until every state has been seen; those that were must stay until then."""
    seen: dict[str, Seen] = {}
    away = {each.name for each in SCENARIOS if each.return_at is not None}
    while len(seen) < len(SCENARIOS):
        watch.next_poll()
        for each in SCENARIOS:
            if each.name in away and watch.state(each.name) is each.return_at:
                _obey(fleet, each, each.back)
                injected[each.name] = time.time_ns() // 1_000_000
                away.remove(each.name)
            wanted = Expectation(each.name, each.path, each.period_seconds * 1000, each.sentence)
            sighting = sighting_of(wanted, watch.sightings[each.name], injected[each.name])
            if sighting is not None and each.name not in seen:
                seconds = (sighting.time_ms - injected[each.name]) // 1000
                seen[each.name] = Seen(each.injected, sighting.state, seconds, sighting.sentence)
                say(f"{each.name} is {sighting.state} after {seconds} s: {sighting.sentence}")
    return seen


def _check_poison(fleet: Fleet, seen: dict[str, Seen]) -> None:
    """The sentences name the messages that were poison, by the ids that their producers got."""
    for name, message_id in fleet.told("poison").items():
        sentence = seen[name.removesuffix("-poison")].sentence
        if f"({message_id} failed" not in sentence:
            raise WrongState(f"the poison is {message_id}, but {name} says: {sentence}")


def _compare_with_job(site: LocalSite, watch: Watch) -> None:
    """Run `penstock lag` with a window that ends at the last poll that was watched.

    Raises:
        WrongState: it does not say what the observer said at that poll.
    """
    end_ms = watch.last_ms
    site.wait_for_segment(after_ms=end_ms)  # one that reaches beyond it, so that it is whole
    as_of = datetime.fromtimestamp(end_ms / 1000, UTC).isoformat()
    result = site.analyse("states", "--as-of", as_of)
    told = _without_means({lag.owner_name or "": (lag.state, lag.message) for lag in result.subscriptions})
    live = _without_means(watch.at(end_ms))
    if told != live:
        other = {name: (told.get(name), live[name]) for name in live if told.get(name) != live[name]}
        raise WrongState(f"penstock lag and the observer differ: {other or told.keys() ^ live.keys()}")


def _without_means(said: Mapping[str, tuple[LagState, str]]) -> dict[str, tuple[LagState, str]]:
    return {name: (state, MEANS.sub("", sentence)) for name, (state, sentence) in said.items()}


def _milliseconds(result: LagResult) -> int:
    return round(result.window_end.timestamp() * 1000)
