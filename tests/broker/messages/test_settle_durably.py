"""receiver-settle-mode second: whatever the outcome, we settle once what it changes is on disk, and not before.

The broker runs within this process; its syncs end when a test says so.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Delivery
from support.broker_site import BrokerSite, waiting_in
from support.proton_transactions import ProtonTransactionClient


class Bench:
    """A broker with two queues, and a client whose receiver settles second."""

    def __init__(self) -> None:
        self.site = BrokerSite()
        for queue in ("jobs", "dead"):
            self.site.broker.topology.make_queue(queue, durable=True, now_us=0)
        self.queue = self.site.broker.topology.queues["jobs"].queue
        self.client = ProtonTransactionClient(self.site.connect(), ("jobs",))
        self.pump(synced=True)
        self.client.attach("jobs", credit=1, settles_second=True)
        self.pump(synced=True)
        self.client.post("jobs", "m1", None)
        self.pump(synced=True)

    def pump(self, *, synced: bool = False) -> None:
        """Turn until nobody has anything to say; `synced`: syncs end meanwhile."""
        quiet = 0
        while quiet < 3:
            if synced:
                self.site.syncer.complete()
            moved = self.client.flush() + self.site.has_work
            self.site.loop.turn(may_wait=False)
            moved += self.client.receive()
            quiet = 0 if moved else quiet + 1

    def end(self, state: int, *, failed: bool = False) -> Delivery:
        """Give the message an outcome without settling it."""
        delivery = self.client.held["m1"]
        delivery.local.failed = failed
        delivery.update(state)
        return delivery


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.client.cut()
    made.site.close()


OUTCOMES = pytest.mark.parametrize(
    ("state", "failed", "dead_letter"),
    [
        (Delivery.ACCEPTED, False, None),
        (Delivery.REJECTED, False, None),
        (Delivery.REJECTED, False, "dead"),
        (Delivery.MODIFIED, True, None),
        (Delivery.MODIFIED, True, "dead"),
    ],
)


@OUTCOMES
def test_what_an_outcome_changes_is_on_disk_first(
    bench: Bench, state: int, failed: bool, dead_letter: str | None
) -> None:
    bench.queue.policy.dead_letter, bench.queue.policy.max_deliveries = dead_letter, 1
    delivery = bench.end(state, failed=failed)
    bench.pump()
    assert not delivery.settled
    bench.pump(synced=True)
    assert delivery.settled
    assert delivery.remote_state == state
    if dead_letter is not None:
        assert waiting_in(bench.site.broker.topology.queues["dead"].queue) == ["m1"]


@OUTCOMES
def test_a_client_that_leaves_before_that_costs_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture, state: int, failed: bool, dead_letter: str | None
) -> None:
    """Proton-J's Messenger accepts, leaves the settling to us, and closes the connection at once."""
    bench.queue.policy.dead_letter, bench.queue.policy.max_deliveries = dead_letter, 1
    bench.end(state, failed=failed)
    bench.pump()
    bench.client.cut()
    while bench.site.broker.clients.connections:
        bench.site.loop.turn(may_wait=False)
    while not bench.site.is_synced:
        bench.site.syncer.complete()
        bench.site.loop.turn(may_wait=False)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert waiting_in(bench.queue) == (["m1"] if state == Delivery.MODIFIED and dead_letter is None else [])
    assert waiting_in(bench.site.broker.topology.queues["dead"].queue) == ([] if dead_letter is None else ["m1"])
