"""The type of options that take HOST:PORT: IPv6 addresses in brackets; with port 0 the system chooses a port."""

from __future__ import annotations

import click

from penstock_api.host_names import can_be_looked_up

__all__ = ["HOST_PORT", "HostPort", "split"]


class HostPort(click.ParamType[str]):
    """Accepts HOST:PORT or [IPv6]:PORT and passes the text on unchanged; `split` gives host and port."""

    name = "host:port"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, after checking it; a wrong one is reported as wrong usage."""
        scheme, slashes, rest = value.partition("://")
        if slashes:
            self.fail(f"{value!r} is a URL; leave out {scheme}://: {rest.rstrip('/') or '127.0.0.1:5672'}", param, ctx)
        host, colon, port = value.rpartition(":")
        if not colon or not host or "/" in host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, such as 127.0.0.1:5672 or [::1]:5672", param, ctx)
        if not can_be_looked_up(host):
            self.fail(f"{value!r} names a host that can't be: a part of its name is empty or too long", param, ctx)
        return value


HOST_PORT = HostPort()


def split(endpoint: str) -> tuple[str, int]:
    """Host (without brackets) and port of a checked endpoint."""
    host, _, port = endpoint.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
