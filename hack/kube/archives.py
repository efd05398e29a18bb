"""Image archives in the OCI layout, made without any image builder: for images that hold one static program."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
NAME_ANNOTATION = "io.containerd.image.name"


def _layer(program: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entry = tarfile.TarInfo(program.name)
        entry.size, entry.mode = program.stat().st_size, 0o755
        with program.open("rb") as content:
            tar.addfile(entry, content)
    return packed.getvalue()


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Adds a file of these bytes to an archive."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))


def add_layout(tar: tarfile.TarFile, manifests: list[dict[str, Any]], blobs: Iterable[Path]) -> None:
    """Fills an archive with an OCI layout: files named by their digests, and the index of what they are."""
    for blob in blobs:
        tar.add(blob, f"blobs/sha256/{blob.name}")
    add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests}
    add(tar, "index.json", json.dumps(index).encode())


def single_program(image: str, program: Path, archive: Path, *, user: str) -> None:
    """Writes the archive of an image whose only file and entry point is `program`."""
    layer = _layer(program)
    blobs: dict[str, bytes] = {}

    def blob(media_type: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    config = {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": user},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": blob(CONFIG_TYPE, json.dumps(config).encode()),
        "layers": [blob(LAYER_TYPE, gzip.compress(layer, compresslevel=1, mtime=0))],
    }
    entry = {**blob(MANIFEST_TYPE, json.dumps(manifest).encode()), "annotations": {NAME_ANNOTATION: image}}
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".part")
    with tarfile.open(unfinished, "w") as tar:
        for digest, content in blobs.items():
            add(tar, f"blobs/sha256/{digest}", content)
        add_layout(tar, [entry], ())
    unfinished.rename(archive)
