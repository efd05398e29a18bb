"""The lag reader, from an observer's HTTPS server to the status of Subscriptions; and what a result document can't
change.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.lag_stage import BROKER, NOW, Stage, document, entry, lag_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with lag_stage(tmp_path) as made:
        yield made


async def test_the_figure_reaches_the_subscription_and_the_run_the_broker(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    assert stage.lag() == {
        "messages": 17,
        "waiting": 17,
        "state": "OK",
        "message": "It is so.",
        "source": "Run",
        "observedTime": "2026-03-01T12:00:00Z",
        "runName": "main-lag-1",
        "runTime": "2026-03-01T12:00:00Z",
        "brokersReporting": "1/1",
    }
    assert (stage.lagging(), stage.fresh()) == (("False", "WithinThresholds"), ("True", "Current"))
    assert stage.reader.findings[BROKER].lag == {
        "lastRunName": "main-lag-1",
        "windowEnd": "2026-03-01T12:00:00Z",
        "brokersReporting": "1/1",
    }


async def test_the_same_result_is_written_once(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    for _ in range(3):
        await stage.look()
    assert stage.api.written == 1


async def test_an_older_window_is_passed_over(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    stage.answer = document(
        entry(stage.uid, messages=99, observedTime="2026-03-01T11:50:00Z"), windowEnd="2026-03-01T11:50:00Z"
    )
    await stage.look()
    assert stage.lag()["messages"] == 17
    shown = stage.reader.findings[BROKER].lag
    assert shown is not None
    assert shown["windowEnd"] == "2026-03-01T12:00:00Z"


@pytest.mark.parametrize(
    "changes",
    [
        {"ownerUid": "another"},
        {"ownerName": "fraud"},
        {"ownerNamespace": "elsewhere"},
        {"queueName": "psub:durable:global:fraud"},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_an_entry_has_to_fit_its_subscription(stage: Stage, changes: dict[str, str]) -> None:
    stage.answer = document(entry(stage.uid, **changes))
    await stage.look()
    assert stage.lag() is None


@pytest.mark.parametrize(
    "answer",
    [
        document(broker="other"),
        document(namespace="other"),
        {"nothing": "of ours"},
        document({"queueName": "q"}),
        [],
    ],
)
async def test_another_document_changes_nothing(stage: Stage, answer: Any) -> None:
    stage.answer = answer
    await stage.look()
    assert (stage.lag(), stage.lagging(), stage.fresh()) == (None, ("", ""), ("Unknown", "Pending"))
    assert stage.reader.findings[BROKER].lag is None


@pytest.mark.parametrize("velocity", [2**53 + 1, -(2**53) - 1])
async def test_a_figure_that_no_status_can_have_makes_the_result_invalid(stage: Stage, velocity: int) -> None:
    stage.answer = document(entry(stage.uid, velocityPerMinute=velocity))
    await stage.look()
    assert stage.lag() is None


async def test_when_no_run_reports_any_more_it_is_unknown_and_the_last_figure_stays(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    stage.now = NOW + timedelta(minutes=15)
    await stage.look()
    await stage.look()
    assert (stage.lagging(), stage.fresh()) == (("Unknown", "LagReportStale"), ("False", "LagReportStale"))
    assert (stage.lag()["state"], stage.lag()["messages"]) == ("Unknown", 17)
    assert stage.lag()["observedTime"] == "2026-03-01T12:00:00Z"
    assert stage.api.written == 2


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_three_hours_of_503_do_not_leave_it_at_ok(stage: Stage, restarted: bool) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    stage.status = 503
    if restarted:
        stage.restart()
    await stage.rounds(14, timedelta(minutes=1))
    assert (stage.lag()["state"], stage.fresh(), stage.api.written) == ("OK", ("True", "Current"), 1)
    await stage.rounds(1, timedelta(minutes=1))
    await stage.rounds(33, timedelta(minutes=5))
    assert (stage.lagging(), stage.fresh()) == (("Unknown", "ObserverUnreachable"), ("False", "ObserverUnreachable"))
    assert (stage.lag()["state"], stage.lag()["messages"]) == ("Unknown", 17)
    assert "the observer answered 503" in stage.lag()["message"]
    assert stage.api.written == 2, "it is said once"
    stage.status = 200
    stage.answer = document(entry(stage.uid, observedTime="2026-03-01T15:00:00Z"), windowEnd="2026-03-01T15:00:00Z")
    await stage.look()
    assert (stage.lag()["state"], stage.lagging()) == ("OK", ("False", "WithinThresholds"))
    assert stage.fresh() == ("True", "Current")


async def test_single_failures_change_nothing(stage: Stage) -> None:
    """Every other request fails for an hour; each result is five minutes old at most."""
    for minute in range(0, 60, 5):
        moment = (NOW + timedelta(minutes=minute)).isoformat()
        stage.answer = document(entry(stage.uid, observedTime=moment), windowEnd=moment)
        for stage.status in (200, 503, 200, 503):
            stage.now = NOW + timedelta(minutes=minute)
            await stage.look()
            assert (stage.lag()["state"], stage.fresh()) == ("OK", ("True", "Current"))
    assert stage.api.written == 1, "the figures of the other results are the same"


async def test_a_restarted_operator_asks_before_it_judges(stage: Stage) -> None:
    """The result is old, and the first request fails: nothing is written until a minute of failures."""
    stage.answer = document(entry(stage.uid))
    await stage.look()
    stage.status, stage.now = 503, NOW + timedelta(hours=1)
    stage.restart()
    await stage.rounds(1, timedelta())
    await stage.rounds(11, timedelta(seconds=5))
    assert (stage.fresh(), stage.api.written) == (("True", "Current"), 1)
    await stage.rounds(1, timedelta(seconds=5))
    assert (stage.fresh(), stage.api.written) == (("False", "ObserverUnreachable"), 2)
    stage.restart()
    await stage.rounds(30, timedelta(seconds=5))
    assert stage.api.written == 2, "what is said already is not said again"


async def test_an_observer_that_was_never_there_is_named(stage: Stage) -> None:
    stage.status = 503
    await stage.rounds(1, timedelta())
    assert stage.api.written == 0
    await stage.rounds(2, timedelta(seconds=30))
    assert (stage.lag(), stage.lagging(), stage.fresh()) == (None, ("", ""), ("Unknown", "ObserverUnreachable"))


async def test_a_broker_that_is_gone_leaves_no_figures_until_it_is_there_again(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    gone = stage.reader.cache.get(BROKER)
    assert gone is not None
    stage.reader.cache.remove(BROKER)
    await stage.look()
    assert (stage.lag(), stage.lagging(), stage.fresh()) == (None, ("", ""), ("Unknown", "BrokerNotFound"))
    await stage.rounds(30, timedelta(seconds=10))
    assert stage.api.written == 2, "it is said once"
    about: Any = gone.manifest["metadata"]
    stage.reader.cache.put({**gone.manifest, "metadata": {**about, "uid": "another", "resourceVersion": "999"}})
    stage.now = NOW
    await stage.look()
    assert (stage.lag()["state"], stage.fresh()) == ("OK", ("True", "Current"))


async def test_before_the_first_list_a_broker_may_only_not_have_been_seen(stage: Stage) -> None:
    stage.reader.cache.remove(BROKER)
    stage.reader.cache.is_complete = False
    await stage.look()
    assert stage.api.written == 0


async def test_a_result_that_leaves_out_a_subscription_ends_its_ok(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    stage.now = NOW + timedelta(minutes=5)
    stage.answer = document(windowEnd="2026-03-01T12:05:00Z", missing=["main-0: it does not answer"])
    await stage.look()
    assert (stage.lag()["state"], stage.lag()["messages"]) == ("Unknown", 17)
    assert (stage.lagging(), stage.fresh()) == (("Unknown", "LagReportStale"), ("False", "LagReportStale"))


async def test_of_two_entries_with_one_owner_the_newer_one_counts(stage: Stage) -> None:
    """A pod that was scaled away still has a ledger."""
    gone = entry(stage.uid, messages=99, observedTime="2026-03-01T11:50:00Z", state="Unknown")
    for entries in ((entry(stage.uid), gone), (gone, entry(stage.uid))):
        stage.answer = document(*entries)
        stage.restart()
        await stage.look()
        assert (stage.lag()["messages"], stage.lag()["state"]) == (17, "OK")


async def test_a_broker_that_is_made_again_begins_anew(stage: Stage) -> None:
    """The result of the Broker that had the name before, with a later window, says nothing about this one."""
    stage.answer = document(entry(stage.uid), windowEnd="2026-03-01T12:30:00Z")
    await stage.look()
    broker = copy.deepcopy(stage.api.objects[("Broker", "shop", "main")])
    broker["metadata"] |= {"uid": "another", "resourceVersion": "999"}
    stage.reader.cache.put(broker)
    later = "2026-03-01T12:05:00Z"
    stage.answer = document(entry(stage.uid, messages=99, observedTime=later), windowEnd=later)
    await stage.look()
    assert stage.lag()["messages"] == 99


async def test_the_lag_at_a_broker_of_another_operator_is_left_to_that_one(stage: Stage) -> None:
    """It has no session to ask with, and what it does not know is no news. Lag that does not change is not written."""
    stage.polled(0)
    await stage.look()
    said, written = (stage.lag(), stage.fresh(), stage.lagging()), stage.api.written
    stage.restart()
    stage.reader.findings.clear()
    stage.reader.is_own = lambda broker: broker != BROKER
    await stage.rounds(40, timedelta(seconds=10))
    assert ((stage.lag(), stage.fresh(), stage.lagging()), stage.api.written) == (said, written)


async def test_a_broker_that_another_operator_takes_while_its_observer_is_asked_is_left_at_once(stage: Stage) -> None:
    answers = iter((True, False))
    stage.reader.is_own = lambda _: next(answers)
    stage.polled(0)
    await stage.look()
    assert stage.live_requests == 1
    assert stage.lag() is None


async def test_what_waits_to_be_written_is_dropped_when_another_operator_takes_the_broker(stage: Stage) -> None:
    stage.polled(0)
    await stage.reader.look(BROKER)
    stage.reader.is_own = lambda _: False
    await stage.look()
    assert stage.lag() is None
