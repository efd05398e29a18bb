"""Compaction keeps up with a load, since it gets more of each turn the further the log is above its bound.

Time is counted: from one look at the timer to the next twenty microseconds pass, so that a slice of compaction
takes as long on each machine.
"""

from pathlib import Path
from random import Random

import pytest
from broker.log.simulated_files import SimulatedFiles
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log import Log, LogOptions, SyncChoice
from penstock_broker.log.compaction.turn_share import LEAST_MS, MOST_MS, TURN_MS, share_ms
from penstock_broker.log.disk.files import Buffer

SEGMENT = 256 * 1024
BODY, RECORD = 1000, 32
A_FEW = 12
LOOKS_PER_MS = 50
SPENT_MS = 2.5
"""What a turn under load has taken when idle work begins."""


class Timer:
    """Seconds; twenty microseconds pass at each look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.looks / (1000 * LOOKS_PER_MS)


class CountedFiles(SimulatedFiles):
    """Counts the bytes of blocks that are written, zeros of spare segments not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        if any(data[:64]):
            self.written += len(data)
        return super().pwrite(handle, data, offset)


class Flow:
    """Each turn publishes `messages`, of which one in `one_in` is never taken."""

    def __init__(self, folder: Path, messages: int, one_in: int, spent_ms: float) -> None:
        """`spent_ms`: see `SPENT_MS`."""
        self.spent_ms = spent_ms
        self.files, self.timer, self.chance = CountedFiles(), Timer(), Random(1)
        options = LogOptions(segment_bytes=SEGMENT, sync=SyncChoice.INLINE)
        self.log, _ = Log.open(folder, files=self.files, options=options, clock=lambda: 0, timer=self.timer)
        self.queue = self.log.next_incarnation()
        self.log.topology("queue", "q", b"", self.queue)
        self.route = self.log.route_set((self.queue,))
        self.messages, self.one_in = messages, one_in
        self.left = self.published = self.longest = 0
        self.waiting: list[int] = []

    def turn(self) -> None:
        log, due = self.log, self.waiting
        self.waiting = [log.put(self.route, bytes(BODY), 0) for _ in range(self.messages)]
        self.published += self.messages
        taken = [each for each in due if self.chance.randrange(self.one_in)]
        self.left += len(due) - len(taken)
        if taken:
            log.ack_many(self.queue, taken)
        log.topology("exchange", "x", bytes(20))  # some topology, so that checkpoints are due
        log.write()
        log.sync()
        self.idle(self.spent_ms)

    def idle(self, spent_ms: float) -> None:
        """What the loop does at the end of a turn."""
        if self.log.wants_maintenance:
            before = self.timer.looks
            self.log.maintain(self.log.maintenance_ms(spent_ms))
            self.longest = max(self.longest, self.timer.looks - before)

    @property
    def excess(self) -> float:
        """Segments in use beyond twice what is alive."""
        return self.log.segments - 2 * self.left * (BODY + RECORD) / SEGMENT


@pytest.mark.parametrize(
    ("one_in", "spent_ms", "most_ms"),
    [
        pytest.param(100, SPENT_MS, TURN_MS - SPENT_MS, id="one in 100"),
        pytest.param(20, SPENT_MS, TURN_MS - SPENT_MS, id="one in 20"),
        pytest.param(2, SPENT_MS, TURN_MS - SPENT_MS, id="every other one"),
        pytest.param(20, 6.0, 3.0, id="one in 20, on a machine with too much to do"),
    ],
)
def test_the_bound_holds_under_a_load_that_a_fixed_share_could_not_keep_up_with(
    tmp_path: Path, one_in: int, spent_ms: float, most_ms: float
) -> None:
    """Seventy messages a turn. With a millisecond of each, 33 segments too many are in use after 600 turns where one in
    twenty stays, and the more the longer it goes on.
    """
    flow, worst = Flow(tmp_path, 70, one_in, spent_ms), 0.0
    for _ in range(600):
        flow.turn()
        worst = max(worst, flow.excess)
    assert worst <= A_FEW
    assert flow.longest <= LOOKS_PER_MS * most_ms + 2
    assert flow.files.written <= 7 / 3 * flow.published * (BODY + RECORD) + 4 * SEGMENT
    flow.log.close()


@given(
    segments=st.integers(0, 20_000),
    more=st.integers(0, 100),
    alive=st.floats(0, 10_000),
    spent_ms=st.floats(0, 20),
    is_full=st.booleans(),
)
def test_the_share_grows_with_what_is_in_use_and_never_makes_a_turn_too_long(
    segments: int, more: int, alive: float, spent_ms: float, is_full: bool
) -> None:
    share = share_ms(segments, alive, spent_ms, is_full=is_full)
    assert share >= LEAST_MS
    if spent_ms < TURN_MS:
        assert share <= MOST_MS
        assert share == LEAST_MS or spent_ms + share <= TURN_MS
    else:
        assert share <= spent_ms / 2
    assert share_ms(segments + more, alive, spent_ms, is_full=is_full) >= share
    assert share_ms(segments, alive + more, spent_ms, is_full=is_full) <= share


@pytest.mark.parametrize(
    ("segments", "alive", "spent_ms", "is_full", "share"),
    [
        pytest.param(24, 10.0, 0.5, False, 1.0, id="four beside twice what is alive are normal"),
        pytest.param(28, 10.0, 0.5, False, 2.0, id="four more are worth a millisecond"),
        pytest.param(32, 10.0, 0.5, False, 3.0, id="at the bound it is all"),
        pytest.param(10_000, 10.0, 0.5, False, 3.0, id="more than all there is not"),
        pytest.param(32, 10.0, 2.5, False, 2.5, id="in a long turn what is left of it"),
        pytest.param(32, 10.0, 4.5, False, 1.0, id="and never nothing"),
        pytest.param(32, 10.0, 5.0, False, 2.5, id="of a turn that is too long already half as much again"),
        pytest.param(60, 10.0, 20.0, False, 10.0, id="also if that is more than three"),
        pytest.param(28, 10.0, 20.0, False, 8.0, id="the same part of the time as of short turns"),
        pytest.param(24, 10.0, 20.0, False, 4.0, id="also while it keeps up"),
        pytest.param(10, 10.0, 20.0, False, 1.0, id="but not where little is in use"),
        pytest.param(10, 10.0, 0.5, True, 3.0, id="publishers wait on a full disk"),
        pytest.param(10, 10.0, 8.0, True, 4.0, id="also in long turns"),
    ],
)
def test_the_share_of_a_turn(segments: int, alive: float, spent_ms: float, is_full: bool, share: float) -> None:
    assert share_ms(segments, alive, spent_ms, is_full=is_full) == share
