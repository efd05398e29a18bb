"""Any history, then one segment's file is taken away: the start names it, and counts each message that is gone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from broker.log.log_steps import SMALL
from broker.log.simulated_files import SimulatedFiles
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_broker.log import Log, Recovered, inspect_log
from penstock_broker.log.disk.spare_segments import number_of

EXAMPLES = int(os.environ.get("PENSTOCK_LOG_EXAMPLES", "25"))  # more for a long search


class History:
    """Random traffic on three queues, with compaction and recycling in between; everything is synced at its end."""

    def __init__(self, folder: Path, seed: int, kept: float, messages: int) -> None:
        self.folder, self.files, self.clock = folder, SimulatedFiles(), 0
        self.chance = Random(seed)
        self.log, _ = self.opened()
        self.live: dict[int, set[int]] = {self.log.next_incarnation(): set() for _ in range(3)}
        for number, queue in enumerate(self.live):
            self.log.topology("queue", f"q{number}", b"", queue)
        for _ in range(messages):
            self.step(kept)
        self.log.write()
        self.log.sync()

    def opened(self) -> tuple[Log, Recovered]:
        return Log.open(self.folder, files=self.files, options=SMALL, clock=self.tick)

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def step(self, kept: float) -> None:
        chance = self.chance
        queues = tuple(queue for queue in self.live if chance.random() < 0.6) or (min(self.live),)
        message = self.log.put(self.log.route_set(queues), bytes(chance.choice((30, 400, 2500))), 0)
        for queue in queues:
            self.live[queue].add(message)
        if chance.random() < 0.1:
            queue = chance.choice(list(self.live))
            gone = sorted(each for each in self.live[queue] if chance.random() > kept)
            self.log.ack_many(queue, gone)
            self.live[queue].difference_update(gone)
        if chance.random() < 0.5:
            self.log.write()
            self.log.request_sync()
            self.log.collect()
            for _ in range(chance.randrange(8)):
                self.log.maintain(1000)
                self.log.request_sync()
                self.log.collect()

    def segments(self) -> list[Path]:
        return sorted(path for path in self.files.paths() if path.name.startswith("segment-"))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 1 << 32),
    kept=st.sampled_from([0.02, 0.2, 0.9]),
    messages=st.sampled_from([40, 150]),
    closed=st.booleans(),
)
def test_no_message_is_gone_with_a_segment_without_being_counted(
    seed: int, kept: float, messages: int, closed: bool
) -> None:
    folder = Path(mkdtemp())
    try:
        history = History(folder, seed, kept, messages)
        if closed:
            history.log.close()
        else:
            history.log.crash()
        *older, _ = history.segments()
        if not older:
            return
        path = history.chance.choice(older)
        history.files.unlink(path)
        inspection = inspect_log(history.files, folder)
        log, recovered = history.opened()
        damage = {each.segment: each.reason for each in recovered.damage}
        if number_of(path.name) not in damage:  # its end was written, and only its name was left
            assert (damage, recovered.lost) == ({}, {})
            assert all(
                live <= {each.number for each in recovered.messages[queue]} for queue, live in history.live.items()
            )
            log.close()
            return
        assert {flaw.segment for flaw in inspection.flaws} == damage.keys(), "`penstock log verify` sees the same"
        reason = damage[number_of(path.name)]
        for queue, live in history.live.items():
            found = {each.number for each in recovered.messages.get(queue, [])}
            gone, lost = len(live - found), recovered.lost.get(queue, 0)
            if any(words in reason for words in ("not known", "no checkpoint", "not all were counted")):
                continue
            if "copies of older messages" in reason:
                assert gone <= lost, (queue, reason)
            else:
                assert gone == lost, (queue, reason)
        log.close()
        log, again = history.opened()
        assert (again.damage, again.lost) == ((), {}), "it is told of once"
        log.close()
    finally:
        shutil.rmtree(folder)
