"""The process: addresses, probes, logins, SIGTERM, full queues, memory over many connections."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection, ConnectionClosed
from support.broker_process import BrokerProcess
from support.proton_client import SECONDS, connected, publish, take

from penstock_amqp.frames.frames import AMQP_HEADER, encode_frame
from penstock_amqp.frames.performatives import Attach, Begin, Open, Source, Target


def get(broker: BrokerProcess, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{broker.addresses['probes']}{path}", timeout=SECONDS) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        with error:
            status = error.code
    assert isinstance(status, int)
    return status


def test_it_prints_and_writes_where_it_listens(broker_process: BrokerProcess) -> None:
    written = json.loads((broker_process.data / "addresses.json").read_text())
    assert written == broker_process.addresses
    assert set(written) == {"amqp", "management", "probes"}
    for name, address in written.items():
        assert f"listening {name} {address}\n" in broker_process.log()


def test_probes_answer(broker_process: BrokerProcess) -> None:
    assert [get(broker_process, path) for path in ("/livez", "/readyz", "/other")] == [200, 200, 404]


def test_a_half_sent_probe_holds_nobody_up(broker_process: BrokerProcess) -> None:
    host, _, port = broker_process.addresses["probes"].rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(b"GET /livez HTT")
        assert get(broker_process, "/livez") == 200


def test_passwords_are_checked(tmp_path: Path) -> None:
    settings: dict[str, object] = {"authentication": {"users": {"ann": "right"}}, "autoCreate": True}
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as broker:
        with connected(broker.url, user="ann", password="right", allow_insecure_mechs=True) as connection:
            publish(connection.create_sender("q"), ["x"])
        for user, password in (("ann", "wrong"), ("bob", "right")):
            with pytest.raises(ConnectionException):
                BlockingConnection(broker.url, user=user, password=password, allow_insecure_mechs=True, timeout=SECONDS)
        with pytest.raises(ConnectionException):
            BlockingConnection(broker.url, allowed_mechs="ANONYMOUS", timeout=SECONDS)
        assert "as user 'ann'" in broker.log()
        assert "right" not in broker.log()


def test_sigterm_tells_clients_and_exits_0(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        receiver = connection.create_receiver("q", credit=1)
        stopping = threading.Thread(target=broker_process.stop)
        process = broker_process.process
        stopping.start()
        with pytest.raises(ConnectionClosed) as closed:
            receiver.receive(timeout=SECONDS)
        assert closed.value.condition == "amqp:connection:forced"
    stopping.join()
    assert process is not None
    assert process.returncode == 0
    broker_process.start()
    assert "closed in order" in broker_process.log()


def test_two_brokers_never_share_a_data_folder(broker_process: BrokerProcess, tmp_path: Path) -> None:
    second = BrokerProcess(tmp_path / "data", management=False)
    with pytest.raises(AssertionError, match="Another broker uses the data folder"):
        second.start()


def test_a_path_that_is_no_dead_brokers_socket_is_left_alone(broker_process: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    for taken, reason in ((f"unix:{file}", "File exists"), (broker_process.management, "Address already in use")):
        second = BrokerProcess(tmp_path / "second", management=False, listen=(taken,))
        with pytest.raises(AssertionError, match=f"can't listen on {taken}: {reason}"):
            second.start()
    assert file.read_text() == "precious"
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(broker_process.management.removeprefix("unix:"))


def test_a_dead_brokers_socket_is_taken_over(broker_process: BrokerProcess) -> None:
    path = Path(broker_process.management.removeprefix("unix:"))
    broker_process.kill()
    assert path.is_socket()
    broker_process.start()
    broker_process.stop()
    assert not path.exists()


def test_addresses_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    options = [
        "--data",
        tmp_path / "data",
        "--dev",
        "--listen",
        "127.0.0.1:0",
        "--ready-file",
        tmp_path / "nowhere/ready",
    ]
    command = [sys.executable, "-m", "penstock_cli", "broker", *map(str, options)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert said.returncode == 3
    assert f"can't be written to {tmp_path}/nowhere/ready: No such file or directory." in said.stderr
    assert "Traceback" not in said.stderr


def test_a_full_queue_drops_its_oldest_messages_and_counts_them(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", settings={"queueMaxBytes": 10_000, "queueOverflow": "DropOldest"}) as broker,
        connected(broker.url) as client,
    ):
        sender = client.create_sender("q")
        publish(sender, [f"{number}:{'x' * 1000}" for number in range(20)])
        receiver = client.create_receiver("q", credit=100)
        (first, _), *_ = take(receiver, 9)
        assert str(first).startswith("11:")


def test_a_connection_that_breaks_the_protocol_hurts_no_other(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as healthy:
        sender = healthy.create_sender("q")
        for rubbish in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"AMQP\x00\x01\x00\x00\xff\xff\xff\xff\x02\x00\x00\x00",
            b"\x00" * 4096,
        ):
            with socket.create_connection(("127.0.0.1", broker_process.port)) as sock:
                sock.settimeout(SECONDS)
                sock.sendall(rubbish)
                while sock.recv(65_536):
                    pass
        publish(sender, ["alive"])


def test_a_client_that_does_not_read_blocks_only_itself(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as slow, connected(broker_process.url) as quick:
        slow.create_receiver("amq.topic/a", credit=1000)  # grants credit, then never looks at its socket again
        receiver = quick.create_receiver("amq.topic/a", name="quick", credit=200)
        sender = quick.create_sender("amq.topic/a")
        for number in range(100):
            sender.send(Message(body=f"{number}" + "x" * 100_000, durable=False))
            assert str(take(receiver, 1)[0][0]).startswith(str(number))


@pytest.mark.crash
def test_three_thousand_connections_leave_nothing_behind(tmp_path: Path) -> None:
    def connect(times: int) -> None:
        for number in range(times):
            with socket.create_connection(("127.0.0.1", broker.port)) as sock:
                sock.settimeout(SECONDS)
                sock.sendall(_ATTACHING)
                data = b""
                while b"link-" not in data:  # the reply to the attach
                    piece = sock.recv(65_536)
                    assert piece, number
                    data += piece

    with BrokerProcess(tmp_path / "data", module="broker.forgetful_broker") as broker:
        connect(1_000)  # more than it remembers of those that are gone
        sizes = [broker.resident_bytes()]
        for _ in range(3):
            connect(1_000)
            sizes.append(broker.resident_bytes())
    # What is left behind is left each time. Once it may be more: a busy broker has several connections at a time.
    grown = min(later - earlier for earlier, later in pairwise(sizes))
    assert grown < 1_000 * 100, f"{grown / 1_000:.0f} bytes per connection"


# All in one go, as an impatient client sends it.
_ATTACHING = AMQP_HEADER + b"".join(
    encode_frame(performative, 0)
    for performative in (
        Open(container_id="churn"),
        Begin(next_outgoing_id=0, incoming_window=2048, outgoing_window=2048),
        Attach(name="link-1", handle=0, role=True, source=Source(address="amq.topic/a"), target=Target()),
    )
)
