"""The client of observers: whose certificates it trusts."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support.certificates import Authority

from penstock_lag.observer_client import Observer, ObserverError


class Answer(BaseHTTPRequestHandler):
    """200 to everything."""

    def do_GET(self) -> None:
        """A body of two bytes."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def https_server(authority: Authority) -> Generator[str]:
    """Its URL."""
    issued = authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_renewed_authority_is_trusted_without_a_restart(tmp_path: Path) -> None:
    """`penstock lag --watch` runs for days; the file of authorities is replaced meanwhile."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(old.ca.read_bytes())
    os.utime(ca_file, ns=(1, 1))
    with https_server(new) as url:
        observer = Observer(url, "token", ca_file)
        with pytest.raises(ObserverError, match="its certificate is not trusted"):
            observer.get("/x")
        ca_file.write_bytes(new.ca.read_bytes())
        assert observer.get("/x") == b"{}"


def test_a_file_of_authorities_that_is_not_there_is_said(tmp_path: Path) -> None:
    """With its name, as an observer that can't be asked."""
    with pytest.raises(ObserverError, match=r"absent\.crt"):
        Observer("https://127.0.0.1:1", "token", tmp_path / "absent.crt").get("/x")


class HalfAnAnswer(Answer):
    """Announces ten bytes, sends two, and ends the connection, as a process that dies."""

    def do_GET(self) -> None:
        """The first half."""
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"{}")


def test_an_answer_that_ends_early_is_none() -> None:
    """And may be asked for again: it has no status."""
    with HTTPServer(("127.0.0.1", 0), HalfAnAnswer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(ObserverError, match="8 bytes of its answer did not come") as told:
                Observer(f"http://127.0.0.1:{server.server_address[1]}", "token").get("/x")
        finally:
            server.shutdown()
            thread.join()
    assert told.value.status is None
