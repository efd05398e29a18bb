"""How much memory a broker's messages may take.

The configuration file has bytes; a resource has a quantity. Source: docs/decisions/084-memory.md.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from penstock_api import quantity, schema

__all__ = ["MemorySettings", "MemorySpec", "memory_settings"]

LEAST_BYTES: Final = 16 * 1024 * 1024
_BOUNDS: Final = ("must be at least 16Mi", "16Mi")


class MemorySettings(schema.Spec):
    """What messages may take; beyond it producers are held back, and messages spilled to disk or refused."""

    max_bytes: quantity.SizeBytes | None = Field(default=None, ge=LEAST_BYTES)
    """Bytes that messages take in memory, with what belongs to them; absent: half of the container's memory limit (or
    of the machine's memory) without 64 MiB.
    """


Size = Annotated[
    quantity.Quantity,
    Field(json_schema_extra=quantity.bounds_of_quantity(*_BOUNDS)),
    AfterValidator(quantity.bounded_quantity(*_BOUNDS)),
]


class MemorySpec(schema.Spec):
    """What messages may take in memory; beyond it producers are held back, and messages spilled to disk or refused."""

    max_size: Size | None = None
    """Bytes that messages take in memory, with what belongs to them; left out: half of the container's memory limit
    (`resources.limits.memory`), or of the node's memory, without 64Mi. More than that may end in a kill.
    """


def memory_settings(memory: MemorySpec) -> dict[str, object]:
    """The settings in the broker's configuration file; only those that are set."""
    return {} if memory.max_size is None else {"maxBytes": quantity.quantity_bytes(memory.max_size)}
