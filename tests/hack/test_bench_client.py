"""The client of the benchmarks, hack/benching/load.c, with a real broker: what it sends is accepted and received."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benching.brokers import QUEUE, topic
from benching.load_client import LoadFailed, Measured, run_load
from support.broker_process import BrokerProcess
from support.certificates import Authority

SHORT = {"warmup": 0.1, "seconds": 0.5}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("bench")
    issued = Authority(folder).issue("localhost")
    tls = {"certificate": str(issued.certificate), "key": str(issued.key)}
    settings: dict[str, object] = {"listeners": [{"name": "amqps", "address": "127.0.0.1:0", "tls": tls}]}
    with BrokerProcess(folder / "data", settings=settings) as running:
        yield running


def run(broker: BrokerProcess, **options: str | float) -> Measured:
    return run_load({"port": broker.port, "pids": broker.pid, **SHORT, **options})


def counted(buckets: tuple[tuple[int, int], ...]) -> int:
    return sum(count for _, count in buckets)


@pytest.mark.parametrize("durable", [0, 1])
def test_all_messages_of_a_queue_are_accepted_and_received(broker: BrokerProcess, durable: int) -> None:
    whole = run(broker, **QUEUE, durable=durable).whole
    assert whole.sent == whole.accepted == whole.received > 0
    assert whole.broker_cpu > 0
    assert whole.client_cpu > 0


def test_what_is_received_is_accepted_and_does_not_come_again(broker: BrokerProcess) -> None:
    run(broker, **QUEUE)
    assert run(broker, **QUEUE, rate=10).earlier == 0


def test_over_tls(broker: BrokerProcess) -> None:
    whole = run(broker, **QUEUE, tls=1, port=broker.addresses["amqps"].rpartition(":")[2]).whole
    assert whole.sent == whole.accepted == whole.received > 0


def test_messages_that_are_settled_when_sent_are_not_answered(broker: BrokerProcess) -> None:
    whole = run(broker, **QUEUE, settled=1, window=10).whole
    assert whole.sent == whole.received > 10
    assert whole.accepted == 0


def test_a_producer_that_waits_is_timed_from_message_to_accept(broker: BrokerProcess) -> None:
    found = run(broker, **QUEUE, senders=3, window=1, warmup=0)
    assert found.whole.accepted == found.whole.sent
    assert counted(found.answer) == found.whole.accepted


def test_an_open_loop_sends_and_times_what_is_due(broker: BrokerProcess) -> None:
    found = run(broker, **QUEUE, rate=400)
    assert counted(found.latency) == counted(found.late) == 200
    assert found.whole.received == found.whole.sent >= 240


def test_each_subscription_gets_a_copy(broker: BrokerProcess) -> None:
    options = {**topic("copies"), "name": "copies-%d|global"}
    whole = run(broker, **options, receivers=3, copies=3).whole
    assert whole.received == 3 * whole.sent > 0


def test_selectors_leave_the_copies_that_they_select(broker: BrokerProcess) -> None:
    options = {**topic("selected"), "name": "selected-%d|global"}
    selectors = {"selector": "colour = 'red'", "others": "colour = 'blue-%d'"}
    whole = run(broker, **options, **selectors, receivers=3, copies=1).whole
    assert whole.received == whole.sent > 0


def test_copies_that_do_not_come_are_missed(broker: BrokerProcess) -> None:
    """Two consumers of one queue share the messages."""
    with pytest.raises(LoadFailed, match="messages: missing"):
        run(broker, **QUEUE, receivers=2, copies=2, rate=10, patience=1)


def test_what_the_broker_refuses_is_told(broker: BrokerProcess) -> None:
    with pytest.raises(LoadFailed, match=r"the broker sent detach to consumer 0:.*amqp:invalid-field.*The selector"):
        run(broker, **QUEUE, selector="colour =")


def test_an_option_that_does_not_exist_is_refused(broker: BrokerProcess) -> None:
    with pytest.raises(LoadFailed, match="sendres=2: there is no such option"):
        run(broker, sendres=2)


def test_it_is_compiled_into_the_build_folder() -> None:
    from benching.load_client import compiled

    assert compiled() == Path(__file__).parents[2] / "build" / "bench" / "load"


def test_what_sockets_and_disk_allow(tmp_path: Path) -> None:
    from benching.load_client import synced_echoes

    found = synced_echoes(tmp_path / "echo", 3, 0.3)
    assert found.keys() == {"rate", "p50_ms", "p99_ms"}
    assert found["rate"] > 0
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert list(tmp_path.iterdir()) == []


def test_an_echo_server_without_its_file_says_why(tmp_path: Path) -> None:
    from benching.load_client import synced_echoes

    with pytest.raises(LoadFailed, match="No such file or directory"):
        synced_echoes(tmp_path / "missing" / "echo", 1, 0.1)
