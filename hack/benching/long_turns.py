"""`hack/bench turns`: the longest turn of the loop that a queue with very many messages brings about, in milliseconds.

The parts of the work that the loop does in one turn each are run here by hand, on a broker in this process with a
simulated file system, and timed one by one, by the thread's processor time: other work does not count. The same clock
bounds the slices. The first turn, in which the work begins, is shown apart from the others.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benching.scenarios import TWO_PROPERTIES

from penstock_amqp.endpoint.events import Entry

LIMIT_MS = 5.0
"""No turn may take longer."""

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests"))


if TYPE_CHECKING:
    from support.stepped_broker import SteppedBroker


def timed_broker(settings: dict[str, object] | None = None, segment_bytes: int = 64 * 1024) -> SteppedBroker:
    """A broker whose turns and slices are cut by the thread's processor time; its memory is as in `penstock broker`."""
    from support.stepped_broker import SteppedBroker

    from penstock_broker.settings.process_memory import map_large_blocks

    map_large_blocks()

    class Timed(SteppedBroker):
        def _look(self) -> float:
            return time.thread_time()

    return Timed(settings, segment_bytes=segment_bytes)


def turns(messages: int) -> None:
    """Print, for each kind of work, how many turns it took and how long the first and the longest other one were."""
    from crash.load_client import encoded

    from penstock_api.management import Operation
    from penstock_api.message_operations import PeekRequest
    from penstock_broker.management.entity_states import queue_state
    from penstock_broker.management.logged_operations import Caller
    from penstock_broker.management.queue_messages import MessagesTask, PeekTask, everything
    from penstock_broker.messages.expiry import keep_time

    timed = timed_broker()
    broker = timed.broker
    queue = timed.make_queue("jobs")
    data = encoded(bytes(100), durable=False, properties=TWO_PROPERTIES)

    def fill(expires: Callable[[int], int]) -> None:
        numbers = broker.log.next_messages(messages)
        now = broker.clock.now_us
        queue.ready.extend([(numbers + each, data, now, expires(each), 0) for each in range(messages)])
        queue.depth_bytes += messages * len(data)
        gc.collect()
        gc.freeze()
        gc.disable()

    def passes() -> Iterator[None]:
        queue.expiry.next_due, queue.expiry.next_pass = broker.clock.now_us, 0
        while queue.expiry.next_due == broker.clock.now_us or queue.expiry.passing is not None or queue.expiry.expired:
            keep_time(broker, queue)
            yield None

    def steps(make: Callable[[], MessagesTask | PeekTask]) -> Iterator[None]:
        work = make()
        while work.step(0) is None:
            yield None

    def read() -> Iterator[None]:
        queue_state(broker.topology.queues["jobs"], {})
        yield None

    def browse() -> Iterator[None]:
        queue.backlog.copy(broker.log.next_number)
        yield None

    def some(entry: Entry) -> bool:
        return entry[0] % 10_000 == 0

    caller = Caller("admin", "here", "local")
    fill(lambda each: 0)
    _show("READ of the queue", read())
    _show("attach of a browser", browse())
    peek = PeekRequest(offset=messages // 2)
    _show("PEEK of ten in the middle", steps(lambda: PeekTask(broker, queue, peek, everything)))
    _show(
        "PURGE of one in 10,000",
        steps(lambda: MessagesTask(broker, caller, Operation.PURGE, queue, None, some, None, None)),
    )
    _show(
        "PURGE of all",
        steps(lambda: MessagesTask(broker, caller, Operation.PURGE, queue, None, lambda _: True, None, None)),
    )
    fill(lambda each: broker.clock.now_us + 3_600_000_000)
    _show("a pass that finds nothing expired", passes())

    def end() -> Iterator[None]:
        broker.topology.disposal.add(*queue.end())
        yield None
        while broker.topology.disposal:
            broker.topology.disposal.free_slice()
            yield None

    _show("the end of the queue", end())
    fill(lambda each: broker.clock.now_us - 1)
    _show("a pass that finds all expired", passes())
    numbers = broker.log.next_messages(messages)
    for each in range(messages):
        queue.hold_back((numbers + each, data, broker.clock.now_us + 3_600_000_000 + each, 0, 0))
    queue.depth_bytes += messages * len(data)
    _show(
        "PURGE of one in 10,000 delayed",
        steps(lambda: MessagesTask(broker, caller, Operation.PURGE, queue, None, some, None, None)),
    )
    _show("the end of the queue, all delayed", end())
    timed.close()


_OVER = object()


def _show(what: str, work: Iterator[None]) -> None:
    took: list[float] = []
    over = False
    while not over:
        begun = time.thread_time()
        over = next(work, _OVER) is _OVER
        took.append((time.thread_time() - begun) * 1000)
    longest = max(took[1:], default=0.0)
    late = "" if max(took) <= LIMIT_MS else "  <- too long"
    print(
        f"{what:36} {len(took):6,} turns; the first {took[0]:6.1f} ms, the longest other {longest:6.1f} ms{late}",
        flush=True,
    )
