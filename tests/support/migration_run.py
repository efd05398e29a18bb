"""A move from another broker to Penstock, as docs/how-to/migrate.md says it, and what has to be there afterwards.

The backlog is made and taken by a JMS program (tests/jms, `Backlog`), which says of each message everything that JMS
shows. bridge.py moves it. It is killed once in the middle of a subscription's backlog, and the new broker is killed
before its consumers come.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from benching.brokers import Broker
from e2e import jms_tool
from support.broker_process import BrokerProcess
from support.migration_peers import QUEUE, SELECTED_FROM, SUBSCRIPTIONS, Peer, Subscription

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import EntityType

__all__ = ["Migration", "MigrationError", "migrate"]

ROOT: Final = Path(__file__).resolve().parents[2]
MESSAGES, IN_QUEUE, GIVEN_BACK, WINDOW = 1500, 200, 5, 500
SECONDS: Final = 300
NOT_COMPARED: Final = frozenset({"redelivered", "JMSXDeliveryCount"})

Message = dict[str, str]


class MigrationError(Exception):
    """Something is not as the page says; the text is what."""


@dataclass(slots=True)
class Migration:
    """One move."""

    peer: Peer
    old: Broker
    new: BrokerProcess
    say: Callable[[str], None]

    @property
    def old_url(self) -> str:
        """Of the old broker, without a user."""
        return f"amqp://{self.old.host}:{self.old.port}"

    def follow(self) -> None:
        """Raises `MigrationError`."""
        sent, queued = self.fill()
        self.declare("exchange", "bridge", "--type", "Fanout", "--unroutable", "Reject")
        if self.peer.exchange != "amq.topic":
            self.declare("exchange", self.peer.exchange)
        self.declare("queue", QUEUE)
        for number, each in enumerate(SUBSCRIPTIONS):
            self.declare("subscription", *each.declared(), "--exchange", "bridge")
            if number == 0:
                self.bridge_killed_once(each)
            else:
                wanted = len(self.selected(each, sent))
                self.expect(self.bridge(self.peer.sources[each.name], "bridge"), f"{wanted} moved", each.name)
            binding = ["--binding-key", self.peer.key] if self.peer.key else []
            binding += ["--selector", each.selector] if each.selector else []
            said = self.declare("subscription", *each.declared(), "--exchange", self.peer.exchange, *binding)
            self.expect(said, f"Subscription {each.name}: Rebound", each.name)
        self.expect(self.bridge(self.peer.queue, QUEUE), f"{IN_QUEUE} moved", QUEUE)
        self.new.kill()
        self.new.start()
        self.check_queue(queued)
        for number, each in enumerate(SUBSCRIPTIONS):
            self.check_subscription(each, self.selected(each, sent), was_killed=number == 0)
        self.check_old_is_empty()
        self.check_new_messages()

    def fill(self) -> tuple[list[Message], list[Message]]:
        """What was sent to the topic and to the queue; some of the queue was delivered once and given back."""
        if self.peer.has_topics:
            for each in SUBSCRIPTIONS:
                self.run(self.old_url, [*each.options(self.peer.topic), "--take", "none"])
        sent = self.run(self.old_url, ["--topic", self.peer.topic, "--count", str(MESSAGES)])
        queued = self.run(self.old_url, ["--queue", self.peer.queue, "--count", str(IN_QUEUE), "--priorities", "1"])
        one_by_one = f"{self.old_url}?jms.prefetchPolicy.all=0"
        back = self.run(one_by_one, ["--queue", self.peer.queue, "--take", str(GIVEN_BACK), "--give-back", "1"])
        self.expect(len(back), GIVEN_BACK, "given back on the old broker")
        return sent, queued

    def selected(self, subscription: Subscription, sent: list[Message]) -> list[Message]:
        """What a subscription has of that. A queue that is bound on RabbitMQ has no selector."""
        selects = subscription.selector and self.peer.has_topics
        return sent[SELECTED_FROM:] if selects else sent

    def bridge(self, source: str, destination: str) -> str:
        """What bridge.py printed. It has to end by itself, with exit code 0."""
        run = subprocess.run(
            self.bridging(source, destination), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if run.returncode:
            raise MigrationError(f"bridge.py {source}: exit code {run.returncode}: {run.stdout}{run.stderr}")
        return run.stdout.strip()

    def bridging(self, source: str, destination: str) -> list[str]:
        """The command."""
        address, *options = shlex.split(source)
        program = ROOT / "examples" / "clients" / "python" / "bridge.py"
        old = self.old_url.replace("://", "://guest:guest@")
        new = self.new.url.replace("://", "://guest:guest@")
        return [sys.executable, str(program), old, address, new, destination, *options]

    def bridge_killed_once(self, subscription: Subscription) -> None:
        """kill -9 as soon as a third has come, and the rest by another run."""
        source = self.peer.sources[subscription.name]
        with subprocess.Popen(self.bridging(source, "bridge"), stdout=subprocess.DEVNULL) as run:
            try:
                came = asyncio.run(self.depth_of(subscription, MESSAGES // 3))
            finally:
                run.kill()
        if run.returncode != -9:
            raise MigrationError("it was not killed in the middle, it had ended")
        moved = self.bridge(source, "bridge")
        self.say(f"{subscription.name}: killed when {came} had come; the second run: {moved}")

    async def depth_of(self, subscription: Subscription, least: int) -> int:
        """How many messages the new broker has, as soon as there are so many."""
        management = await ManagementClient.connect(self.new.management)
        deadline = time.monotonic() + SECONDS
        try:
            while True:
                for state in await management.query_all(EntityType.SUBSCRIPTION):
                    if state["subscriptionName"] == subscription.name and int(str(state["depth"])) >= least:
                        return int(str(state["depth"]))
                if time.monotonic() > deadline:
                    raise MigrationError(f"{least} messages of {subscription.name} did not come")
        finally:
            await management.close()

    def check_queue(self, queued: list[Message]) -> None:
        """Higher priorities come first, each in its order. What was given back comes where the old broker put it."""
        taken = self.run(self.new.url, ["--queue", QUEUE, "--take", "all"])
        counted = Counter(message["JMSXDeliveryCount"].removeprefix("Integer ") for message in taken)
        self.say(f"{QUEUE}: JMSXDeliveryCount and how many have it: {dict(counted)}")
        again = {message["id"] for message in taken if message["JMSXDeliveryCount"] != "Integer 1"}
        expected = sorted(queued, key=lambda message: -int(message["priority"]))
        self.compare(
            [message for message in taken if message["id"] not in again],
            [message for message in expected if message["id"] not in again],
            QUEUE,
        )
        by_id = {message["id"]: message for message in queued}
        given_back = [message for message in taken if message["id"] in again]
        self.compare(given_back, [by_id[id_] for id_ in dict.fromkeys(_ids(given_back))], f"{QUEUE}, given back")
        self.expect(len(again), GIVEN_BACK, f"{QUEUE}: messages that say that they were delivered before")

    def check_subscription(self, subscription: Subscription, sent: list[Message], *, was_killed: bool) -> None:
        """The same JMS code takes what was left: each message once, after a kill of the bridge at least once."""
        taken = self.run(self.new.url, [*subscription.options(self.peer.new_source), "--take", "all"])
        first = list({message["id"]: message for message in reversed(taken)}.values())[::-1]
        twice = len(taken) - len(first)
        if was_killed and twice <= WINDOW:
            self.say(f"{subscription.name}: {twice} came twice")
            taken = [message for number, message in enumerate(taken) if message["id"] not in _ids(taken[:number])]
        self.compare(taken, sent, subscription.name)

    def compare(self, taken: list[Message], sent: list[Message], what: str) -> None:
        """Order, ids and every field."""
        if _ids(taken) != _ids(sent):
            gone, new = set(_ids(sent)) - set(_ids(taken)), len(taken) - len(sent)
            raise MigrationError(f"{what}: {len(gone)} lost, {new:+d} in all, or in another order")
        for one, other in zip(taken, sent, strict=True):
            changed = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)} - NOT_COMPARED
            if changed:
                shown = {name: (other.get(name), one.get(name)) for name in sorted(changed)}
                raise MigrationError(f"{what}: {one['id']} is changed, it was and is {shown}")
        self.say(f"{what}: {len(taken)} taken, in their order, every field as it was")

    def check_old_is_empty(self) -> None:
        """Nothing is left there."""
        takes = {QUEUE: ["--queue", self.peer.queue]}
        for each in SUBSCRIPTIONS:
            takes[each.name] = (
                each.options(self.peer.topic) if self.peer.has_topics else ["--queue", f"/queues/{each.name}"]
            )
        for name, options in takes.items():
            self.expect(len(self.run(self.old_url, [*options, "--take", "all"])), 0, f"{name} on the old broker")

    def check_new_messages(self) -> None:
        """What is published now reaches every subscription."""
        sent = self.run(self.new.url, ["--topic", self.peer.new_topic, "--count", str(SELECTED_FROM + 1)])
        for each in SUBSCRIPTIONS:
            taken = self.run(self.new.url, [*each.options(self.peer.new_source), "--take", "all"])
            self.compare(taken, sent[SELECTED_FROM:] if each.selector else sent, f"{each.name}, new messages")

    def declare(self, *words: str) -> str:
        """`penstock declare`."""
        command = [str(Path(sys.executable).with_name("penstock")), "declare", *words, "--broker", self.new.management]
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        if run.returncode:
            raise MigrationError(f"{shlex.join(command)}: {run.stdout}{run.stderr}")
        return run.stdout.strip()

    def run(self, url: str, options: Sequence[str]) -> list[Message]:
        """What the Java program says of each message."""
        command = jms_tool.java("Backlog", ["--uri", url, *options])
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        if run.returncode:
            raise MigrationError(f"{shlex.join(options)}: {run.stdout[-2000:]}{run.stderr[-2000:]}")
        words = [line.partition(" ") for line in run.stdout.splitlines()]
        return [dict(parse_qsl(rest.replace(" ", "&"), True)) for event, _, rest in words if event == "message"]

    def expect(self, found: object, wanted: object, what: str) -> None:
        """Raises `MigrationError`."""
        if found != wanted:
            raise MigrationError(f"{what}: expected {wanted}, found {found}")


def _ids(messages: Sequence[Message]) -> list[str]:
    return [message["id"] for message in messages]


def migrate(peer: Peer, folder: Path, say: Callable[[str], None]) -> None:
    """Raises `MigrationError`, or `benching.peer_archives.Missing` where the old broker can't be had."""
    users: dict[str, object] = {"authentication": {"users": {"guest": "guest"}}}
    with peer.start(folder) as old, BrokerProcess(folder / "new", dev=False, settings=users) as new:
        say(f"{old.name} {old.note}".strip())
        Migration(peer, old, new, say).follow()
