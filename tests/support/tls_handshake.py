"""A TLS handshake in memory."""

from __future__ import annotations

import ssl

__all__ = ["shake_hands"]


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Performs a TLS handshake; the client expects a server of this name or IP address.

    Raises:
        ssl.SSLError: one of them refused the other.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    ]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
