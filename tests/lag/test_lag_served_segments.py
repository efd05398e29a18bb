"""What an observer's answer means, and what its silence does."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from lag.observer_server import TOKEN, serving
from observer.samples import a_poll

from penstock_lag.ledger.served_segments import list_segments, parse_listing
from penstock_lag.ledger.windows import AbsentBroker, PresentBroker
from penstock_lag.observer_client import Observer, ObserverError

NAME = "0000000003-000000000001-000000000001.parquet"


def listing(**changes: Any) -> bytes:
    """A list of one segment."""
    segment = {"name": NAME, "bytes": 1, "rows": 1, "firstMs": 1, "lastMs": 2}
    values: dict[str, Any] = {
        "broker": "main",
        "namespace": "shop",
        "ordinal": 0,
        "reachable": True,
        "segments": [segment],
    }
    return json.dumps(values | changes).encode()


def test_a_list_is_understood() -> None:
    """Keys of later releases are ignored."""
    found = parse_listing(listing(later=1), 0, "main", "shop")
    assert isinstance(found, PresentBroker)
    assert [info.name for info in found.listing.segments] == [NAME]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "the observer's list of segments was not understood: document: Invalid JSON"),
        (b"{}", "the observer's list of segments was not understood: broker: is required"),
        (listing(broker="other"), "the observer belongs to shop/other-0, not to shop/main-0"),
        (listing(ordinal=1), "the observer belongs to shop/main-1, not to shop/main-0; check the order of --observer"),
        (
            listing(segments=[{"name": "../token", "bytes": 1, "rows": 1, "firstMs": 1, "lastMs": 1}]),
            "the observer lists '../token', which is not the name of a segment",
        ),
    ],
)
def test_what_is_no_list_of_this_broker_makes_it_absent(body: bytes, reason: str) -> None:
    """With the reason; a name that could become another address is not asked for."""
    found = parse_listing(body, 0, "main", "shop")
    assert isinstance(found, AbsentBroker)
    assert found.reason.startswith(reason)


def test_observers_are_asked_in_order(tmp_path: Path) -> None:
    """One answers, one has nobody listening, one wants another token."""
    with socket.socket() as unused, serving(tmp_path, [a_poll()]) as observer:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
        asked = [Observer(observer.url, TOKEN), Observer(nobody, TOKEN), Observer(observer.url, "wrong")]
        first, second, third = list_segments(asked, "main", "shop")
    assert isinstance(first, PresentBroker)
    assert isinstance(second, AbsentBroker)
    assert "can't be reached: nothing listens there" in second.reason
    assert isinstance(third, AbsentBroker)
    assert "answered 401: the observer does not know that token: send one of its own" in third.reason


def test_an_https_observer_must_be_whom_it_claims(tmp_path: Path) -> None:
    """Plain HTTP behind an https address is an error, not a fallback."""
    with serving(tmp_path, [a_poll()]) as observer, pytest.raises(ObserverError, match="can't be reached"):
        Observer(observer.url.replace("http:", "https:"), TOKEN).get("/v1/ledger/segments")


def test_an_observer_that_comes_back_in_time_is_waited_for() -> None:
    """Nobody listens at first; the first attempt is refused, a later one is answered."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        answering = threading.Timer(0.2, answer_once, [server])
        answering.start()
        body = Observer(f"http://127.0.0.1:{server.getsockname()[1]}", TOKEN, patience_seconds=30).get("/healthz")
        answering.join()
    assert body == b"ok\n"


def answer_once(server: socket.socket) -> None:
    """An HTTP server for one request."""
    server.listen()
    connection, _ = server.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n")


def test_the_status_of_a_refusal_is_kept(tmp_path: Path) -> None:
    """For whoever can do something about it."""
    with serving(tmp_path, []) as observer, pytest.raises(ObserverError) as refused:
        Observer(observer.url, TOKEN).put("/v1/lag/results/run-1", b"{}")
    assert refused.value.status == 400
    assert "broker: is required" in str(refused.value)
