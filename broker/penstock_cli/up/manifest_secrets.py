"""Secrets and ConfigMaps among the manifests of `penstock up`: their content, and the files made of it for the broker.

Source: docs/reference/security.md.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast

import yaml

from penstock_api.failure import Misuse
from penstock_api.resources import Broker
from penstock_cli.up.manifest_folder import SUFFIXES

__all__ = ["OWNER_ONLY", "content", "find", "write"]

OWNER_ONLY: Final = 0o700


def write(folder: Path, given: Mapping[str, bytes]) -> Path:
    """Write the content of a Secret or ConfigMap into `folder`, one file per key, readable only by its owner."""
    folder.mkdir(mode=OWNER_ONLY)
    for name, data in given.items():
        if "/" in name or name.startswith("."):
            raise Misuse(f"{name!r} can't be the key of a Secret or ConfigMap.", "Use letters, digits, `-`, `_`, `.`.")
        (folder / name).write_bytes(data)
    return folder


def content(broker: Broker, folder: Path, kind: str, name: str) -> Mapping[str, bytes]:
    """The content of a Secret or ConfigMap in the Broker's namespace, read from the manifests in `folder`.

    Raises `Misuse` if there is none of this name.
    """
    found = find(broker, folder, kind, name)
    if found is None:
        namespace = broker.metadata.namespace
        raise Misuse(
            f"Broker {broker.key} names the {kind} {name}, and no manifest in {folder} declares it in namespace "
            f"{namespace}.",
            f"Put the {kind} there, as `kubectl apply` takes it.",
        )
    return found


def find(broker: Broker, folder: Path, kind: str, name: str) -> Mapping[str, bytes] | None:
    """Like `content`, but None if there is none of this name."""
    namespace = broker.metadata.namespace
    for manifest in _manifests(folder):
        metadata = manifest.get("metadata")
        about: Mapping[str, object] = cast("Mapping[str, object]", metadata) if isinstance(metadata, Mapping) else {}
        here = manifest.get("apiVersion") == "v1" and manifest.get("kind") == kind
        if here and about.get("name") == name and about.get("namespace", "default") == namespace:
            return _data(manifest, f"{kind} {namespace}/{name}")
    return None


def _data(manifest: Mapping[str, object], title: str) -> Mapping[str, bytes]:
    """As Kubernetes has it: a Secret's `data` is base64, and `stringData` wins; a ConfigMap's `data` is text."""
    is_secret = manifest["kind"] == "Secret"
    encoded, text = ("data", "stringData") if is_secret else ("binaryData", "data")
    try:
        found = {key: base64.b64decode(value, validate=True) for key, value in _strings(manifest, encoded)}
    except binascii.Error as error:
        raise Misuse(f"{title}: {encoded} is not base64: {error}.", "Encode it, or use text.") from error
    return {**found, **{key: value.encode() for key, value in _strings(manifest, text)}}


def _strings(manifest: Mapping[str, object], key: str) -> Iterator[tuple[str, str]]:
    part = manifest.get(key)
    if isinstance(part, Mapping):
        yield from ((str(name), str(value)) for name, value in cast("Mapping[object, object]", part).items())


def _manifests(folder: Path) -> Iterator[Mapping[str, object]]:
    """All manifests in the folder, of any kind; `manifest_folder.read` has checked that the files are YAML."""
    for path in sorted(each for each in folder.rglob("*") if each.suffix in SUFFIXES and each.is_file()):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if isinstance(document, Mapping):
                yield cast("Mapping[str, object]", document)
