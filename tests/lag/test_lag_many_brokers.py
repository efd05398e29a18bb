"""One run over many Brokers: each has the document of a run of its own, and one that fails stands alone."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
from lag.observer_server import Served, serving, token_file
from observer.samples import START_MS, a_poll, a_subscription
from pyspark.sql import SparkSession

from penstock_api.failure import Failure, Misuse
from penstock_api.lag_result import LagResult
from penstock_lag import analysis
from penstock_lag.arguments import parse
from penstock_lag.main import run
from penstock_lag.session import Needs
from penstock_lag.settings import LagJobSettings
from penstock_lag.targets import Target, targets_of
from penstock_observer.rows import Poll

Session = Callable[[Needs], AbstractContextManager[SparkSession]]
ORDERS = "psub:durable:global:orders"


def polls(depth: int, later_ms: int = 0, count: int = 5) -> list[Poll]:
    """A backlog of `orders` that grows by one with each poll."""
    return [
        a_poll(
            START_MS + later_ms + 10_000 * step,
            a_subscription("orders", depth=depth + step, ready=depth + step, enqueued=depth + step),
        )
        for step in range(count)
    ]


def entry(served: Served, namespace: str, token: Path, **more: Any) -> dict[str, Any]:
    """A Broker `main` in the file."""
    return {
        "namespace": namespace,
        "broker": "main",
        "observers": [served.url],
        "tokenFile": str(token),
        **more,
    }


def brokers_file(folder: Path, *entries: dict[str, Any]) -> Path:
    """The file of `--brokers`."""
    path = folder / "brokers.json"
    path.write_text(json.dumps({"version": 1, "brokers": entries}))
    return path


def alone(served: Served, namespace: str, token: Path, **changes: Any) -> LagJobSettings:
    """A run of its own."""
    values: dict[str, Any] = {"observers": (served.url,), "broker": "main", "namespace": namespace}
    return LagJobSettings(**values, run_name="alone", token_file=token, patience_seconds=0, **changes)


@pytest.mark.spark
def test_each_broker_has_the_document_of_a_run_of_its_own_whatever_happens_to_the_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two Brokers of the same name, with the same queue, an hour apart, and windows of their own. Of the others the
    first has no token, the second an observer that is away, and the third a segment with spoilt pages, which executors
    notice when all are read together. Where copies are read, that is noticed before. The other segment is enough.
    """
    session: Session = lambda _: nullcontext(spark)  # noqa: E731
    token = token_file(tmp_path)
    with ExitStack() as open_observers:
        served = {
            namespace: open_observers.enter_context(serving(tmp_path / namespace, story, namespace=namespace))
            for namespace, story in {
                "shop": polls(100),
                "pay": polls(7, later_ms=3_600_000, count=9),
                "spoilt": polls(1),
                "closed": polls(1),
            }.items()
        }
        first = served["spoilt"].api.ledger.segments[0].name
        spoil(served["spoilt"].api.ledger.folder / first)
        run(alone(served["shop"], "shop", token), session)
        run(alone(served["pay"], "pay", token, window_seconds=40), session)
        run(alone(served["spoilt"], "spoilt", token), session)
        monkeypatch.setattr(analysis, "is_local", lambda _: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        away = {**entry(served["shop"], "away", token), "observers": ["http://127.0.0.1:1"]}
        file = brokers_file(
            tmp_path,
            entry(served["closed"], "closed", tmp_path / "absent"),
            entry(served["shop"], "shop", token, caFile=None),
            away,
            entry(served["spoilt"], "spoilt", token),
            entry(served["pay"], "pay", token, windowSeconds=40),
        )
        with pytest.raises(Failure) as failed:
            run(LagJobSettings(brokers_file=file, run_name="all", patience_seconds=0), session)
        for namespace in ("shop", "pay", "spoilt"):
            stored = served[namespace].api.results
            of_all, of_one = stored.get("all"), stored.get("alone")
            assert of_all is not None and of_one is not None
            assert of_all == of_one.replace(b'"runName":"alone"', b'"runName":"all"')
        without = LagResult.model_validate_json(served["spoilt"].api.results.get("alone") or b"")
        results = {
            namespace: LagResult.model_validate_json(served[namespace].api.results.get("all") or b"")
            for namespace in ("shop", "pay")
        }
    assert [(lag.queue_name, lag.messages) for lag in results["shop"].subscriptions] == [(ORDERS, 104)]
    assert [(lag.queue_name, lag.messages) for lag in results["pay"].subscriptions] == [(ORDERS, 15)]
    assert [(lag.queue_name, lag.messages) for lag in without.subscriptions] == [(ORDERS, 5)]
    assert (without.reporting_brokers, len(without.segments), len(without.missing)) == (1, 1, 1)
    assert without.missing[0].startswith(f"main-0: segment {first} is not read, because it is damaged: {first} can't")
    head, *told = failed.value.cause.splitlines()
    assert head == "2 of 5 Brokers are not done:"
    assert [line.split(":")[0] for line in told] == ["away/main", "away/main", "closed/main"]
    assert "was not stored: http://127.0.0.1:1/v1/lag/results/all can't be reached" in told[0]
    assert "the rollups of away/main are not complete" in told[1]
    assert "absent can't be read" in told[2]
    assert failed.value.exit_code == 1


def spoil(segment: Path) -> None:
    """Its pages, not its end, which says what is in it."""
    content = segment.read_bytes()
    segment.write_bytes(content[:4] + b"\xff" * 200 + content[204:])


def test_without_any_row_no_spark_is_started_and_each_has_its_empty_document(tmp_path: Path) -> None:
    """In the folder of --output, too."""

    def none(_: Needs) -> AbstractContextManager[SparkSession]:
        raise AssertionError("Spark must not be started")

    with serving(tmp_path / "shop", []) as shop, serving(tmp_path / "pay", [], namespace="pay") as pay:
        token = token_file(tmp_path)
        file = brokers_file(tmp_path, entry(shop, "shop", token), entry(pay, "pay", token))
        settings = LagJobSettings(brokers_file=file, run_name="all", patience_seconds=0, output=tmp_path)
        assert run(settings, none) == 0
        for namespace, observer in (("shop", shop), ("pay", pay)):
            stored = observer.api.results.get("all")
            assert stored == (tmp_path / f"{namespace}.main.json").read_bytes()
            assert stored is not None and LagResult.model_validate_json(stored).namespace == namespace


class Counting(socketserver.BaseRequestHandler):
    """Ends each connection without an answer."""

    asked: ClassVar[list[object]] = []

    def handle(self) -> None:
        """Count it."""
        self.asked.append(self.client_address)


def test_an_observer_that_listed_nothing_is_not_asked_for_rollups(tmp_path: Path) -> None:
    """The results of other Brokers would wait for it, and for the next one that is away. It is asked for its segments,
    and is to store the result, at the same time as others.
    """

    def no_spark(_: Needs) -> AbstractContextManager[SparkSession]:
        raise AssertionError("Spark must not be started")

    Counting.asked.clear()
    with serving(tmp_path / "shop", []) as shop, socketserver.TCPServer(("127.0.0.1", 0), Counting) as away:
        thread = threading.Thread(target=away.serve_forever)
        thread.start()
        token = token_file(tmp_path)
        gone = {**entry(shop, "gone", token), "observers": [f"http://127.0.0.1:{away.server_address[1]}"]}
        file = brokers_file(tmp_path, gone, entry(shop, "shop", token))
        with pytest.raises(Failure, match="1 of 2 Brokers are not done"):
            run(LagJobSettings(brokers_file=file, run_name="all", patience_seconds=0), no_spark)
        away.shutdown()
        thread.join()
    assert len(Counting.asked) == 2


def test_a_token_or_an_address_that_can_be_none_fails_one_broker(tmp_path: Path) -> None:
    """The other one has its result. The token is not told."""

    def no_spark(_: Needs) -> AbstractContextManager[SparkSession]:
        raise AssertionError("Spark must not be started")

    with serving(tmp_path / "shop", []) as shop:
        token = token_file(tmp_path)
        (tmp_path / "two").write_text("s3cret\nother")
        nowhere = {**entry(shop, "nowhere", token), "observers": ["http://[::1"]}
        file = brokers_file(tmp_path, entry(shop, "pay", tmp_path / "two"), nowhere, entry(shop, "shop", token))
        settings = LagJobSettings(brokers_file=file, run_name="all", patience_seconds=0)
        with pytest.raises(Failure) as failed:
            run(settings, no_spark)
        assert shop.api.results.latest_run() == "all"
    head, *told = failed.value.cause.splitlines()
    assert head == "2 of 3 Brokers are not done:"
    assert "the result of run all was not stored: http://[::1 is not an address: Invalid IPv6 URL" in told[0]
    assert told[1] == f"pay/main: the token file {tmp_path / 'two'} has something else than one token."


def test_an_empty_list_of_brokers_is_done_at_once(tmp_path: Path) -> None:
    """An operator without Brokers."""
    assert run(LagJobSettings(brokers_file=brokers_file(tmp_path), run_name="all")) == 0


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """Wherever the command is started."""
    path = brokers_file(
        tmp_path,
        {"namespace": "shop", "broker": "main", "observers": ["http://a"], "tokenFile": "t", "caFile": "c"},
    )
    assert targets_of(LagJobSettings(brokers_file=path, run_name="all")) == (
        Target(
            namespace="shop",
            broker="main",
            observers=("http://a",),
            token_file=tmp_path / "t",
            ca_file=tmp_path / "c",
            window_seconds=300,
            stale_seconds=180,
        ),
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "can't be read"),
        ("{", "Invalid JSON"),
        ('{"version":1,"brokers":[{"namespace":"a"}]}', "brokers.0.broker: is required"),
    ],
)
def test_a_file_that_is_none_is_a_wrong_setting(tmp_path: Path, content: str | None, told: str) -> None:
    """Exit code 2: nothing was tried."""
    path = tmp_path / "brokers.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Misuse, match=told):
        run(LagJobSettings(brokers_file=path, run_name="all"))


@pytest.mark.parametrize(
    "words",
    [
        *("--observer http://a", "--ledger /x", "--broker b", "--namespace n"),
        *("--token-file t", "--ca-file c", "--window 9", "--stale 9"),
    ],
)
def test_what_the_file_says_is_not_said_beside_it(words: str) -> None:
    """So nobody wonders which of them counts."""
    option = words.split()[0]
    with pytest.raises(Misuse, match=f"{option} can't be used together with --brokers"):
        parse(["--brokers", "brokers.json", "--run-name", "r", *words.split()])


def test_all_that_the_file_says_is_named_at_once() -> None:
    with pytest.raises(Misuse, match=r"--broker, --window can't be used together with --brokers\."):
        parse(["--brokers", "brokers.json", "--window", "9", "--broker", "main"])


def test_the_other_options_count_for_all_brokers() -> None:
    """The output is a folder then."""
    words = ["--brokers", "f", "--run-name", "r", "--no-publish", "--output", "folder", "--patience", "5"]
    assert parse(words) == LagJobSettings(
        brokers_file=Path("f"), run_name="r", publish=False, output=Path("folder"), patience_seconds=5
    )
    with pytest.raises(Misuse, match="--output -"):
        parse([*words[:-4], "--output", "-"])
