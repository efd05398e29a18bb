"""Whether a page in a browser may open a WebSocket: decided by its origin, which browsers send and pages can't forge.

Other programs send no origin or any origin: the check protects only users who have a hostile page open in a browser.
Pure. Sources: RFC 6454 (origins), RFC 6455, section 10.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

__all__ = ["is_allowed", "normal_origin"]

_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def normal_origin(text: str) -> str | None:
    """An origin in lower case and without the default port of its scheme; None if `text` is not an origin."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    # A pattern such as https://*.example.com is not supported; it must not be accepted silently.
    is_more = "*" in text or "@" in parts.netloc or bool(parts.path or parts.query or parts.fragment)
    if not parts.scheme or not host or is_more or text != text.strip():
        return None
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" if port in (None, _PORTS.get(parts.scheme)) else f"{parts.scheme}://{host}:{port}"


def is_allowed(origin: str, hosts: Sequence[str], allowed: Sequence[str] | None) -> bool:
    """Whether pages of `origin` may connect.

    `hosts`: the request's Host headers. `allowed`: origins as `normal_origin` returns them, `null` or `*`. If it is
    None, the host of the origin has to be that of the request. Scheme and port may differ, because the page comes from
    a web server on another port, and a proxy may terminate TLS.
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
