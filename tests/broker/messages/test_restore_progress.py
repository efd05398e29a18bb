"""A start tells that it goes on while it fills one queue that has very many messages."""

from __future__ import annotations

import itertools
from pathlib import Path

from broker.log.log_steps import opened
from broker.log.simulated_files import SimulatedFiles

from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_api.management import QueueLimits
from penstock_broker.loop.start_progress import StartProgress
from penstock_broker.messages import restore
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.queue import Queue
from penstock_broker.topology.documents import QUEUE, QueueDocument
from penstock_broker.topology.store import Topology


def no_tail(queue: Queue) -> PagedTail:
    raise AssertionError("all messages are in memory")


def test_a_queue_that_takes_long_to_fill_is_progress_all_the_while(tmp_path: Path) -> None:
    """One look at the clock costs ten seconds; a minute without news is too long."""
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    document = QueueDocument(durable=True, persistence=None, limits=QueueLimits())
    for name, count in (("deep", 40_000), ("flat", 1)):
        incarnation = log.next_incarnation()
        log.topology(QUEUE, name, document.dump(), incarnation)
        route = log.route_set((incarnation,))
        for _ in range(count):
            log.put(route, encode_message(Message(body="x")), 1)
    log.close()
    log, recovered = opened(tmp_path, files)
    told: list[tuple[int, int, int]] = []
    progress, stuck = StartProgress(itertools.count(0, 10).__next__), list[bool]()

    def restored(done: int, total: int, messages: int) -> None:
        told.append((done, total, messages))
        progress.restoring(done, total, messages)
        stuck.append(progress.is_stuck)

    topology = Topology(log)
    restore.restore(topology, recovered, 0, restored, no_tail)
    assert [node.queue.totals.enqueued for node in topology.queues.values()] == [40_000, 1]
    assert list(dict.fromkeys(told)) == [
        (0, 2, 0),
        (0, 2, 16_384),
        (0, 2, 32_768),
        (1, 2, 40_000),
        (2, 2, 40_001),
    ]
    assert True not in stuck
    log.close()


def test_more_messages_of_the_same_queue_are_progress() -> None:
    now = [0.0]
    progress = StartProgress(lambda: now[0])
    progress.restoring(0, 1, 1)
    now[0] = 50.0
    progress.restoring(0, 1, 16_384)
    now[0] = 100.0
    progress.restoring(0, 1, 16_384)
    assert not progress.is_stuck
    now[0] = 111.0
    assert progress.is_stuck
    assert progress.sentence() == (
        "recovering, the log is read; 0 of 1 queues are restored; nothing has advanced for 61 s"
    )
