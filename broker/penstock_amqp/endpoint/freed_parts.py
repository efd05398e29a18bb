"""What stands where the parts of an endpoint were that is freed: whoever calls one of them gets an exception.

Source: docs/decisions/077-internal-errors.md.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

__all__ = ["NO_CALL", "NO_PART", "EndpointFreed"]


class EndpointFreed(Exception):
    """Something was asked of an endpoint that is freed: its user has kept it for too long."""


class _NoPart:
    """In the place of a part."""

    def __getattr__(self, name: str) -> NoReturn:
        raise EndpointFreed(f"The connection is freed: {name} can't be used any more.")


def _no_call(*_: object) -> NoReturn:
    raise EndpointFreed("The connection is freed: nothing can be read or sent any more.")


NO_PART: Final[Any] = _NoPart()
NO_CALL: Final[Any] = _no_call
"""In the place of a method of a part."""
