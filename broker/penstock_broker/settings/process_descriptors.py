"""How many file descriptors this process may have, and how many of them are kept from clients.

A client that has the last one would take it from the probes, which end a broker that does not answer them, from
management, and from the log. Source: getrlimit(2); dup(2), which takes the lowest descriptor that is free.
"""

from __future__ import annotations

import os
import resource
from typing import Final

__all__ = ["are_short", "for_clients", "raise_limit"]

_KEPT: Final = 256
_KEPT_PART: Final = 4
"""Where there are few, a quarter of them is kept."""


def raise_limit() -> None:
    """Allow this process as many descriptors as it can get: each connection needs one, and the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def for_clients() -> int:
    """Descriptors that clients may have, less those that the broker has for its own at the time."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit - min(_KEPT, limit // _KEPT_PART)


def are_short(of: int) -> bool:
    """Whether no descriptor is left but those that are kept from clients. `of`: any that is open."""
    try:
        lowest = os.dup(of)
    except OSError:
        return True
    os.close(lowest)
    return lowest >= for_clients()
