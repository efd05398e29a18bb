"""Kubernetes objects as nested maps, as in JSON, and functions that read them by path.

A field that is missing, or that has another type than asked for, is read as None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

__all__ = ["Manifest", "dig", "items_of", "text_at"]

Manifest = dict[str, object]


def dig(node: object, *path: str) -> object:
    """The value at `path` below `node`, None if there is none."""
    if not path:
        return node
    if not isinstance(node, Mapping):
        return None
    return dig(cast(Mapping[str, object], node).get(path[0]), *path[1:])


def text_at(manifest: Mapping[str, object] | None, *path: str) -> str | None:
    """The string at `path`, None if there is none."""
    value = dig(manifest, *path)
    return value if isinstance(value, str) else None


def items_of(manifest: Mapping[str, object] | None, *path: str) -> list[Manifest]:
    """The maps in the list at `path`."""
    value = dig(manifest, *path)
    if not isinstance(value, list):
        return []
    return [cast(Manifest, item) for item in cast(list[object], value) if isinstance(item, dict)]
