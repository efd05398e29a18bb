"""Kubernetes objects as nested maps, as in JSON, and functions that read them by path.

A field that is missing, or that has another type than asked for, is read as None.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final, cast

__all__ = ["Manifest", "dig", "items_of", "sharing_texts", "text_at", "trimmed"]

Manifest = dict[str, object]

_RECORDS: Final = "managedFields"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def dig(node: object, *path: str) -> object:
    """The value at `path` below `node`, None if there is none."""
    for name in path:
        if not isinstance(node, Mapping):
            return None
        node = cast(Mapping[str, object], node).get(name)
    return node


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


def trimmed(manifest: Manifest) -> Manifest:
    """The object without the records that the API server and kubectl keep in it about who wrote which field. Nothing
    here reads them, and they are larger than the rest of a Subscription.
    """
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        return manifest
    kept = {name: value for name, value in cast(Manifest, metadata).items() if name != _RECORDS}
    annotations = kept.get("annotations")
    if isinstance(annotations, dict) and _LAST_APPLIED in annotations:
        kept["annotations"] = {
            name: text for name, text in cast(Manifest, annotations).items() if name != _LAST_APPLIED
        }
    return {**manifest, "metadata": kept}


def sharing_texts(manifest: Manifest) -> Manifest:
    """The object with texts that all objects share: the names of fields, and what is in spec and status. Each object
    comes with texts of its own, and those of ten thousand Subscriptions are mostly the same.
    """
    return {sys.intern(name): _sharing(value, values=name != "metadata") for name, value in manifest.items()}


def _sharing(node: object, *, values: bool) -> object:
    """`values`: whether texts are shared that name no field; a name, a uid or a version is that of one object."""
    if type(node) is str:
        return sys.intern(node) if values else node
    if isinstance(node, dict):
        fields = cast(Manifest, node).items()
        return {sys.intern(name): _sharing(value, values=values) for name, value in fields}
    if isinstance(node, list):
        return [_sharing(value, values=values) for value in cast(list[object], node)]
    return node
