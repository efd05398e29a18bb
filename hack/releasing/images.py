"""The images of a release as OCI archives, from the layout into which hack/images has built them.

The layout has one copy of the layers that images share; each archive has all that it needs.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kube import images, sources
from kube.archives import INDEX_TYPE, NAME_ANNOTATION
from kube.settings import Folders

from releasing.source import Commit

__all__ = ["build_images", "debian_packages", "write_archive"]

_TAG_ANNOTATION: Final = "org.opencontainers.image.ref.name"
_DPKG: Final = "var/lib/dpkg/status"


def build_images(folders: Folders) -> dict[str, str]:
    """Build the images that are not built yet. Returns short name -> full name in the layout."""
    return images.build(folders, sources.APPLICATIONS)


def write_archive(layout: Path, image: str, name: str, version: str, commit: Commit, target: Path) -> None:
    """Write the image of this full name as `name`:`version` into an OCI archive."""
    manifest = _manifest_of(layout, image)
    about = {NAME_ANNOTATION: f"{name}:{version}", _TAG_ANNOTATION: version}
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [{**manifest, "annotations": about}]}
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}', commit.seconds)
        _add(tar, "index.json", json.dumps(index, sort_keys=True).encode(), commit.seconds)
        for digest in sorted(_digests(layout, manifest)):
            blob = _blob(layout, digest)
            entry = tarfile.TarInfo(f"blobs/{digest.replace(':', '/')}")
            entry.size, entry.mode, entry.mtime = blob.stat().st_size, 0o644, commit.seconds
            with blob.open("rb") as content:
                tar.addfile(entry, content)


def debian_packages(layout: Path, image: str) -> dict[str, str]:
    """Name -> version of the Debian packages in an image."""
    status = b""
    for layer in _content(layout, _manifest_of(layout, image))["layers"]:
        blob = _blob(layout, str(layer["digest"]))
        with blob.open("rb") as content, tarfile.open(fileobj=content, mode="r|*") as tar:  # compressed or not
            status = _found(tar) or status  # a later layer's file is the image's
    return dict(_installed(status.decode()))


def _found(tar: tarfile.TarFile) -> bytes | None:
    for entry in tar:
        if entry.name.removeprefix("./") == _DPKG:
            content = tar.extractfile(entry)
            return None if content is None else content.read()
    return None


def _installed(status: str) -> Iterator[tuple[str, str]]:
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Status", "").endswith(" installed"):
            yield fields["Package"], fields["Version"]


def _manifest_of(layout: Path, image: str) -> dict[str, Any]:
    index = json.loads((layout / "index.json").read_text())
    (found,) = (it for it in index["manifests"] if it.get("annotations", {}).get(_TAG_ANNOTATION) == image)
    return {key: value for key, value in found.items() if key != "annotations"}


def _content(layout: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_blob(layout, str(manifest["digest"])).read_text())
    return content


def _digests(layout: Path, manifest: dict[str, Any]) -> set[str]:
    content = _content(layout, manifest)
    return {str(manifest["digest"]), content["config"]["digest"], *(layer["digest"] for layer in content["layers"])}


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def _add(tar: tarfile.TarFile, name: str, content: bytes, seconds: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), 0o644, seconds
    tar.addfile(entry, io.BytesIO(content))
