"""Messages far longer than memory should hold, through a broker process: whole or not at all, and nobody waits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.large_messages import (
    DURABLE,
    MIB,
    PART,
    SHARED,
    VOLATILE,
    Downloading,
    Uploading,
    digest,
    encoded,
    next_transfer,
    pattern,
)
from support.raw_client import RawClient
from support.waiting import until

from penstock_amqp.frames.performatives import Disposition, Released, Source
from penstock_amqp.types.values import Symbol

LARGE = 20 * MIB  # more than two segments of the test's log


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that takes messages of 1 GiB into segments of 8 MiB."""
    with BrokerProcess(tmp_path / "data", settings={"maxMessageBytes": 1024 * MIB, "linkCredit": 4}) as process:
        yield process


def opened(broker: BrokerProcess, container: str = "c") -> RawClient:
    client = RawClient(broker.port, container)
    client.begin()
    return client


def segments(broker: BrokerProcess) -> int:
    return len(list((broker.data / "log").glob("segment-*")))


def test_an_accepted_message_larger_than_segments_survives_kill_9(broker: BrokerProcess) -> None:
    with opened(broker) as client:
        up = Uploading.to(client, "q")
        up.send(encoded(LARGE))
        assert up.outcome() == "Accepted"
    assert segments(broker) >= 3
    broker.kill()
    broker.start()
    with opened(broker) as client:
        down = Downloading(client, "q", credit=2)
        got = down.receive()
        assert (got.size, got.digest) == (LARGE + len(DURABLE) + 8, digest(encoded(LARGE)))
        down.accept(got.delivery_id)
        until(lambda: segments(broker) <= 2, "its segments are used again")


def flip(path: Path, at: int) -> None:
    """Change one bit of a file under the running broker."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("fault", ["flipped", "truncated"])
def test_a_damaged_body_is_never_sent_as_a_whole_and_costs_this_message_alone(
    broker: BrokerProcess, fault: str
) -> None:
    """The transfer has begun and is aborted; the next message comes on the same link."""
    for size in (LARGE, 100):
        with opened(broker) as client:
            up = Uploading.to(client, "q")
            up.send(encoded(size))
            assert up.outcome() == "Accepted"
    first = min((broker.data / "log").glob("segment-*"))
    if fault == "flipped":
        flip(first, 5 * MIB)
    else:
        os.truncate(first, 5 * MIB)
    with opened(broker, "consumer") as client:
        down = Downloading(client, "q", credit=2)
        damaged = down.receive()
        assert damaged.is_aborted
        assert 0 < damaged.size < 5 * MIB
        whole = down.receive()
        assert (whole.is_aborted, whole.digest) == (False, digest(encoded(100)))
        down.accept(whole.delivery_id)
    until(lambda: "of queue 'q' is lost: the log is damaged where it lies" in broker.log(), "the queue to be named")
    assert f"the log is damaged: {first}, byte " in broker.log()
    assert "closed after an internal error" not in broker.log()
    until(lambda: segments(broker) <= 2, "its segments are used again")


def test_an_upload_that_is_cut_off_leaves_nothing(broker: BrokerProcess) -> None:
    with opened(broker) as client:
        Uploading.to(client, "q").begin(encoded(LARGE), LARGE // 2)
        until(lambda: segments(broker) >= 2, "parts are in the log before the message is whole")
    with opened(broker, "other") as client:
        up = Uploading.to(client, "q")
        up.send(encoded(100))
        assert up.outcome() == "Accepted"
        assert Downloading(client, "q", credit=2).receive().size == 100 + len(DURABLE) + 8
        until(lambda: segments(broker) <= 2, "its segments are used again")


def test_an_upload_that_a_kill_cuts_off_leaves_nothing(broker: BrokerProcess) -> None:
    with opened(broker) as client:
        up = Uploading.to(client, "q")
        up.send(encoded(100))
        assert up.outcome() == "Accepted"
        up.begin(encoded(LARGE), LARGE // 2)
        until(lambda: segments(broker) >= 2, "parts are in the log")
        broker.kill()
    broker.start()
    with opened(broker) as client:
        up = Uploading.to(client, "q")
        up.send(encoded(200))
        assert up.outcome() == "Accepted"
        down = Downloading(client, "q", credit=10)
        assert down.receive().size == 100 + len(DURABLE) + 8
        assert down.receive().size == 200 + len(DURABLE) + 8


@pytest.mark.parametrize("size", [3 * PART, 4 * MIB], ids=["small", "large"])
def test_aborted_deliveries_are_forgotten_and_cost_no_credit(broker: BrokerProcess, size: int) -> None:
    with opened(broker) as client:
        up = Uploading.to(client, "q")
        for seed in range(9):  # more than the link's credit
            up.begin(encoded(size + PART, seed=seed), size)
            up.part(b"", more=False, aborted=True)
        up.send(encoded(size, seed=99))
        assert up.outcome() == "Accepted"
        down = Downloading(client, "q", credit=10)
        assert down.receive().digest == digest(encoded(size, seed=99))


def test_subscriptions_share_one_body_until_the_last_has_let_go(broker: BrokerProcess) -> None:
    with opened(broker) as client:
        source = Source(address="amq.topic/a", durable=2, expiry_policy=Symbol("never"), capabilities=SHARED)
        sources = [source, source, source]
        for index, source in enumerate(sources):
            client.attach_receiver(f"sub{index}|global", source)
            client.detach(client.last_handle, closed=False)
        up = Uploading.to(client, "amq.topic/a")
        up.send(encoded(LARGE))
        assert up.outcome() == "Accepted"
        assert segments(broker) <= 5, "one copy"
        for index, source in enumerate(sources):
            assert segments(broker) >= 3
            down = Downloading(client, "", credit=1, name=f"sub{index}|global", source=source)
            got = down.receive()
            assert got.digest == digest(encoded(LARGE))
            down.accept(got.delivery_id)
        until(lambda: segments(broker) <= 2, "its segments are used again")


def test_a_consumer_that_goes_in_the_middle_gives_the_whole_back(broker: BrokerProcess) -> None:
    with opened(broker) as client:
        up = Uploading.to(client, "q")
        up.send(encoded(LARGE))
        assert up.outcome() == "Accepted"
        with opened(broker, "leaver") as leaver:
            Downloading(leaver, "q", credit=1)
            for _ in range(20):
                assert next_transfer(leaver)[0].more
        down = Downloading(client, "q", credit=1)
        got = down.receive()
        assert got.size == LARGE + 12 + 8, "its header has a delivery-count now"
        assert got.header.startswith(bytes.fromhex("005370")) and b"\x52\x01" in got.header


def test_a_consumer_that_settles_too_early_gets_the_rest_aborted(broker: BrokerProcess) -> None:
    with opened(broker) as client:
        up = Uploading.to(client, "q")
        up.send(encoded(LARGE))
        assert up.outcome() == "Accepted"
        down = Downloading(client, "q", credit=2)
        first, _ = next_transfer(client)
        assert first.delivery_id is not None
        client.send(Disposition(role=True, first=first.delivery_id, settled=True, state=Released()))
        got = down.receive()
        assert got.is_aborted and got.size < LARGE
        again = down.receive()
        assert not again.is_aborted and again.digest == digest(encoded(LARGE))


def test_other_links_of_the_connection_are_not_held_up(broker: BrokerProcess) -> None:
    with opened(broker) as client, opened(broker, "publisher") as publisher:
        up, small = Uploading.to(publisher, "big"), Uploading.to(publisher, "small")
        up.send(encoded(LARGE))
        assert up.outcome() == "Accepted"
        little = Downloading(client, "small", credit=100, name="small")
        big = Downloading(client, "big", credit=1, name="big")
        next_transfer(client)
        small.next_id = up.next_id
        small.send(encoded(10))
        assert small.outcome() == "Accepted"  # and all this time nobody reads the large one
        finished: list[int] = []
        while len(finished) < 2:
            transfer, _ = next_transfer(client)
            if not transfer.more:
                finished.append(transfer.handle)
        assert finished == [little.theirs, big.theirs]


def test_what_follows_a_large_message_on_its_link_comes_behind_it(broker: BrokerProcess) -> None:
    with opened(broker) as client:
        up = Uploading.to(client, "q")
        sizes = [10, 3 * MIB, 20, 2 * MIB, 30]
        for index, size in enumerate(sizes):
            up.send(encoded(size, seed=index))
            assert up.outcome() == "Accepted"
        down = Downloading(client, "q", credit=10)
        for index, size in enumerate(sizes):
            got = down.receive()
            assert got.digest == digest(encoded(size, seed=index))
            down.accept(got.delivery_id)


def test_a_message_beyond_the_limit_is_refused_as_soon_as_it_is_beyond(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings={"maxMessageBytes": 5 * MIB}) as broker, opened(broker) as client:
        up = Uploading.to(client, "q")
        up.begin(encoded(LARGE), 6 * MIB)
        assert up.outcome() == "amqp:link:message-size-exceeded"


def test_the_limit_holds_within_one_frame_too(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings={"maxMessageBytes": 2000}) as broker, opened(broker) as client:
        up = Uploading.to(client, "q")
        up.send(encoded(1900))
        assert up.outcome() == "Accepted"
        up.send(encoded(2000))
        assert up.outcome() == "amqp:link:message-size-exceeded"


def test_a_volatile_large_message_is_delivered_and_gone_after_a_restart(broker: BrokerProcess) -> None:
    with opened(broker) as client:
        down = Downloading(client, "amq.topic/a", credit=1)
        up = Uploading.to(client, "amq.topic/a")
        up.send(encoded(LARGE, VOLATILE))
        got = down.receive()
        assert got.digest == digest(encoded(LARGE, VOLATILE))
        up.send(encoded(LARGE, VOLATILE, seed=2))  # waits: there is no credit
        until(lambda: segments(broker) >= 4, "it is in the log")
        broker.kill()
    broker.start()
    with opened(broker) as client:
        up = Uploading.to(client, "q")
        up.send(encoded(100))
        assert up.outcome() == "Accepted"
        until(lambda: segments(broker) <= 2, "its segments are used again")
    assert "lost" not in broker.log()


@pytest.mark.parametrize(("size", "outcome"), [(100_000, "Accepted"), (1_000_000, "Accepted"), (1_100_000, "Rejected")])
def test_sections_before_the_body_must_fit_into_memory(broker: BrokerProcess, size: int, outcome: str) -> None:
    properties = b"\xa1\x01k" + b"\xb1" + size.to_bytes(4, "big") + b"v" * size
    section = (
        bytes.fromhex("005374 d1") + (len(properties) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + properties
    )

    def parts() -> Iterator[bytes]:
        for start in range(0, len(section), PART):
            yield (DURABLE if not start else b"") + section[start : start + PART]
        yield bytes.fromhex("005375 b0") + (2 * MIB).to_bytes(4, "big")
        yield from pattern(2 * MIB)

    with opened(broker) as client:
        up = Uploading.to(client, "q")
        up.send(parts())
        assert up.outcome() == outcome
    broker.kill()
    broker.start()
    if outcome == "Accepted":
        with opened(broker) as client:
            assert Downloading(client, "q", credit=1).receive().digest == digest(parts())


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """By default 256 MiB; hack/soak/large sends more."""
    size = int(os.environ.get("PENSTOCK_LARGE_MIB", "256")) * MIB
    settings: dict[str, object] = {"maxMessageBytes": size + MIB, "log": {"segmentBytes": max(8 * MIB, size // 32)}}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with opened(broker) as client:
            up = Uploading.to(client, "q")
            up.send(encoded(3 * MIB))
            assert up.outcome() == "Accepted"
            down = Downloading(client, "q", credit=1)
            down.accept(down.receive().delivery_id)
            before = broker.resident_bytes()
            watched = Watched(broker)
            began = time.monotonic()
            up.send(watched.passing(encoded(size)))
            assert up.outcome() == "Accepted"
            stored = time.monotonic()
            client.flow(down.handle, credit=2)
            assert down.receive(watched.look).size == size + len(DURABLE) + 8
            print(f"{size / MIB / (stored - began):.0f} MiB/s in, {size / MIB / (time.monotonic() - stored):.0f} out")  # noqa: T201
            assert watched.highest - before < 40 * MIB
        broker.kill()
        broker.start()
        assert broker.resident_bytes() < before + 40 * MIB, "after recovery too"


class Watched:
    """The most memory that a broker had."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._looks = 0
        self.highest = 0

    def look(self) -> None:
        self._looks += 1
        if self._looks % 64 == 0:
            self.highest = max(self.highest, self._broker.resident_bytes())

    def passing(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            self.look()
            yield part
