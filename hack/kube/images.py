"""Builds the images with buildah, keeps them in one OCI layout, and brings them into the cluster or to a registry.

The layout shares layers between images, and loading leaves out the layers that the node has: after a change of our own
sources a few hundred kilobytes travel, not gigabytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kube import archives, binaries, pip_settings, sources
from kube.node import Cluster
from kube.settings import Folders, versions
from kube.steps import Failure, locked, output, run, step, succeeds

DEBIAN_SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
LEFT_OUT = ("doc", "man", "locale", "info")  # folders of /usr/share that no image needs
KEPT_TAGS = 3
SMALL_LAYER = 1 << 20  # bytes: below it compressing again costs nothing


def layout(folders: Folders) -> Path:
    return folders.cache / "images" / "layout"


def _environment(folders: Folders) -> dict[str, str]:
    """buildah keeps build caches in its temporary folder: that too belongs into ours."""
    temporary = folders.cache / "buildah" / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return {**os.environ, "STORAGE_DRIVER": "overlay", "TMPDIR": str(temporary)}


def _buildah(folders: Folders, *arguments: str | Path) -> list[str | Path]:
    store = folders.cache / "buildah"
    return ["nice", "buildah", "--root", store / "root", "--runroot", store / "run", *arguments]


def _index(folders: Folders) -> list[dict[str, Any]]:
    try:
        return list(json.loads((layout(folders) / "index.json").read_text())["manifests"])
    except FileNotFoundError:
        return []


def _name_of(manifest: dict[str, Any]) -> str:
    return str(manifest.get("annotations", {}).get("org.opencontainers.image.ref.name", ""))


def _built(folders: Folders, image: str) -> bool:
    """Whether the layout has an image in whole: an interrupted command may have left a part."""
    return any(_name_of(entry) == image and _complete(folders, entry) for entry in _index(folders))


def _complete(folders: Folders, manifest: dict[str, Any]) -> bool:
    try:
        return all(_blob(folders, digest).exists() for digest in _blobs(folders, manifest))
    except FileNotFoundError:
        return False


def build(folders: Folders, names: Iterable[str]) -> dict[str, str]:
    """Builds the named images whose inputs changed. Returns name -> full image name."""
    with locked(folders.cache / "images.lock"), tempfile.TemporaryDirectory(prefix="penstock-build-") as scratch:
        context = Path(scratch) / "context"
        context.mkdir()
        sources.snapshot(context)
        wanted = {name: sources.reference(name, context) for name in names}
        missing = {name: image for name, image in wanted.items() if not _built(folders, image)}
        if missing:
            # An interrupted build leaves its containers mounted; under the lock there is no other's.
            leftovers = _buildah(folders, "rm", "--all")
            subprocess.run(leftovers, capture_output=True, env=_environment(folders), check=False)
            base = _base(folders)
            secrets = pip_settings.build_arguments(Path(scratch))
            for name, image in missing.items():
                with step(f"image {name}"):
                    _build(folders, name, image, context, [f"--build-arg=BASE={base}", *secrets])
            _prune(folders)
    return wanted


def _base(folders: Folders) -> str:
    """The smallest Debian, made from the machine's own package sources: no image registry is asked."""
    debian = versions()["DEBIAN"]
    image = f"localhost/penstock-base:{debian}"
    env = _environment(folders)
    if succeeds(_buildah(folders, "inspect", "--type=image", image), env=env):
        return image
    log = folders.logs / "images.log"
    apt_sources = next((file for file in DEBIAN_SOURCES if file.is_file() and file.stat().st_size), None)
    if apt_sources is None:
        raise Failure(f"none of {', '.join(map(str, DEBIAN_SOURCES))} is there: the base image needs a Debian machine")
    with step(f"image base (Debian {debian})"), tempfile.TemporaryDirectory(dir=env["TMPDIR"]) as scratch:
        tar = Path(scratch) / "base.tar"
        options = ["--quiet", "--mode=root", "--variant=minbase"]
        options += [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in LEFT_OUT]
        run(["nice", "mmdebstrap", *options, debian, tar, apt_sources], log, env=env)
        container = output(_buildah(folders, "from", "scratch"), env=env).strip()
        run(_buildah(folders, "add", "--quiet", container, tar, "/"), log, env=env)
        run(_buildah(folders, "config", "--cmd", "bash", container), log, env=env)
        run(_buildah(folders, "commit", "--quiet", "--rm", container, image), log, env=env)
    return image


def _build(folders: Folders, name: str, image: str, context: Path, arguments: list[str]) -> None:
    env, log = _environment(folders), folders.logs / "images.log"
    if name == "spark-operator":
        shutil.copy(binaries.located(folders)["spark-operator"], context / "spark-operator")
        os.utime(context / "spark-operator", (0, 0))
    recipe = context / sources.RECIPES / f"Dockerfile.{name}"
    options = ["--layers", "--isolation=chroot", "--network=host", "--format=oci", *arguments]
    run(_buildah(folders, "build", *options, "--file", recipe, "--tag", image, context), log, env=env)
    _keep(folders, image)


def _keep(folders: Folders, image: str) -> None:
    """Copies an image from buildah's store into the layout, with its larger layers uncompressed.

    buildah would compress every layer again at each copy, but leaves alone what lies there uncompressed.
    """
    layout(folders).parent.mkdir(parents=True, exist_ok=True)
    push = _buildah(folders, "push", "--quiet", "--compression-level=1", image, f"oci:{layout(folders)}:{image}")
    run(push, folders.logs / "images.log", env=_environment(folders))
    (manifest,) = (entry for entry in _index(folders) if _name_of(entry) == image)
    compressed = [layer for layer in _layers(folders, manifest) if _worth_unpacking(layer)]
    for layer in compressed:
        _unpack(folders, layer["digest"])
    if compressed:
        run(push, folders.logs / "images.log", env=_environment(folders))


def _layers(folders: Folders, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return list(json.loads(_blob(folders, manifest["digest"]).read_text())["layers"])


def _worth_unpacking(layer: dict[str, Any]) -> bool:
    return str(layer["mediaType"]).endswith("+gzip") and int(layer["size"]) > SMALL_LAYER


def _unpack(folders: Folders, digest: str) -> None:
    """Replaces a compressed blob by what it holds."""
    packed = _blob(folders, digest)
    unfinished = packed.with_name("unpacked.part")
    sha = hashlib.sha256()
    with gzip.open(packed) as source, unfinished.open("wb") as target:
        while piece := source.read(1 << 20):
            sha.update(piece)
            target.write(piece)
    unfinished.rename(packed.with_name(sha.hexdigest()))
    packed.unlink()


def _blobs(folders: Folders, manifest: dict[str, Any]) -> list[str]:
    """Digests of everything that a manifest needs, its own first."""
    digest = str(manifest["digest"])
    content = json.loads(_blob(folders, digest).read_text())
    return [digest, content["config"]["digest"], *(layer["digest"] for layer in content["layers"])]


def _blob(folders: Folders, digest: str) -> Path:
    return layout(folders) / "blobs" / digest.replace(":", "/")


def _prune(folders: Folders) -> None:
    """Keeps the last few tags of each image; older ones go with the layers that only they have."""
    index = _index(folders)
    by_image: dict[str, list[dict[str, Any]]] = {}
    for manifest in index:
        by_image.setdefault(_name_of(manifest).rpartition(":")[0], []).append(manifest)
    by_image.pop("", None)  # replaced manifests have lost their names
    kept = [manifest for tags in by_image.values() for manifest in tags[-KEPT_TAGS:]]
    needed = {digest for manifest in kept for digest in _blobs(folders, manifest)}
    file = layout(folders) / "index.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "manifests": kept}))
    for blob in (layout(folders) / "blobs" / "sha256").iterdir():
        if f"sha256:{blob.name}" not in needed:
            blob.unlink()
    if old := [_name_of(manifest) for tags in by_image.values() for manifest in tags[:-KEPT_TAGS]]:
        # Not an error if one is gone already, say after an interrupted command.
        subprocess.run(_buildah(folders, "rmi", *old), capture_output=True, env=_environment(folders), check=False)


def load(cluster: Cluster, wanted: Iterable[str]) -> None:
    """Imports built images, by full name, into the node: only those, and only the layers, that it lacks."""
    there = set(output(cluster.ctr("images", "list", "--quiet")).split())
    content = set(output(cluster.ctr("content", "list", "--quiet")).split())
    lacking = set(wanted) - there
    chosen = [manifest for manifest in _index(cluster.folders) if _name_of(manifest) in lacking]
    if chosen:
        _import(cluster, chosen, content)


def _import(cluster: Cluster, manifests: list[dict[str, Any]], content: set[str]) -> None:
    digests = dict.fromkeys(digest for manifest in manifests for digest in _blobs(cluster.folders, manifest))
    blobs = [_blob(cluster.folders, digest) for digest in digests if digest not in content]
    named = [{**entry, "annotations": {archives.NAME_ANNOTATION: _name_of(entry)}} for entry in manifests]
    log = cluster.folders.logs / "load.log"
    with log.open("ab") as out:
        importer = subprocess.Popen(cluster.ctr("images", "import", "-"), stdin=subprocess.PIPE, stdout=out, stderr=out)
        assert importer.stdin is not None
        try:
            with importer.stdin, tarfile.open(fileobj=importer.stdin, mode="w|") as tar:
                archives.add_layout(tar, named, blobs)
        except BrokenPipeError:
            pass  # ctr has ended early; its exit code tells
        if importer.wait() != 0:
            raise Failure(f"containerd refused the images; see the end of {log}")


def push(folders: Folders, registry: str, image: str, *, tls_verify: bool) -> str:
    """Pushes a built image, given by full name, to REGISTRY/penstock-NAME:TAG. Returns that name."""
    target = f"{registry.rstrip('/')}/{image.removeprefix('localhost/')}"
    options = ["--quiet", f"--tls-verify={'true' if tls_verify else 'false'}"]
    command = _buildah(folders, "push", *options, image, f"docker://{target}")
    run(command, folders.logs / "images.log", env=_environment(folders))
    return target
