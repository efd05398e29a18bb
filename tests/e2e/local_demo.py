"""The demo on this machine: `penstock up examples/local`, the story of e2e.story, and the lag computed by Spark.

Asserts what it tells; a StoryError names what is off.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from e2e import jms_tool
from e2e.jms_tool import Board
from e2e.local_site import LocalSite
from e2e.page_visit import PageVisit, invite, stay
from e2e.story import BILLING, TOPIC, Backlog, Disruption, StoryError, grow_backlog, share_through_disruptions
from support.waiting import found

from penstock_api import observer_api
from penstock_api.lag_result import LagResult, LagState
from penstock_lag.table import as_table

__all__ = ["build_clients", "compare", "play"]

ROOT: Final = Path(__file__).resolve().parent.parent.parent
MANIFESTS: Final = ROOT / "examples" / "local"
LIVE_SECONDS: Final = 300.0
END: Final = {
    BILLING: (LagState.OK, False),
    "fraud": (LagState.UNCONSUMED, True),
    "shipping-eu": (LagState.UNCONSUMED, True),
}
"""State of each subscription at the end, and whether messages wait in it. Unconsumed takes a minute without a consumer;
it began with the demo, so that little of it is left to wait for.
"""


def build_clients(log: Path) -> None:
    """Compile the Java clients by Maven, quietly; the log has what Maven says."""

    def run(command: Sequence[str], folder: Path) -> None:
        with log.open("ab") as out:
            if subprocess.run(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT).returncode != 0:
                why = jms_tool.why_maven_failed(log.read_text(errors="replace"))
                raise StoryError(f"{why}\n{' '.join(command)} failed; its whole output is in {log}")

    jms_tool.build(run)


def play(work: Path, messages: int, say: Callable[[str], None], *, stays: bool = False) -> None:
    """The whole demo in a folder of its own; with `stays` it does not end before Ctrl-C.

    Raises:
        StoryError: something is not as it has to be.
        TimeoutError: something that has to happen did not.
    """
    board = Board()
    with LocalSite(MANIFESTS, work / "penstock") as site:
        site.wait_until_serving()
        say(f"penstock up {MANIFESTS.relative_to(ROOT)}: the broker serves amqp://{site.state()['amqp']}")
        visit = site.page()
        invite(visit, say)
        kill = Disruption(0.5, "kill -9 of the broker", site.kill)
        share_through_disruptions(site, board, messages, [kill], work, say)
        backlog = Backlog(plain=messages // 8, of_region=messages // 20, large=messages // 40, settled=messages // 16)
        expected = grow_backlog(site, board, backlog, work, say)
        segments = site.wait_for_segment(after_ms=int(time.time() * 1000))
        say(f"the lag job (Spark) reads {segments} ledger segments")
        result = site.analyse("demo")
        say(as_table(result))
        compare(result, expected)
        say("Spark's lag equals the clients' own count for each of the three subscriptions")
        _show_trouble(site, work, say, visit if stays else None)


def _show_trouble(site: LocalSite, work: Path, say: Callable[[str], None], visit: PageVisit | None) -> None:
    """The healthy subscription beside those in trouble, live; with `visit` until Ctrl-C."""
    log = work / "consumer-four.log"
    with jms_tool.consume(Board(), "four", site.access(failover=True), TOPIC, BILLING, log) as consumer:
        consumer.wait_ready()
        say(f"a consumer of {BILLING!r} is back; nobody has ever consumed from the other two")
        live = found(lambda: _as_at_the_end(site), f"the live states {END}", LIVE_SECONDS, every=0.5)
        say("live, as the observer judges each snapshot:")
        say("\n".join(as_table(live).splitlines()[:-1]))  # the last line tells of ledger segments
        if visit is not None:
            stay(visit, say)


def _as_at_the_end(site: LocalSite) -> LagResult | None:
    """The live states once they are those of `END`."""
    live = LagResult.model_validate(site.get(observer_api.LIVE_LAG))
    return live if {each.owner_name: (each.state, bool(each.messages)) for each in live.subscriptions} == END else None


def compare(result: LagResult, expected: dict[str, int]) -> None:
    """The lag job's figures against the clients' own.

    Raises:
        StoryError: they differ.
    """
    told = {entry.owner_name: entry.messages for entry in result.subscriptions if entry.owner_name is not None}
    if told != expected:
        raise StoryError(f"the lag job says {told}; the clients counted {expected}")
