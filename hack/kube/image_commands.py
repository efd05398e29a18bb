"""The commands of hack/images."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from kube import binaries, images, preflight, sandbox, sources, workers
from kube.node import Cluster
from kube.settings import addresses, folders
from kube.steps import FAILED, USAGE, Failure, step

DESCRIPTION = """\
Builds the container images of Penstock: broker (the observer runs from it, too), operator, lag, and spark-operator,
which is the Kubeflow Spark operator for the local cluster. They are built with buildah from hack/dockerfiles, on a
Debian base that is made here. A tag is a hash of what goes into the images, and images that did not change are not
built again. It needs root. See docs/how-to/cluster.md."""
DISK_GIB = 6


def _build(options: argparse.Namespace) -> dict[str, str]:
    places = folders()
    names = options.names or sources.APPLICATIONS
    install = options.yes or bool(os.environ.get("CI"))
    preflight.check(places, preflight.IMAGES, builds_go=False, disk_gib=DISK_GIB, install=install)
    if "spark-operator" in names:
        binaries.build(places)
    return images.build(places, names)


def build(options: argparse.Namespace) -> int:
    print(*_build(options).values(), sep="\n")
    return 0


def load(options: argparse.Namespace) -> int:
    preflight.need_root()
    places = folders()
    cluster = Cluster(places, addresses(), binaries.located(places))
    if sandbox.running(places) is None:
        raise Failure("the cluster is not up; start it with: hack/cluster up")
    built = _build(options)
    with step(f"load {', '.join(built)}"):
        for node in (cluster, *workers.running(cluster)):
            images.load(node, built.values())
    print(*built.values(), sep="\n")
    return 0


def push(options: argparse.Namespace) -> int:
    for name, image in _build(options).items():
        with step(f"push {name}"):
            target = images.push(folders(), options.registry, image, tls_verify=options.tls_verify == "true")
        print(target)
    return 0


def tag(options: argparse.Namespace) -> int:
    print(sources.tag(options.name))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack/images", description=DESCRIPTION)
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")

    def verb(name: str, run_it: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(run=run_it)
        return added

    def builds(parser: argparse.ArgumentParser) -> None:
        text = "installs missing Debian packages; this is the default when CI is set"
        parser.add_argument("--yes", action="store_true", help=text)
        text = f"names an image: {', '.join(sources.NAMES)}; without a name all but the last are taken"
        parser.add_argument("names", nargs="*", choices=[*sources.NAMES, []], metavar="NAME", help=text)

    builds(
        verb(
            "build", build, "builds the images that changed, and prints the full names; progress goes to standard error"
        )
    )
    builds(
        verb(
            "load",
            load,
            "builds the images that changed, brings them into the cluster of hack/cluster, and prints the full names",
        )
    )
    text = "builds the images that changed and pushes them as REGISTRY/penstock-NAME:TAG; use buildah login before"
    pusher = verb("push", push, text)
    text = "is false for a registry without TLS"
    pusher.add_argument("--tls-verify", choices=("true", "false"), default="true", help=text)
    pusher.add_argument("registry", metavar="REGISTRY")
    builds(pusher)
    tagger = verb("tag", tag, "prints the tag that the images of the present sources have")
    text = "spark-operator, for its tag; all other images have one tag in common"
    tagger.add_argument("name", nargs="?", choices=sources.NAMES, default="broker", metavar="NAME", help=text)
    return parser


def main() -> int:
    """Runs the command line. Returns the exit code."""
    options = _parser().parse_args()
    try:
        folders(), addresses()
    except ValueError as wrong:
        print(f"hack/images: {wrong}", file=sys.stderr)
        return USAGE
    try:
        code: int = options.run(options)
    except Failure as failure:
        print(f"hack/images: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        print("hack/images: interrupted", file=sys.stderr)
        return FAILED
    return code
