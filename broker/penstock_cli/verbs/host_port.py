"""HOST:PORT on the command line, IPv6 in brackets, and port 0 for one that the system chooses."""

from __future__ import annotations

import click

__all__ = ["HOST_PORT", "HostPort", "split"]


class HostPort(click.ParamType[str]):
    """Accepts HOST:PORT or [IPv6]:PORT and passes it on as it is; `split` takes it apart."""

    name = "host:port"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, once it is known to be an endpoint."""
        host, colon, port = value.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, such as 127.0.0.1:5672 or [::1]:5672", param, ctx)
        return value


HOST_PORT = HostPort()


def split(endpoint: str) -> tuple[str, int]:
    """Host (without brackets) and port of a checked endpoint."""
    host, _, port = endpoint.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
