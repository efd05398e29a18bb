"""Where a client finds its broker, and how the socket is opened."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass

from penstock_amqp.client.errors import NoAnswer
from penstock_api.host_names import can_be_looked_up

__all__ = ["Address"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the broker listens: a Unix socket, or a host and port, with or without TLS."""

    unix_path: str | None = None
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """The name the broker's certificate has to carry; absent: `host`."""
    answer_seconds: float | None = None
    """So long a host may take to accept or refuse a TCP connection; absent: as long as the system allows, which is
    minutes. The time for TLS does not count: a host that does it is there.
    """

    @classmethod
    def parse(cls, text: str, tls: ssl.SSLContext | None = None, server_name: str | None = None) -> Address:
        """Read `unix:PATH`, `HOST:PORT` or `[IPV6]:PORT`. Raises `ValueError`."""
        if text.startswith("unix:"):
            if text == "unix:":
                raise ValueError("unix: names no path")
            return cls(unix_path=text.removeprefix("unix:"))
        host, colon, port = text.rpartition(":")
        if not colon or not host or "/" in host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise ValueError(f"{text!r} is neither unix:PATH nor HOST:PORT")
        host = host.removeprefix("[").removesuffix("]")
        if not can_be_looked_up(host):
            raise ValueError(f"{text!r} names a host that can't be: a part of its name is empty or too long")
        return cls(host=host, port=int(port), tls=tls, server_name=server_name)

    def __str__(self) -> str:
        return f"unix:{self.unix_path}" if self.unix_path is not None else f"{self.host}:{self.port}"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the socket. Raises `NoAnswer` after `answer_seconds`, else `OSError`."""
        if self.unix_path is not None:
            return await asyncio.open_unix_connection(self.unix_path)
        name = (self.server_name or self.host) if self.tls is not None else None
        opened = await self._open_socket()
        try:
            return await asyncio.open_connection(sock=opened, ssl=self.tls, server_hostname=name)
        except BaseException:
            opened.close()
            raise

    async def _open_socket(self) -> socket.socket:
        """A TCP connection to the first address of the host that takes one."""
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, where in found:
            opened = socket.socket(family, kind, protocol)
            opened.setblocking(False)
            try:
                async with asyncio.timeout(self.answer_seconds):
                    await loop.sock_connect(opened, where)
            except TimeoutError:
                opened.close()
                failure = NoAnswer(f"nothing answers at {self} within {self.answer_seconds:g} seconds")
            except OSError as error:
                opened.close()
                failure = error
            except BaseException:
                opened.close()
                raise
            else:
                return opened
        raise OSError(f"{self.host} has no address") if failure is None else failure
