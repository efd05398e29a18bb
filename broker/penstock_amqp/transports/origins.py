"""Whether a page in a browser may open a WebSocket to us: by its origin, which browsers send and pages can't forge.

Other programs send none, or what they like: this protects people who have a page of somebody else open, and no others.
Pure. Sources: RFC 6454 (origins), RFC 6455, section 10.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

__all__ = ["is_allowed", "normal_origin"]

_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def normal_origin(text: str) -> str | None:
    """An origin in lower case and without the port that its scheme implies; None if it is none."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    # A pattern would look as if it worked.
    is_more = "*" in text or "@" in parts.netloc or bool(parts.path or parts.query or parts.fragment)
    if not parts.scheme or not host or is_more or text != text.strip():
        return None
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" if port in (None, _PORTS.get(parts.scheme)) else f"{parts.scheme}://{host}:{port}"


def is_allowed(origin: str, hosts: Sequence[str], allowed: Sequence[str] | None) -> bool:
    """Whether pages of `origin` are let in.

    `hosts`: the request's Host headers. `allowed`: normal origins, `null` or `*`; None: the host that was asked for,
    whatever scheme and port: a page comes from a web server beside us, and TLS may end in front of us.
    """
    normal = "null" if origin == "null" else normal_origin(origin)
    if normal is None:
        return False
    if allowed is not None:
        return "*" in allowed or normal in allowed
    return len(hosts) == 1 and _host(normal) is not None and _host(normal) == _host(f"//{hosts[0]}")


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
