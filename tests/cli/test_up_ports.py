"""Ports that `penstock up` chooses for children which come back on them."""

from __future__ import annotations

import socket

import pytest

from penstock_api.failure import CannotRun
from penstock_cli.up import layout
from penstock_cli.up.layout import check_endpoint, free_endpoint


def test_they_differ_and_are_none_that_the_system_gives_to_others() -> None:
    """Linux gives ports from 32768 on to whoever asks for any, and to connections."""
    ports = [int(free_endpoint("127.0.0.1", 0).removeprefix("127.0.0.1:")) for _ in range(20)]
    assert len(set(ports)) == 20
    assert all(20_000 <= port < 30_000 for port in ports)


def test_one_that_is_named_stays() -> None:
    assert free_endpoint("127.0.0.1", 5672) == "127.0.0.1:5672"
    assert free_endpoint("::1", 5672) == "[::1]:5672"


def test_a_taken_one_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        free = int(free_endpoint("127.0.0.1", 0).removeprefix("127.0.0.1:"))
        monkeypatch.setattr(layout, "_candidates", iter([taken, free, taken]))
        assert free_endpoint("127.0.0.1", 0) == f"127.0.0.1:{free}"
        with pytest.raises(CannotRun, match=r"no port of 127\.0\.0\.1 from 20000 to 29999 is free"):
            free_endpoint("127.0.0.1", 0)


def test_a_host_that_is_not_this_machine_is_told() -> None:
    with pytest.raises(CannotRun, match=r"nothing can listen on 192\.0\.2\.1: Cannot assign requested address"):
        free_endpoint("192.0.2.1", 0)


def test_an_endpoint_that_was_named_and_is_taken_is_told_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(CannotRun) as told:
            check_endpoint("--observer", "127.0.0.1", taken)
    assert told.value.cause == f"nothing can listen on 127.0.0.1:{taken} (--observer): Address already in use."
    assert told.value.cure == "End what listens there, or name another port."
    check_endpoint("--observer", "127.0.0.1", taken)


def test_a_port_of_connections_that_have_ended_is_free() -> None:
    """They wait for a minute in the system (TIME_WAIT); the broker can listen meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # first: so it is this side that waits
            assert client.recv(1) == b""
    check_endpoint("--listen", "127.0.0.1", port)
