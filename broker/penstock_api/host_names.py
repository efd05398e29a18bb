"""Names of hosts as a person writes them. Pure."""

from __future__ import annotations

__all__ = ["can_be_looked_up"]


def can_be_looked_up(host: str) -> bool:
    """Whether the system's resolver takes the name at all: for one with an empty or a too long part Python raises a
    `UnicodeError`, which is no `OSError`, in the middle of a connection.
    """
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in host
