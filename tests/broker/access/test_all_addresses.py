"""`[::]` stands for all addresses of a machine: of IPv6 and IPv4, or of IPv4 alone if it has no other."""

from __future__ import annotations

import socket

import pytest

from penstock_broker.access import sockets


def test_a_machine_without_ipv6_is_listened_to_at_its_ipv4_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    listening = sockets.bind("[::]:0")
    try:
        host, _, port = sockets.bound(listening).rpartition(":")
        assert host == "0.0.0.0"
        socket.create_connection(("127.0.0.1", int(port))).close()
    finally:
        sockets.close(listening)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("client", ["127.0.0.1", "::1"])
def test_both_families_are_listened_to(client: str) -> None:
    listening = sockets.bind("[::]:0")
    try:
        socket.create_connection((client, listening.getsockname()[1])).close()
    finally:
        sockets.close(listening)
