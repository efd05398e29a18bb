"""The live result and the newest run, documents that can't be used, and an observer that comes and goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.lag_stage import BILLING, BROKER, Stage, document, entry, lag_stage

from penstock_operator.brokers.observer_client import (
    LagResultInvalid,
    LagResultUnavailable,
    NoNewResult,
    TaggedResult,
    fetch_latest,
)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with lag_stage(tmp_path) as made:
        yield made


async def test_no_result_yet_is_none(stage: Stage) -> None:
    stage.status = 404
    assert await fetch_latest(stage.reader.http, stage.access) is NoNewResult.NONE_YET


async def test_unchanged_is_an_answer_only_to_who_has_a_result(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    found = await fetch_latest(stage.reader.http, stage.access)
    assert isinstance(found, TaggedResult)
    assert await fetch_latest(stage.reader.http, stage.access, found.tag) is NoNewResult.UNCHANGED
    stage.status = 304
    with pytest.raises(LagResultUnavailable, match="the observer answered 304"):
        await fetch_latest(stage.reader.http, stage.access)


async def test_a_document_that_is_none_is_told_apart_from_silence(stage: Stage) -> None:
    stage.answer = {"nothing": "of ours"}
    with pytest.raises(LagResultInvalid, match="the result is not valid"):
        await fetch_latest(stage.reader.http, stage.access)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"token": "wrong"}, "the observer answered 401"),
        ({"server_name": "main-observer.other.svc"}, "can't be reached"),
        ({"port": 1}, "the observer can't be reached: nothing listens there$"),
    ],
)
async def test_an_observer_that_can_t_be_asked_says_why(stage: Stage, change: dict[str, Any], says: str) -> None:
    with pytest.raises(LagResultUnavailable, match=says):
        await fetch_latest(stage.reader.http, replace(stage.access, **change))


async def test_live_state_with_the_percentiles_of_the_run(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid, state="OK", messages=3, sojournP95Millis=900, consumers=5))
    repeated = [{"id": "m-1", "deliveryCount": 6, "ageSeconds": 50}]
    stage.polled(70, state="Poison", messages=21, consumers=2, redeliveryPercent=95, repeated=repeated)
    await stage.look()
    assert stage.lag() == {
        "messages": 21,
        "waiting": 21,
        "sojournP95Millis": 900,
        "redeliveryPercent": 95,
        "consumers": 2,
        "repeated": repeated,
        "state": "Poison",
        "message": "It is so.",
        "source": "Live",
        "observedTime": "2026-03-01T12:01:10Z",
        "runName": "main-lag-1",
        "runTime": "2026-03-01T12:00:00Z",
        "brokersReporting": "1/1",
    }
    assert (stage.lagging(), stage.fresh()) == (("True", "Poison"), ("True", "Current"))
    shown = stage.reader.findings[BROKER].lag
    assert shown is not None
    assert shown["lastRunName"] == "main-lag-1", "the Broker's status is about runs"


async def test_a_state_is_shown_with_the_next_poll(stage: Stage) -> None:
    stage.answer = document()
    for seconds, state in ((0, "OK"), (10, "Unconsumed"), (20, "OK")):
        stage.polled(seconds, state=state)
        await stage.look()
        assert (stage.lag()["state"], stage.lag()["observedTime"][14:19]) == (state, f"00:{seconds:02}")


async def test_an_idle_subscription_costs_one_write_a_day(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid, state="Idle", messages=0))
    for seconds in range(0, 86_400, 600):
        stage.polled(seconds, state="Idle", messages=0, arrivalPerMinute=0)
        await stage.look()
    assert (stage.api.written, stage.fresh()) == (1, ("True", "Current"))


async def test_an_observer_without_a_live_result_is_asked_for_it_once_a_minute(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.look()
    await stage.rounds(11, timedelta(seconds=5))
    assert (stage.live_requests, len(stage.requests), stage.lag()["source"]) == (1, 12, "Run")
    stage.polled(60)
    await stage.look()
    assert (stage.live_requests, stage.lag()["source"]) == (2, "Live"), "the observer was updated"


async def test_a_clock_that_is_set_back_does_not_put_off_the_question(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.rounds(1, timedelta())
    await stage.rounds(1, timedelta(hours=-1))
    assert stage.live_requests == 2


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("live", "says"),
    [
        ({"nothing": "of ours"}, "the lag of Broker shop/main is not known (Live): the result is not valid: version"),
        (document(broker="other"), "the lag of Broker shop/main is not known (Live): its live lag is about another"),
    ],
    ids=["invalid", "of another Broker"],
)
async def test_a_live_result_that_cannot_be_used_is_loaded_once_a_minute_and_logged_once(
    stage: Stage, caplog: pytest.LogCaptureFixture, live: Any, says: str
) -> None:
    stage.answer = document(entry(stage.uid))
    stage.live = live
    for _ in range(5):
        await stage.look()
        await stage.rounds(5, timedelta(seconds=10))
        stage.now += timedelta(seconds=10)
    assert (stage.live_requests, len(lines(caplog)), stage.lag()["source"]) == (5, 1, "Run")
    assert lines(caplog)[0].startswith(says.removesuffix(": version"))
    stage.polled(600, messages=40)
    await stage.look()
    assert stage.lag()["source"] == "Live"


@pytest.mark.parametrize("answer", [{"nothing": "of ours"}, document(broker="other")])
async def test_a_run_s_result_that_cannot_be_used_is_loaded_once_and_logged_once(
    stage: Stage, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    stage.answer = answer
    await stage.rounds(10, timedelta(seconds=10))
    assert (len(stage.requests), stage.bodies, len(lines(caplog))) == (10, 1, 1)
    said = next(it for it in stage.api.objects[BILLING]["status"]["conditions"] if it["type"] == "LagFresh")
    assert "result is" in said["message"], "it is still known what is wrong with it"
    stage.answer = document(entry(stage.uid))
    await stage.look()
    assert (stage.bodies, stage.fresh()) == (2, ("True", "Current"))


async def test_a_live_result_that_is_refused_does_not_keep_from_reading_the_run_s(stage: Stage) -> None:
    stage.answer, stage.live = document(entry(stage.uid)), 503
    await stage.rounds(12, timedelta(seconds=10))
    assert (stage.live_requests, len(stage.requests)) == (12, 12)
    assert (stage.lag()["source"], stage.fresh()) == ("Run", ("True", "Current"))


async def test_an_observer_that_is_gone_is_tried_once_a_round_and_unknown_after_ninety_seconds(stage: Stage) -> None:
    stage.answer = document()
    for seconds in (0, 10):
        stage.polled(seconds)
        await stage.look()
    stage.reader.findings[BROKER].observer = replace(stage.access, port=1)
    await stage.rounds(8, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.fresh(), len(stage.requests)) == ("OK", ("True", "Current"), 2)
    await stage.rounds(1, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.fresh()) == ("Unknown", ("False", "ObserverUnreachable"))
    assert (stage.lag()["observedTime"], stage.api.written) == ("2026-03-01T12:00:10Z", 2)
    stage.restart()
    await stage.rounds(30, timedelta(seconds=10))
    assert stage.api.written == 2, "it is said once"
    stage.reader.findings[BROKER].observer = stage.access
    stage.polled(600)
    await stage.look()
    assert (stage.lag()["state"], stage.fresh()) == ("OK", ("True", "Current"))


async def test_after_the_clock_was_set_back_an_observer_that_is_gone_is_unknown_after_ninety_seconds(
    stage: Stage,
) -> None:
    """Not after an hour and ninety seconds; and an operator that is started then knows no better."""
    stage.answer = document()
    for seconds in (0, 10):
        stage.polled(seconds)
        await stage.look()
    stage.reader.findings[BROKER].observer = replace(stage.access, port=1)
    stage.now -= timedelta(hours=1)
    await stage.rounds(9, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.fresh()) == ("OK", ("True", "Current"))
    await stage.rounds(1, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.fresh()) == ("Unknown", ("False", "ObserverUnreachable"))
    stage.restart()
    await stage.rounds(30, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.fresh()) == ("Unknown", ("False", "ObserverUnreachable"))


async def test_an_observer_that_is_restarted_costs_no_write(stage: Stage) -> None:
    """It can't judge for three polls."""
    stage.answer = document()
    for seconds, state in ((0, "OK"), (10, "OK"), (40, "Unknown"), (50, "Unknown"), (60, "OK")):
        stage.polled(seconds, state=state)
        await stage.look()
        if seconds == 10:
            stage.live = 503
            await stage.rounds(2, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.api.written) == ("OK", 1)


async def test_a_broker_that_does_not_answer_its_observer_is_unknown_at_once(stage: Stage) -> None:
    stage.answer = document()
    stage.polled(0)
    await stage.look()
    stage.live["reportingBrokers"] = 0
    stage.live["subscriptions"][0] |= {"state": "Unknown", "message": "the broker does not answer"}
    await stage.rounds(1, timedelta(seconds=10))
    assert (stage.lag()["state"], stage.lag()["message"]) == ("Unknown", "the broker does not answer")
    assert (stage.lagging(), stage.fresh()) == (("Unknown", "Unknown"), ("Unknown", "Unknown"))
    stage.polled(20)
    await stage.look()
    assert (stage.lag()["state"], stage.fresh()) == ("OK", ("True", "Current"))
