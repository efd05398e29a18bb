"""The whole broker against a naive model: endpoint, rules, log and recovery, driven by real clients through any steps
that Hypothesis finds, with crashes among them.

Nothing sleeps and no time passes but by a step: the loop is turned by hand until nobody has anything to say, a sync
ends when a step says so, and a crash loses what was not synced, or a part of it. More examples for a long search:
PENSTOCK_MACHINE_EXAMPLES.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from broker.log.simulated_files import PowerCut
from broker.machine.client import Accepted, Answered, Client, Closed, Consuming, Delivered, Opened, Seen, Source
from broker.machine.model import KEYS, NOT_FOUND, STOLEN, Identity, Image, Link, Model, Subscription
from broker.machine.promises import Promises, lies_between
from broker.management.known_states import KnownStates, all_documents
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from proton import Delivery
from support.broker_site import BrokerSite, waiting_in
from support.examples import IS_LONG_FORM, examples
from support.tight_memory import tighten

EXAMPLES = examples(100)
STEPS = 60

SLOTS = ("app", "app", "other")
"""Container-ids of the clients that may be connected at a time."""

SOURCES = st.builds(
    Source,
    address=st.sampled_from([*KEYS, "amq.topic/a"]),
    shared=st.sampled_from([True, True, False]),
    global_=st.booleans(),
    durable=st.sampled_from([True, True, False]),
    expiry=st.sampled_from(["never", "never", "never", "link-detach", "session-end", "connection-close"]),
)
NAMES = st.sampled_from(["s", "s|2", "s|global", "t"])
SLOT = st.integers(0, len(SLOTS) - 1)
PICK = st.integers(0, 7)
PUBLISHED = ["amq.topic/a", "amq.topic/b"]
SURVIVAL = st.sampled_from(["killed", "none", "some", "torn"])


class WholeBroker(RuleBasedStateMachine):
    """Clients, syncs and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.site = BrokerSite()
        self.model = Model()
        self.promises = Promises()
        self.clients: dict[int, Client] = {}
        self.known = KnownStates()
        """What a reader of management knows who asks only for what changed."""
        self.numbers = 0
        self.keeping: dict[str, set[Identity]] = {}
        """Where each message that was sent is kept over a restart."""
        self.expected: dict[int, tuple[bool, str | None]] = {}
        """Links that the broker has to detach: closed or not, with which condition."""
        self.asked: dict[int, tuple[Source, Subscription]] = {}
        """Attaches that the broker has to answer: with which source, and the life it means."""
        self.ending: dict[int, dict[Identity, int]] = {}
        """Links whose detach tells that there are no such subscriptions, and how often each had been made."""
        self.images: list[tuple[int, Image]] = [(0, {})]
        """What was written up to a block."""
        self.survives: Callable[[int], int] = lambda _: 0
        self.names_kept = 0
        self.pump()

    def teardown(self) -> None:
        for client in self.clients.values():
            client.cut()
        self.site.close()

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    # -- turning ----------------------------------------------------------------------------------------------------

    def pump(self, action: Callable[[], None] | None = None) -> None:
        """Turn until nobody has anything to say."""
        self.promises.outdate(self.model)
        try:
            if action is not None:
                action()
            quiet = 0
            while quiet < 2:
                moved = sum([client.flush() for client in self.clients.values()])
                moved += self.site.has_work
                self.site.loop.turn(may_wait=False)
                moved += self.hear()
                quiet = 0 if moved else quiet + 1
        except PowerCut:
            self.restart(self.survives)
            return
        self.images = [each for each in self.images if each[0] != self.site.log.sequence]
        self.images.append((self.site.log.sequence, self.model.image()))
        self.agree()

    def hear(self) -> int:
        """What clients got since."""
        total = 0
        for client in list(self.clients.values()):
            seen: list[Seen] = []
            total += client.receive(seen)
            for each in seen:
                self.heard(client, each)
        return total

    def heard(self, client: Client, seen: Seen) -> None:
        match seen:
            case Opened():
                pass
            case Answered():
                source, life = self.asked.pop(seen.number)
                assert seen.source == source
                link = self.model.links.get(seen.number)
                if link is not None and self.model.subscriptions.get(link.identity) is life:
                    self.promises.there[link.identity] = life.key
            case Closed():
                self.left(seen)
            case Delivered():
                self.model.delivered(seen.number, seen.body, seen.delivery_count)
            case Accepted():
                self.promises.messages |= {(identity, seen.body) for identity in self.keeping[seen.body]}

    def left(self, seen: Closed) -> None:
        assert seen.number in self.expected, f"the broker ended a link: {seen}"
        assert (seen.closed, seen.condition) == self.expected.pop(seen.number)
        self.asked.pop(seen.number, None)
        for identity, births in self.ending.pop(seen.number, {}).items():
            if identity not in self.model.subscriptions and self.model.births[identity] == births:
                self.promises.gone.add(identity)

    def agree(self) -> None:
        """The broker holds what the model holds, and keeps back nothing that somebody wants."""
        self.known.follow(self.site.broker)
        assert self.known.documents == all_documents(self.site.broker)
        there = self.site.named()
        wanted = {
            identity: each
            for identity, each in self.model.subscriptions.items()
            if not identity.name.startswith("private")
        }
        assert there.keys() == wanted.keys()
        assert len(self.site.broker.topology.subscriptions) == len(self.model.subscriptions)
        for identity, each in wanted.items():
            queue = there[identity].queue
            assert ",".join(there[identity].binding.ordered_keys) == each.key
            assert len(queue.links.consumers) == len(each.links)
            waiting = {body for body, message in each.backlog.items() if message.holder is None}
            assert set(waiting_in(queue)) == waiting
            assert len(waiting_in(queue)) == len(waiting)
            assert queue.in_flight == len(each.backlog) - len(waiting)
        for _, consuming in self.consuming():
            link = self.model.links.get(consuming.number)
            if link is None or link.kind is None or not consuming.is_answered or consuming.credit <= 0:
                continue
            backlog = self.model.subscriptions[link.identity].backlog
            kept = [
                body
                for body, message in backlog.items()
                if message.holder is None and link.number not in message.refused_by
            ]
            assert kept == [], "it has credit and gets nothing"

    def consuming(self) -> list[tuple[Client, Consuming]]:
        """Every receiver of every client."""
        return [(client, each) for client in self.clients.values() for each in client.consuming.values()]

    def forget(self, client: Client) -> None:
        """Its links will hear nothing more."""
        for each in client.consuming.values():
            for told in (self.expected, self.asked, self.ending):
                told.pop(each.number, None)

    # -- connections ------------------------------------------------------------------------------------------------

    @initialize(is_synced=st.booleans())
    def begin(self, is_synced: bool) -> None:
        for slot in range(len(SLOTS)):
            self.connect(slot)
            self.consume(slot)
        if is_synced:
            self.sync_all()

    @rule(slot=SLOT)
    def connect(self, slot: int) -> None:
        if slot not in self.clients:
            client = self.clients[slot] = Client(SLOTS[slot], self.number(), self.site.connect())
            for address in PUBLISHED:
                client.produce(address)
            self.pump()

    @rule(slot=SLOT, how=st.sampled_from(["cut", "close", "session"]))
    def part(self, slot: int, how: str) -> None:
        client = self.clients.get(slot)
        if client is None:
            return
        self.forget(client)
        if how == "session":
            self.model.end_session((client.number, client.session_number))
            client.renew_session()
        else:
            self.model.end_connection(client.number, lost=how == "cut")
            if how == "close":
                client.close()
                self.pump()
            if self.clients.pop(slot, None) is not None:
                client.cut()
        self.pump()

    # -- links ------------------------------------------------------------------------------------------------------

    @rule(slot=SLOT, name=NAMES, source=SOURCES, credit=st.sampled_from([0, 1, 5]))
    def attach(self, slot: int, name: str, source: Source, credit: int) -> None:
        client = self.clients.get(slot)
        if client is None or name in client.consuming:
            return
        number = self.number()
        identity = self.model.identity((client.container_id, name), source, number)
        kind = (source.shared, source.global_, source.durable)
        link = Link(number, client.container_id, name, identity, (client.number, client.session_number), kind)
        condition, stolen = self.model.attach(link, source)
        if condition is not None:
            self.expected[number] = (True, condition)
        else:
            told = replace(self.model.told(link), address=source.address)
            self.asked[number] = (told, self.model.subscriptions[identity])
        if stolen is not None:
            self.expected[stolen] = (True, STOLEN)
        client.attach(number, name, source)
        if credit:
            client.grant(client.consuming[name], credit)
        self.pump()

    @rule(slot=SLOT)
    def consume(self, slot: int) -> None:
        """The most common attach, so that messages get somewhere."""
        self.attach(slot, f"s|{slot}", Source("amq.topic/#", True, True, True, "never"), 20)

    @rule(slot=SLOT, global_=st.booleans())
    def own(self, slot: int, global_: bool) -> None:
        """A durable subscription of one link."""
        self.attach(slot, "t", Source("amq.topic/a", False, global_, True, "never"), 5)

    @rule(slot=SLOT, name=NAMES)
    def look_up(self, slot: int, name: str) -> None:
        client = self.clients.get(slot)
        if client is None or name in client.consuming:
            return
        number = self.number()
        identity = self.model.look_up(client.container_id, name)
        if identity is None:
            self.expected[number] = (True, NOT_FOUND)
            meant = self.model.meant(client.container_id, name)
            self.ending[number] = {each: self.model.births[each] for each in meant}
        else:
            session = (client.number, client.session_number)
            link = self.model.links[number] = Link(number, client.container_id, name, identity, session, None)
            self.asked[number] = (self.model.told(link), self.model.subscriptions[identity])
        client.attach(number, name, None)
        self.pump()

    @rule(pick=PICK, closed=st.booleans())
    def leave(self, pick: int, closed: bool) -> None:
        links = [each for each in self.consuming() if each[1].is_answered and not each[1].is_leaving]
        if links:
            client, consuming = links[pick % len(links)]
            link = self.model.links[consuming.number]
            self.expected[link.number] = (closed, self.model.detach(link, closed=closed))
            if closed and link.identity not in self.model.subscriptions:
                self.ending[link.number] = {link.identity: self.model.births[link.identity]}
            client.leave(consuming, closed=closed)
            self.pump()

    @rule(pick=PICK, credit=st.sampled_from([1, 3, 20]))
    def grant(self, pick: int, credit: int) -> None:
        links = [each for each in self.consuming() if self.is_taking(each[1])]
        if links:
            client, consuming = links[pick % len(links)]
            client.grant(consuming, credit)
            self.pump()

    def is_taking(self, consuming: Consuming) -> bool:
        """A link that messages come over."""
        link = self.model.links.get(consuming.number)
        return link is not None and link.kind is not None and not consuming.is_leaving

    # -- messages ---------------------------------------------------------------------------------------------------

    @rule(
        slot=SLOT,
        address=st.sampled_from(PUBLISHED),
        durable=st.sampled_from([True, True, False]),
        count=st.integers(1, 3),
        padding=st.sampled_from([0, 0, 0, 2500]),
    )
    def publish(self, slot: int, address: str, durable: bool, count: int, padding: int = 0) -> None:
        client = self.clients.get(slot)
        if client is None:
            return
        for _ in range(count):
            if not client.produce(address):
                break  # no credit
            body = f"m{self.number()}"
            self.keeping[body] = self.model.publish(KEYS[address], body, durable=durable)
            client.send(address, body, durable=durable, padding=padding)
        self.pump()

    @rule(slot=SLOT)
    def publish_one(self, slot: int) -> None:
        """The most common message."""
        self.publish(slot, "amq.topic/a", True, 1)

    @rule(slot=SLOT, count=st.integers(4, 9))
    def publish_much(self, slot: int, count: int) -> None:
        """Long messages, so that segments are filled, compacted and recycled."""
        self.publish(slot, "amq.topic/a", True, count, 2500)

    @rule(pick=PICK, one_in=st.integers(2, 9))
    def accept_most(self, pick: int, one_in: int) -> None:
        """All deliveries of a link but one in so many: what stays keeps its segment until it is compacted."""
        links = [each for each in self.consuming() if each[1].held and self.is_taking(each[1])]
        if links:
            client, consuming = links[pick % len(links)]
            for body in [body for body in consuming.held if int(body[1:]) % one_in]:
                self.model.settled(consuming.number, body, is_over=True, failed=False, undeliverable=False)
                client.settle(consuming, body, Delivery.ACCEPTED, failed=False, undeliverable=False)
            client.grant(consuming, 10)
            self.pump()

    @rule(pick=PICK, which=PICK)
    def accept(self, pick: int, which: int) -> None:
        """The most common outcome."""
        self.settle(pick, which, Delivery.ACCEPTED, False, False)

    @rule(
        pick=PICK,
        which=PICK,
        state=st.sampled_from(
            [Delivery.ACCEPTED, Delivery.ACCEPTED, Delivery.RELEASED, Delivery.REJECTED, Delivery.MODIFIED]
        ),
        failed=st.booleans(),
        undeliverable=st.booleans(),
    )
    def settle(self, pick: int, which: int, state: int, failed: bool, undeliverable: bool) -> None:
        links = [each for each in self.consuming() if each[1].held and self.is_taking(each[1])]
        if links:
            client, consuming = links[pick % len(links)]
            body = list(consuming.held)[which % len(consuming.held)]
            is_modified = state == Delivery.MODIFIED
            self.model.settled(
                consuming.number,
                body,
                is_over=state in (Delivery.ACCEPTED, Delivery.REJECTED),
                failed=is_modified and failed,
                undeliverable=is_modified and undeliverable,
            )
            client.settle(consuming, body, state, failed=failed, undeliverable=undeliverable)
            self.pump()

    # -- time, syncs, crashes ---------------------------------------------------------------------------------------

    @rule()
    def time_passes(self) -> None:
        self.site.now_ms += 10
        self.pump()

    @rule()
    def press_memory(self) -> None:
        """From now on, until a restart, at most two messages or so of each queue are in memory."""
        tighten(self.site.broker)
        self.pump()

    @rule(turns=st.integers(1, 40))
    def idle(self, turns: int) -> None:
        """Compaction, checkpoints and recycling go on by themselves, and what they write is synced."""
        for _ in range(turns):
            if not self.site.log.wants_maintenance:
                break
            self.pump(lambda: self.site.syncer.complete())

    @rule()
    def sync(self) -> None:
        self.pump(lambda: self.site.syncer.complete())

    @rule()
    def sync_all(self) -> None:
        while not self.site.is_synced:
            self.site.now_ms += 10
            self.pump(lambda: self.site.syncer.complete())
        self.pump()
        assert not self.expected, "links that were not detached"
        assert not self.asked, "attaches that were not answered"
        assert not any(client.sent for client in self.clients.values()), "messages that were not accepted"

    @rule(
        steps=st.one_of(st.none(), st.integers(0, 9)),
        survival=SURVIVAL,
        seed=st.integers(0, 99),
        names=st.integers(0, 3),
    )
    def crash(self, steps: int | None, survival: str, seed: int, names: int) -> None:
        """Now, or in the midst of a later step, after so many changes of files."""
        self.survives, self.names_kept = surviving(survival, seed), names
        if steps is not None:
            self.site.files.steps_left = steps
        else:
            self.restart(None if survival == "killed" else self.survives)

    def restart(self, survives: Callable[[int], int] | None) -> None:
        """A crash of the machine, or (None) of the process alone."""
        log = self.site.log
        at_least = log.sequence if survives is None else log.synced
        self.site.end_process()
        self.hear()  # what had left before
        self.promises.outdate(self.model)
        if survives is None:
            self.site.files.kill()
        else:
            self.site.files.crash(survives, self.names_kept)
        block = self.site.start()
        assert block >= at_least
        found = self.site.image()
        lower = next(image for sequence, image in reversed(self.images) if sequence <= block)
        upper = next((image for sequence, image in self.images if sequence >= block), self.model.image())
        lies_between(found, lower, upper)
        self.promises.hold(found)
        for client in self.clients.values():
            self.forget(client)
            client.cut()
        self.clients.clear()
        self.images = [(block, found)]
        self.model.restarted(found)
        self.pump()


def surviving(how: str, seed: int) -> Callable[[int], int]:
    """How many of the first bytes of an unsynced write stay."""
    chance = random.Random(seed)
    match how:
        case "none":
            return lambda _: 0
        case "killed":
            return lambda length: length
        case "some":
            return lambda length: length * chance.randint(0, 1)
        case _:
            return lambda length: chance.randint(0, length)


WholeBroker.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=not IS_LONG_FORM,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestWholeBroker = WholeBroker.TestCase
