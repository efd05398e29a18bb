"""kill -9 under load: nothing that was accepted is lost, nothing that had ended comes back.

The hour-long form is hack/soak/crash.
"""

import os
from pathlib import Path

import pytest
from crash.kills import Outcome, kill_often

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("PENSTOCK_SEED", "20"))
KILLS = 8
SECONDS = 12.0  # of each form; the first kills come later


def check(outcome: Outcome) -> None:
    print(outcome, f"{outcome.rate:.0f} messages/s")  # noqa: T201  # pytest shows it if the test fails
    assert outcome.is_clean, outcome
    assert outcome.kills >= KILLS
    assert outcome.repeated > 0, "no message came a second time: the kills hit nothing"
    assert outcome.churn["unsubscribe"] and outcome.churn["rebind"]
    assert not outcome.idle, "compaction and paging had nothing to do, so no kill can have met them"


@pytest.mark.parametrize("files", ["aio", "counted"])
def test_kill_9_loses_nothing_that_was_accepted(tmp_path: Path, files: str) -> None:
    outcome = kill_often(tmp_path, files, KILLS, SEED, seconds=SECONDS)
    check(outcome)
    if files == "counted":
        assert outcome.unsynced >= outcome.kills * 3 // 10, "too few kills with a block written and not synced"


def test_losing_every_unsynced_byte_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    outcome = kill_often(tmp_path, "lossy", KILLS, SEED, seconds=SECONDS)
    check(outcome)
    assert outcome.unsynced >= outcome.kills * 3 // 10, "too few kills with a block written and not synced"


def test_without_fdatasync_this_test_is_red(tmp_path: Path) -> None:
    """The same on a disk whose fdatasync returns and does nothing: messages are lacking, and this check sees it.

    The deep backlog lacks its messages always. The other subscriptions may have taken all of theirs before the kill.
    """
    outcome = kill_often(tmp_path, "forgetful", 1, SEED)
    assert not outcome.is_clean
    assert outcome.lacking["deep"] == outcome.accepted


@pytest.mark.parametrize("files", ["failing", "failing-points"])
def test_a_broker_whose_log_has_failed_is_not_waited_for(tmp_path: Path, files: str) -> None:
    """It lives on, and closes connections or refuses messages for ever: the load ends and says why."""
    with pytest.raises(RuntimeError, match=r"(?s)the broker (closed|refused).*the disk has failed"):
        kill_often(tmp_path, files, 1, SEED)
