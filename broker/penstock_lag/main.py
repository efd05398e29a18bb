"""The lag job as a command: one analysis of one Broker or of many, and the results delivered.

Source: docs/reference/lag-job.md; docs/decisions/062-exact-lag.md.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Sequence
from typing import Final

from penstock_api.failure import Failure
from penstock_lag.analysis import Failed, Sessions, analyse
from penstock_lag.arguments import parse
from penstock_lag.deadline import set_deadline
from penstock_lag.delivery import Delivery
from penstock_lag.rollups.backfill import backfill, hand_out
from penstock_lag.session import local_session
from penstock_lag.settings import LagJobSettings
from penstock_lag.targets import targets_of

__all__ = ["main", "run", "run_command"]

COLLECTED_AFTER: Final = 1_000_000
"""Objects. The rows of 10,000 subscriptions are about as many, and all of them are in use: at Python's 700, the
search for cycles looks at them again and again, a sixth of the time in Python. Cycles are still found, later.
"""
OTHERS: Final = "The others are done. The next run tries all of them again."
log = logging.getLogger(__name__)


def run_command(arguments: Sequence[str]) -> int:
    """Run with command-line arguments. Returns the exit code, or raises Failure."""
    gc.freeze()
    gc.set_threshold(COLLECTED_AFTER)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    set_deadline()
    return run(parse(arguments))


def main(arguments: Sequence[str]) -> int:
    """The same as a whole process: a failure goes to the standard error. Returns the exit code."""
    try:
        return run_command(arguments)
    except Failure as failure:
        sys.stderr.write(f"penstock lag: {failure}\n")
        return failure.exit_code


def run(settings: LagJobSettings, sessions: Sessions = local_session) -> int:
    """One run. Returns 0, or raises Failure: Spark failed, or the result of a Broker could not be delivered. The others
    are delivered then.
    """
    targets = targets_of(settings)
    if settings.from_time is not None:
        hand_out(settings, backfill(settings, targets[0], sessions))
        return 0
    with Delivery(settings) as delivery:
        failed = analyse(settings, targets, sessions, delivery.deliver)
        failed += delivery.refused()
    if settings.brokers_file is not None:
        log.info("%d of %d Brokers are done", len(targets) - len({target for target, _ in failed}), len(targets))
    if failed:
        raise failed[0][1] if settings.brokers_file is None else _of_many(failed, len(targets))
    return 0


def _of_many(failed: Sequence[Failed], targets: int) -> Failure:
    brokers = {target for target, _ in failed}
    told = sorted(f"{target.name}: {failure.cause}" for target, failure in failed)
    return Failure("\n".join([f"{len(brokers)} of {targets} Brokers are not done:", *told]), OTHERS)
