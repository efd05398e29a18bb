"""A turn's visits of queues: each that may have something to send, in turn, until nothing more can be sent or the time
is over.

Written for speed: `serve` runs for every batch. Source: docs/decisions/023-bounded-turns.md and
docs/decisions/093-lines-for-output.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock_broker.messages import dispatch, pacing
from penstock_broker.messages.dispatch import TURN_BYTES, Visit
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_core.intake_pace import UNWANTED_US

__all__ = ["DISPATCH_SECONDS", "QueueVisits"]

logger = logging.getLogger(__name__)

DISPATCH_SECONDS: Final = 0.001
"""What queues get of a turn at least. Without it, reading could make queues ready faster than they are served."""
QUEUE_AGAIN_MS: Final = 1_000
"""When a queue is looked at again that could not be served."""
SOON_TURNS: Final = 4
"""Consumers that have credit again after so many turns would be faster if turns were shorter."""
_DONE: Final = Visit.DONE
"""An attribute of an enum's class takes long to find."""
_OUTPUT_FULL: Final = Visit.OUTPUT_FULL


class QueueVisits:
    """The visits of one broker's queues. `paces`: a queue is behind, or producers wait for one that was.

    `short_until`: turns that begin before it are short, in seconds of the clock that bounds them. Consumers of a queue
    had no credit left, and the next message had waited for long. Either they had got a whole visit's messages in this
    turn, or some in this turn and some a few turns ago, so that long turns are what they wait for. The loop keeps turns
    short for those who send little, too.
    """

    __slots__ = ("_broker", "_seconds", "paces", "short_until")

    def __init__(self, broker: Broker, seconds: Callable[[], float]) -> None:
        """`seconds`: the clock that bounds a turn."""
        self._broker = broker
        self._seconds = seconds
        self.short_until = 0.0
        self.paces = False

    def keep_turns_short(self) -> None:
        """For some turns from now on."""
        self.short_until = self._seconds() + UNWANTED_US / 1e6

    def _took_lately(self, queue: Queue) -> bool:
        """Whether consumers that got messages in this turn did so a few turns ago as well; this turn is noted."""
        turn = self._broker.clock.turns
        last, queue.taken_turn = queue.taken_turn, turn
        return 0 < turn - last <= SOON_TURNS

    def serve(self, deadline: float, long_from: float) -> bool:
        """Visit the queues that may have something to send; True if some have more for consumers that would take it.

        `deadline`: when the turn's time is over, in seconds of the clock; they get `DISPATCH_SECONDS` in any case.
        `long_from`: the turn is long if that moment has gone by.
        """
        broker, clock = self._broker, self._seconds
        ready, lines = broker.work.ready, broker.work.output_lines
        now_us = broker.clock.now_us
        withholds = broker.log.failure_file.is_missing
        again: list[Queue] = []
        unfinished: dict[Queue, bool] = {}
        now = clock()
        is_long, delivered = now > long_from, 0
        deadline = max(deadline, now + DISPATCH_SECONDS)
        while ready:
            queue = ready.popleft()
            queue.is_scheduled = False
            caller, was_full = None, False
            if lines.called and (caller := lines.called.get(queue)) is not None:
                was_full = caller.turn_bytes > TURN_BYTES
            if is_long:
                delivered = queue.totals.delivered
            try:
                visit = _DONE if withholds and queue.is_logged else dispatch.serve(broker, queue)
                if (
                    visit is _OUTPUT_FULL
                    and queue in unfinished
                    and pacing.uses_up_credit(queue)
                    and pacing.is_kept_waiting(queue, now_us)
                ):
                    self.keep_turns_short()
                if visit is _DONE:
                    if queue.awaits_output_of is not None:
                        lines.leave(queue)
                    has_used_up = bool(unfinished) and unfinished.pop(queue, False)
                    if is_long and queue.totals.delivered != delivered:
                        has_used_up = self._took_lately(queue) or has_used_up
                    if has_used_up and pacing.is_kept_waiting(queue, now_us):
                        self.keep_turns_short()
                elif visit is _OUTPUT_FULL and len(queue.links.consumers) == 1:
                    unfinished[queue] = True
                    connection = queue.links.consumers[0].connection
                    lines.wait(queue, connection, first=was_full)
                    if not connection.is_dirty:
                        broker.work.touch(connection)  # its flush calls those who wait
                else:
                    unfinished[queue] = visit is not Visit.SEARCHING
                    if queue.awaits_output_of is not None:
                        lines.leave(queue)
                    if not queue.is_scheduled:
                        queue.is_scheduled = True
                        (ready if visit is Visit.FULL else again).append(queue)
            except Exception:
                logger.exception("Queue %r could not be served; it is tried again in a second", queue.name)
                broker.clock.after(QUEUE_AGAIN_MS, partial(broker.work.schedule, queue))
            if caller is not None:
                try:
                    called = lines.answered(queue, has_room=caller.turn_bytes <= TURN_BYTES)
                    if called is not None and not called.is_scheduled:
                        called.is_scheduled = True
                        ready.append(called)
                except Exception:
                    broker.fail_connection(caller)
            if ready and clock() > deadline:
                break
        if again:
            ready.extend(again)
        if unfinished or self.paces:
            self.paces = pacing.give_credit(
                broker, [queue for queue, could_be_sent in unfinished.items() if could_be_sent]
            )
        return bool(unfinished) or lines.are_moving
