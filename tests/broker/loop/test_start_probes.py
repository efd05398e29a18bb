"""The probe port while the broker starts: with a real port, and with a real broker whose disk does not answer."""

from __future__ import annotations

import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.no_descriptors import no_descriptors
from support.waiting import until

from penstock_broker.access import sockets
from penstock_broker.loop.probes import PAUSE_MS
from penstock_broker.loop.start_probes import start_probes
from penstock_broker.loop.start_progress import StartProgress
from penstock_cli.up.layout import free_endpoint

SECONDS = 30.0


@pytest.fixture
def port() -> Iterator[socket.socket]:
    sock = sockets.bind("127.0.0.1:0")
    yield sock
    sock.close()


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=SECONDS) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().strip()


def test_a_start_that_advances_is_live_and_not_ready(port: socket.socket) -> None:
    progress = StartProgress(time.monotonic)
    progress.reading(40, 100)
    address = sockets.bound(port)
    with start_probes(port, progress):
        assert get(address, "/livez") == (200, "recovering, 40 % of the log is read")
        assert get(address, "/readyz") == (503, "recovering, 40 % of the log is read")
        assert get(address, "/metrics")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/livez", 200, b"recovering, 40 % of the log is read\n"),
        ("GET", "/livez?verbose=1", 200, b"recovering, 40 % of the log is read\n"),
        ("HEAD", "/livez", 200, b""),
        ("HEAD", "/readyz", 503, b""),
        ("POST", "/livez", 405, b"GET /livez\n"),
        ("DELETE", "/readyz", 405, b"GET /readyz\n"),
        ("POST", "/", 404, b"GET /livez or /readyz\n"),
    ],
)
def test_the_method_is_told_from_the_path(
    port: socket.socket, method: str, path: str, status: int, body: bytes
) -> None:
    """RFC 9110: a 405 names what is allowed (15.5.6), and HEAD is answered as GET is, without content (9.3.2)."""
    progress = StartProgress(time.monotonic)
    progress.reading(40, 100)
    with start_probes(port, progress):
        connection = http.client.HTTPConnection(sockets.bound(port), timeout=SECONDS)
        connection.request(method, path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (status, body)
        assert answer.headers["Allow"] == ("GET, HEAD" if status == 405 else None)
        connection.close()
    assert int(answer.headers["Content-Length"]) > 0


def test_a_start_that_is_stuck_is_not_live(port: socket.socket) -> None:
    now = [0.0]
    progress = StartProgress(lambda: now[0])
    now[0] = 90.0
    with start_probes(port, progress):
        assert get(sockets.bound(port), "/livez") == (
            503,
            "recovering, the log is being opened; nothing has advanced for 90 s",
        )


def test_a_half_sent_probe_holds_nobody_up_and_ends_with_the_start(port: socket.socket) -> None:
    address = sockets.bound(port)
    with socket.create_connection(port.getsockname()) as half:
        half.settimeout(SECONDS)
        with start_probes(port, StartProgress(time.monotonic)):
            half.sendall(b"GET /livez HTT")
            assert get(address, "/livez")[0] == 200
        assert half.recv(100) == b""


class CountedAccepts(socket.socket):
    """A listening socket that counts how often somebody tried to accept."""

    count = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.count += 1
        return super().accept()


def test_a_probe_that_waits_for_a_descriptor_is_tried_now_and_then(port: socket.socket) -> None:
    with CountedAccepts(fileno=port.detach()) as counted, socket.socket() as client:
        counted.setblocking(False)
        client.settimeout(SECONDS)
        with start_probes(counted, StartProgress(time.monotonic)):
            with no_descriptors():
                began = time.monotonic()
                client.connect(counted.getsockname())
                client.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
                until(lambda: counted.count >= 3, "three attempts to accept")
                assert time.monotonic() - began >= 2 * PAUSE_MS / 1000
            assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_the_port_stays_for_whoever_answers_next(port: socket.socket) -> None:
    for _ in range(2):
        with start_probes(port, StartProgress(time.monotonic)):
            assert get(sockets.bound(port), "/livez")[0] == 200


def test_the_log_says_how_far_the_start_is(caplog: pytest.LogCaptureFixture) -> None:
    class Waiting(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.reader, self.writer = os.pipe()

        def emit(self, record: logging.LogRecord) -> None:
            os.write(self.writer, record.getMessage().encode())

    told = Waiting()
    logger = logging.getLogger("penstock_broker.loop.start_probes")
    logger.addHandler(told)
    caplog.set_level(logging.INFO)
    try:
        with start_probes(None, StartProgress(time.monotonic), line_seconds=0):
            assert os.read(told.reader, 1000).startswith(b"Start: recovering, the log is being opened")
    finally:
        logger.removeHandler(told)
        os.close(told.reader)
        os.close(told.writer)


HELD_BROKER = """
import logging, sys
from pathlib import Path
from penstock_broker import main
from penstock_broker.log import RealFiles
from penstock_broker.settings.settings import BrokerSettings

data, gate, probes = sys.argv[1:]

class Held(RealFiles):
    '''The first read waits until somebody writes to the gate.'''
    is_open = False

    def pread(self, handle, length, offset):
        if not self.is_open:
            Path(gate).read_text()
            self.is_open = True
        return super().pread(handle, length, offset)

given = {"listeners": [{"name": "amqp", "address": "127.0.0.1:0"}], "probes": probes,
         "log": {"segmentBytes": 8 << 20}, "maxMessageBytes": 2 << 20}
sys.exit(main.serve(BrokerSettings.model_validate(given).for_dev(), Path(data), files=Held()))
"""


def test_a_broker_answers_probes_before_its_disk_does(tmp_path: Path) -> None:
    address = free_endpoint("127.0.0.1", 0)  # it stays the same over two starts
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = [sys.executable, "-c", HELD_BROKER, str(tmp_path / "data"), str(gate), address]

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with started() as first:  # a new folder is not read
        assert first.stdout is not None
        assert first.stdout.readline().startswith("listening amqp")
        first.send_signal(signal.SIGTERM)
        assert first.wait(SECONDS) == 0
    with started() as broker:
        assert broker.stdout is not None
        writer = os.open(gate, os.O_WRONLY)  # returns once the broker reads its log
        assert get(address, "/livez") == (200, "recovering, the log is being opened")
        assert get(address, "/readyz") == (503, "recovering, the log is being opened")
        os.close(writer)
        assert broker.stdout.readline().startswith("listening amqp")
        assert get(address, "/readyz") == (200, "open")
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(SECONDS) == 0
