"""The whole job over real observers: from segments to the stored result, the same bytes again, ways to fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lag.observer_server import fill, serving, token_file
from observer.samples import START_MS, a_poll, a_subscription
from pyspark.sql import SparkSession

from penstock_api.failure import Failure, Misuse
from penstock_api.lag_result import LagResult, LagState
from penstock_api.management import Owner
from penstock_api.state_documents import DurationHistogram
from penstock_lag import analysis
from penstock_lag.arguments import parse
from penstock_lag.main import main, run
from penstock_lag.session import Needs
from penstock_lag.settings import LagJobSettings, read_token
from penstock_observer.rows import Poll

Session = Callable[[Needs], AbstractContextManager[SparkSession]]

OWNER = Owner(cluster_id="c", kind="Subscription", namespace="shop", name="orders", uid="u-1")


def growing(count: int = 7, **broker: Any) -> list[Poll]:
    """A poll every ten seconds: `orders` gets 20 messages and loses 5 between two of them, `bills` is idle."""
    polls: list[Poll] = []
    for step in range(count):
        sojourn = DurationHistogram(indexes=(8, 80), counts=(4 * step + 1, step), sum_ms=9)
        orders = a_subscription(
            "orders",
            owner=OWNER,
            depth=100 + 15 * step,
            ready=90 + 15 * step,
            in_flight=10,
            oldest_available_ms=START_MS - 5_000,
            oldest_hold_ms=START_MS + 10_000 * step - 1_500,
            consumers=2,
            credit=0 if step % 2 else 5,
            enqueued=1_000 + 20 * step,
            delivered=910 + 5 * step,
            acked=900 + 5 * step,
            sojourn=sojourn,
        )
        polls.append(a_poll(START_MS + 10_000 * step, a_subscription("bills"), orders, **broker))
    return polls


@pytest.fixture
def session(spark: SparkSession) -> Session:
    """The shared session, which a run must not stop."""
    return lambda _: nullcontext(spark)


def settings(folder: Path, *urls: str, **changes: Any) -> LagJobSettings:
    """A run over observers."""
    values: dict[str, Any] = {
        "observers": urls,
        "broker": "main",
        "namespace": "shop",
        "run_name": "run-1",
        "patience_seconds": 0,
        "token_file": token_file(folder),
        "output": folder / "result.json",
    }
    return LagJobSettings(**(values | changes))


def result_in(folder: Path) -> LagResult:
    """What a run wrote."""
    return LagResult.model_validate_json((folder / "result.json").read_bytes())


@pytest.mark.spark
def test_from_segments_to_a_stored_result(session: Session, tmp_path: Path) -> None:
    """Every figure typed in: 60 s of window, 15 more messages every ten seconds."""
    with serving(tmp_path, growing()) as observer:
        assert run(settings(tmp_path, observer.url), session) == 0
        assert len(observer.api.ledger.segments) == 4
        assert observer.api.results.get("run-1") == (tmp_path / "result.json").read_bytes()
    document = json.loads((tmp_path / "result.json").read_bytes())
    bills, orders = document.pop("subscriptions")
    assert document == {
        "version": 1,
        "broker": "main",
        "namespace": "shop",
        "runName": "run-1",
        "windowStart": "2023-11-14T22:16:00Z",
        "windowEnd": "2023-11-14T22:21:00Z",
        "expectedBrokers": 1,
        "reportingBrokers": 1,
        "missing": [],
        "segments": [
            "0/0000000003-000000000001-000000000006.parquet",
            "0/0000000003-000000000007-000000000012.parquet",
            "0/0000000003-000000000013-000000000018.parquet",
            "0/0000000003-000000000019-000000000021.parquet",
        ],
    }
    assert (bills["queueName"], bills["state"], bills["messages"]) == ("psub:durable:global:bills", "Idle", 0)
    assert orders == {
        "queueName": "psub:durable:global:orders",
        "ownerNamespace": "shop",
        "ownerName": "orders",
        "ownerUid": "u-1",
        "observedTime": "2023-11-14T22:21:00Z",
        "state": "Lagging",
        "message": "the consumers fall behind: 120 messages a minute arrive and 30 are accepted; "
        "190 messages wait, the oldest for 65 s",
        "messages": 190,
        "ready": 180,
        "inFlight": 10,
        "scheduled": 0,
        "oldestAgeSeconds": 65,
        "longestHoldSeconds": 1,
        "arrivalPerMinute": 120,
        "settledPerMinute": 30,
        "velocityPerMinute": 90,
        "sojournP50Millis": 2,
        "sojournP95Millis": 1069,
        "sojournP99Millis": 1069,
        "redeliveryPercent": 0,
        "consumers": 2,
        # 30 accepted by two consumers in a minute; (120 + 190 / 10) / (15 * 0.8) = 11.6
        "capacityPerMinute": 15,
        "suggestedConsumers": 12,
        "expired": 0,
        "deadLettered": 0,
        "dropped": 0,
        "moved": 0,
        "purged": 0,
        "lostAtRestart": 0,
        "stranded": 0,
        "lost": 0,
    }


@pytest.mark.spark
def test_a_queue_of_a_resource_has_the_lag_of_a_subscription(session: Session, tmp_path: Path) -> None:
    """It is in the ledger under its own name, without an exchange; figures as of `orders` above."""
    queue = {"queue_name": "invoices", "subscription_name": "invoices", "exchange": "", "binding_keys": ()}
    owner = OWNER.model_copy(update={"kind": "Queue", "name": "invoices", "uid": "u-2"})
    polls = [
        replace(
            poll,
            subscriptions=tuple(
                each.model_copy(update={**queue, "owner": owner} if each.owner else {}) for each in poll.subscriptions
            ),
        )
        for poll in growing()
    ]
    with serving(tmp_path, polls) as observer:
        assert run(settings(tmp_path, observer.url), session) == 0
    told = json.loads((tmp_path / "result.json").read_bytes())["subscriptions"]
    (invoices,) = [each for each in told if each["queueName"] == "invoices"]
    assert len(told) == 2
    assert [invoices[key] for key in ("ownerNamespace", "ownerName", "ownerUid")] == ["shop", "invoices", "u-2"]
    names = ("state", "messages", "oldestAgeSeconds", "arrivalPerMinute", "settledPerMinute", "sojournP95Millis")
    assert [invoices[name] for name in names] == ["Lagging", 190, 65, 120, 30, 1069]


@pytest.mark.spark
def test_the_same_segments_and_window_give_the_same_bytes(session: Session, tmp_path: Path) -> None:
    """Also after the ledger grew, if the end of the window is given, and stored twice it is unchanged."""
    end = datetime(2023, 11, 14, 22, 21, tzinfo=UTC)
    with serving(tmp_path, growing(7)) as observer:
        run(settings(tmp_path, observer.url), session)
        first = (tmp_path / "result.json").read_bytes()
        fill(observer.api.ledger, growing(12)[7:])
        run(settings(tmp_path, observer.url, as_of=end), session)
        assert (tmp_path / "result.json").read_bytes() == first
        run(settings(tmp_path, observer.url, run_name="run-2"), session)
    assert result_in(tmp_path).window_end == datetime(2023, 11, 14, 22, 21, 50, tzinfo=UTC)


@pytest.mark.spark
def test_a_missing_broker_makes_the_result_partial_and_says_so(session: Session, tmp_path: Path) -> None:
    """What the other one says stays exact."""
    with serving(tmp_path, growing()) as observer:
        run(settings(tmp_path, observer.url, "http://127.0.0.1:1"), session)
    result = result_in(tmp_path)
    assert (result.expected_brokers, result.reporting_brokers) == (2, 1)
    assert result.missing[0].startswith("main-1: the observer did not answer: http://127.0.0.1:1/v1/ledger/segments")
    assert [lag.state for lag in result.subscriptions] == [LagState.IDLE, LagState.LAGGING]


@pytest.mark.spark
def test_a_broker_that_is_away_makes_its_subscriptions_unknown(session: Session, tmp_path: Path) -> None:
    """Their last figures stay; so does the reason."""
    with serving(tmp_path, growing()) as observer:
        observer.api.live.away("the broker does not answer: connection refused")
        observer.api.live.away("the broker does not answer: connection refused")
        run(settings(tmp_path, observer.url), session)
    result = result_in(tmp_path)
    assert result.reporting_brokers == 0
    assert result.missing == ("main-0: the broker does not answer: connection refused",)
    assert [(lag.state, lag.messages) for lag in result.subscriptions] == [
        (LagState.UNKNOWN, 0),
        (LagState.UNKNOWN, 190),
    ]
    assert result.subscriptions[1].message == "the broker does not answer: connection refused"


@pytest.mark.spark
def test_of_two_brokers_the_silent_one_is_unknown_with_its_last_window(session: Session, tmp_path: Path) -> None:
    """It fell silent ten minutes ago; both have a subscription of the same name, and they are not mixed up."""
    old = [a_poll(START_MS - 600_000 + 10_000 * step, a_subscription(depth=77, ready=77)) for step in range(4)]
    with serving(tmp_path / "0", growing()) as first, serving(tmp_path / "1", old, ordinal=1) as second:
        run(settings(tmp_path, first.url, second.url), session)
    result = result_in(tmp_path)
    assert result.missing == ("main-1: its last row is 630 s older than the end of the window",)
    assert [(lag.queue_name[-6:], lag.state, lag.messages) for lag in result.subscriptions] == [
        (":bills", LagState.IDLE, 0),
        ("orders", LagState.LAGGING, 190),
        ("orders", LagState.UNKNOWN, 77),
    ]


@pytest.mark.spark
def test_a_segment_that_is_gone_is_a_clear_failure(session: Session, tmp_path: Path) -> None:
    """Its file was removed after it was listed; nothing is published."""
    with serving(tmp_path, growing()) as observer:
        (observer.api.ledger.folder / observer.api.ledger.segments[1].name).unlink()
        with pytest.raises(Failure, match="answered 404") as failed:
            run(settings(tmp_path, observer.url), session)
        assert observer.api.results.latest_run() is None
    assert "retention" in failed.value.cure


@pytest.mark.spark
@pytest.mark.parametrize("here", [True, False], ids=["copies", "executors"])
def test_segments_that_are_merged_after_they_were_listed_are_listed_again(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """200 polls are 33 minutes, of which the first quarter of an hour is merged."""
    monkeypatch.setattr(analysis, "is_local", lambda _: here)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with serving(tmp_path, growing(200), rows_per_segment=60) as observer:

        def merging(needs: Needs) -> AbstractContextManager[SparkSession]:
            assert observer.api.ledger.merge_old()
            return session(needs)

        run(settings(tmp_path, observer.url, window_seconds=3600, publish=False), merging)
        served = tuple(f"0/{segment.name}" for segment in observer.api.ledger.segments)
    result = result_in(tmp_path)
    assert result.segments == served
    assert [lag.messages for lag in result.subscriptions] == [0, 3085]
    assert result.missing == ()


def test_an_empty_ledger_needs_no_spark(tmp_path: Path) -> None:
    """A valid document without subscriptions, published."""

    def none(_: Needs) -> AbstractContextManager[SparkSession]:
        raise AssertionError("Spark must not be started")

    with serving(tmp_path, []) as observer:
        run(settings(tmp_path, observer.url), none)
        assert observer.api.results.latest_run() == "run-1"
    result = result_in(tmp_path)
    assert result.missing == ("main-0: the broker has not answered yet",)
    assert result.subscriptions == ()


def test_a_result_that_nobody_stores_is_a_failure_but_is_written(tmp_path: Path) -> None:
    """The file is there for whoever asked for it."""

    def none(_: Needs) -> AbstractContextManager[SparkSession]:
        raise AssertionError("Spark must not be started")

    with pytest.raises(Failure, match="the result of run run-1 was not stored") as failed:
        run(settings(tmp_path, "http://127.0.0.1:1"), none)
    assert "ordinal 0" in failed.value.cure
    assert result_in(tmp_path).reporting_brokers == 0
    assert run(settings(tmp_path, "http://127.0.0.1:1", publish=False), none) == 0


@pytest.mark.spark
def test_the_command_prints_a_table_and_stores_the_result(tmp_path: Path) -> None:
    """A process of its own, with the Spark session of production."""
    with serving(tmp_path, growing()) as observer:
        words = [
            "--observer",
            observer.url,
            "--broker",
            "main",
            "--namespace",
            "shop",
            "--run-name",
            "run-9",
            "--table",
        ]
        words += ["--token-file", str(token_file(tmp_path)), "--output", str(tmp_path / "result.json")]
        done = subprocess.run(
            [sys.executable, "-m", "penstock_lag", *words], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert observer.api.results.get("run-9") == (tmp_path / "result.json").read_bytes()
    lines = done.stdout.splitlines()
    assert lines[0].startswith("SUBSCRIPTION")
    assert lines[2].split()[:6] == ["shop/orders", "Lagging", "190", "180", "10", "65"]
    assert result_in(tmp_path).run_name == "run-9"


@pytest.mark.usefixtures("own_collection")
def test_errors_reach_the_shell(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 2 for a wrong setting, 1 for a failure; cause and cure on the standard error."""
    words = ["--observer", "http://127.0.0.1:1", "--broker", "main", "--namespace", "shop"]
    words += ["--token-file", str(token_file(tmp_path)), "--patience", "0"]
    assert main([*words, "--run-name", "run-1", "--window", "0"]) == 2
    assert "--window can't be used" in capsys.readouterr().err
    assert main([*words, "--run-name", "run-1"]) == 1
    assert "was not stored" in capsys.readouterr().err


def test_options_become_settings(tmp_path: Path) -> None:
    """Observers by comma or by repeating; a time without a zone is UTC."""
    words = "--observer http://a,http://b --observer https://c --broker main --namespace shop --run-name r --window 60"
    found = parse([*words.split(), "--as-of", "2026-01-01T12:00:00", "--no-publish", "--output", "-"])
    assert found == LagJobSettings(
        observers=("http://a", "http://b", "https://c"),
        broker="main",
        namespace="shop",
        run_name="r",
        window_seconds=60,
        as_of=datetime(2026, 1, 1, 12, tzinfo=UTC),
        publish=False,
        output=Path("-"),
    )


def test_the_heap_comes_from_the_option_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 GiB without either."""
    words = ["--ledger", "/a,/b", "--no-publish", "--broker", "main", "--namespace", "shop"]
    monkeypatch.delenv("PENSTOCK_LAG_MEMORY", raising=False)
    assert (parse(words).memory, parse(words).ledgers) == ("1g", ("/a", "/b"))
    monkeypatch.setenv("PENSTOCK_LAG_MEMORY", "3g")
    assert parse(words).memory == "3g"
    assert parse([*words, "--memory", "1536m"]).memory == "1536m"
    with pytest.raises(Misuse, match="--memory can't be used"):
        parse([*words, "--memory", "2GiB"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"observers": ()}, "there is no ledger to read"),
        ({"namespace": ""}, "it is not said which Broker is meant"),
        ({"observers": ("ftp://x",)}, "--observer"),
        ({"run_name": "latest"}, "--run-name"),
        ({"run_name": "a/b"}, "--run-name"),
        ({"window_seconds": 7 * 86_400 + 1}, "--window"),
        ({"as_of": datetime(2026, 1, 1)}, "--as-of"),
        ({"table": True, "output": Path("-")}, "--table and --output -"),
    ],
)
def test_settings_that_cannot_work_are_named(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    """Before anything is tried."""
    with pytest.raises(Misuse, match=told):
        settings(tmp_path, **({"observers": ("http://x",)} | changes))


def test_all_options_that_cannot_work_are_named_at_once() -> None:
    """As the broker, the observer and the operator name all of theirs."""
    words = "--namespace shop --run-name latest --window 0 --stale 0 --memory 2GiB --table --output -"
    with pytest.raises(Misuse) as told:
        parse(words.split())
    assert str(told.value).splitlines() == [
        "7 things are wrong with the options:",
        "  there is no ledger to read. Give --observer, or --ledger.",
        "  it is not said which Broker is meant. Give --broker and --namespace, or --brokers.",
        "  --window can't be used. It must be 1 second to 7 days.",
        "  --stale can't be used. It must be at least 1 second.",
        "  --memory can't be used. It must be a number and m or g, such as 1g or 1536m.",
        "  --run-name can't be used. It must have 1 to 253 letters, digits, dots, - and _, with a letter or digit at "
        "both ends, and not be 'latest', but it is 'latest'.",
        "  --table and --output - can't be used. They must not be used together.",
        "Correct all of them.",
    ]


def test_a_run_needs_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the option, else the environment; spark-submit is not here to give one."""
    monkeypatch.delenv("PENSTOCK_RUN_NAME", raising=False)
    with serving(tmp_path, []) as observer:
        with pytest.raises(Misuse, match="the run has no name"):
            run(settings(tmp_path, observer.url, run_name=None))
        monkeypatch.setenv("PENSTOCK_RUN_NAME", "from-environment")
        run(settings(tmp_path, observer.url, run_name=None))
        assert observer.api.results.latest_run() == "from-environment"


def test_the_token_comes_from_its_file_or_the_environment(tmp_path: Path) -> None:
    """The file goes first; without either the message says what to do."""
    assert read_token(token_file(tmp_path), {"PENSTOCK_OBSERVER_TOKEN": "other"}) == "s3cret"
    assert read_token(None, {"PENSTOCK_OBSERVER_TOKEN": " other\n"}) == "other"
    for path in (None, tmp_path / "absent"):
        with pytest.raises(Misuse):
            read_token(path, {})
    (tmp_path / "empty").touch()
    with pytest.raises(Misuse, match="is empty"):
        read_token(tmp_path / "empty", {})
    for strange in ("two\nlines", "schlüssel"):
        (tmp_path / "strange").write_text(strange, encoding="utf-8")
        for path, environment in ((tmp_path / "strange", {}), (None, {"PENSTOCK_OBSERVER_TOKEN": strange})):
            with pytest.raises(Misuse, match="something else than one token") as refused:
                read_token(path, environment)
            assert strange not in str(refused.value)
