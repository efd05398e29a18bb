"""Addresses of listeners as settings write them: HOST:PORT, [HOST]:PORT or unix:PATH. Pure."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator

from penstock_api.host_names import can_be_looked_up

__all__ = ["UNIX", "Address", "HostPort", "split"]

UNIX: Final = "unix:"


def split(address: str) -> tuple[str, int]:
    """Host (without brackets; 0.0.0.0 if there is none; :: is all of IPv6 and IPv4) and port. Raises `ValueError`."""
    scheme, slashes, rest = address.partition("://")
    if slashes:
        raise ValueError(f"{address!r} is a URL, not an address: leave out {scheme}://, as in {rest.rstrip('/')}")
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not an address: write HOST:PORT, such as 0.0.0.0:5672 or [::1]:5672")
    if not can_be_looked_up(host):
        raise ValueError(f"{address!r} names a host that can't be: a part of its name is empty or too long")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def _host_port(address: str) -> str:
    split(address)
    return address


def _address(address: str) -> str:
    if address.startswith(UNIX) and address != UNIX:
        return address
    try:
        return _host_port(address)
    except ValueError as error:
        raise ValueError(f"{error}, or unix:PATH") from None


Address: TypeAlias = Annotated[str, AfterValidator(_address)]
HostPort: TypeAlias = Annotated[str, AfterValidator(_host_port)]
