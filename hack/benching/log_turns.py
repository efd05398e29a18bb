"""`hack/bench turns`, fourth part: the longest turn that very many segments of the log bring about, in milliseconds.

A look at them is timed by the thread's processor time, the log on real files by wall time: there the disk is what a
turn would wait for.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benching.long_turns import LIMIT_MS
from benching.wide_turns import Turns


def log_turns() -> None:
    """Print how long the longest turn of each kind was."""
    from penstock_broker.log.segments.segment import Segment
    from penstock_broker.log.segments.segment_usage import SegmentUsage

    usage = SegmentUsage()
    for number in range(1, 20_001):
        usage.add_segment(Segment(number, Path("x"), 0, 1, 1, number * 10, live=1))
    turns = Turns("a look for segments to recycle among 20,000")
    for _ in range(10):
        turns.time(lambda: usage.recyclable(20_001, 1))
    turns.show()
    _real_log()


def _real_log() -> None:
    from penstock_broker.log import Log

    build = Path(__file__).resolve().parent.parent.parent / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as folder:
        log, _ = Log.open(Path(folder))
        incarnation = log.next_incarnation()
        log.topology("queue", "a", b"x", incarnation)
        route = log.route_set((incarnation,))
        payload = bytes(1000)
        took: list[float] = []
        for _ in range(3000):
            begun = time.perf_counter()
            for _ in range(100):
                log.put(route, payload, 0)
            log.write()
            log.request_sync()
            log.collect()
            if log.wants_maintenance:
                log.maintain(1.0)
            took.append((time.perf_counter() - begun) * 1000)
        took.sort()
        late = "" if took[-1] <= LIMIT_MS else "  <- too long"
        print(
            f"{'300 MB into the log, by wall time':58} {len(took):6,} turns, the longest {took[-1]:7.1f} ms; "
            f"the next {', '.join(f'{each:.1f}' for each in took[-6:-1])}{late}"
        )
        log.close()
