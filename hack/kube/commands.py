"""The commands of hack/cluster."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from kube import binaries, images, preflight, sandbox, spark
from kube.node import DAEMONS, Cluster, boot, restart_daemon
from kube.settings import addresses, folders, versions
from kube.steps import FAILED, USAGE, Failure, locked, run, say, step

DESCRIPTION = """\
Runs a real Kubernetes node on this machine, in network, mount and process namespaces of its own. The node has etcd, the
API server, controller manager, scheduler, kubelet, kube-proxy, CoreDNS, containerd, a volume provisioner and the
Kubeflow Spark operator. None of these programs is downloaded: they are built from their Go modules once, which takes
about ten minutes, and are kept in ${PENSTOCK_CACHE:-~/.cache/penstock}. It needs root. See docs/how-to/cluster.md."""

EXIT_CODES = """\
Exit code: 0 if it was done, 1 if it failed, 2 for a wrong command line, 3 if this machine lacks something
(all of it is named)."""

# Gigabytes that the file system of the cache must have free: to build the programs and images, or with these built.
DISK_TO_BUILD, DISK_TO_RUN = 11, 4


def _cluster() -> Cluster:
    preflight.need_root()
    try:
        at, places = addresses(), folders()
    except ValueError as wrong:
        raise Failure(str(wrong), USAGE) from wrong
    return Cluster(places, at, binaries.located(places))


def _preflight(cluster: Cluster, options: argparse.Namespace) -> None:
    unbuilt = bool(binaries.missing(cluster.folders))
    needs = preflight.CLUSTER + (preflight.IMAGES if options.spark else ())
    disk = DISK_TO_BUILD if unbuilt else DISK_TO_RUN
    install = options.yes or bool(os.environ.get("CI"))
    preflight.check(cluster.folders, needs, builds_go=unbuilt, disk_gib=disk, install=install)


def up(options: argparse.Namespace) -> int:
    cluster = _cluster()
    if cluster.ready() and (not options.spark or spark.installed(cluster)):
        say(f"the cluster is up: export KUBECONFIG={cluster.folders.kubeconfig}")
        return 0
    _preflight(cluster, options)
    with locked(cluster.folders.cache / "lock"):
        ready = cluster.ready()
        if not ready:
            _make_room(cluster)
        binaries.build(cluster.folders)
        if not ready:
            _boot(cluster)
        if options.spark and not spark.installed(cluster):
            spark.install(cluster)
    say('the cluster is up: eval "$(hack/cluster env)" for kubectl and helm, hack/cluster down to end it')
    return 0


def build(options: argparse.Namespace) -> int:
    cluster = _cluster()
    _preflight(cluster, options)
    with locked(cluster.folders.cache / "lock"):
        binaries.build(cluster.folders)
        if options.spark:
            images.build(cluster.folders, ("spark-operator",))
    return 0


def _make_room(cluster: Cluster) -> None:
    if sandbox.recorded(cluster.folders) is not None:
        dead = cluster.ended_daemons()
        say(f"the cluster was left half up (not working: {', '.join(dead) or 'API server'}); it is made anew")
        sandbox.remove(cluster.folders)
    sandbox.refuse_clash(cluster.folders, cluster.at)


def _boot(cluster: Cluster) -> None:
    try:
        boot(cluster)
    except BaseException:
        say(f"removing what was begun; the logs stay in {cluster.folders.node_logs}")
        sandbox.remove(cluster.folders)
        raise


def down(_: argparse.Namespace) -> int:
    cluster = _cluster()
    if (other := sandbox.foreign(cluster.folders)) is not None:
        raise Failure(f"the cluster that is up belongs to PENSTOCK_CACHE={other.cache}; set it to end that one")
    if sandbox.recorded(cluster.folders) is None and not cluster.folders.state.exists():
        say("the cluster is down already")
        return 0
    with locked(cluster.folders.cache / "lock"), step("cluster down"):
        sandbox.remove(cluster.folders)
    return 0


def status(_: argparse.Namespace) -> int:
    cluster = _cluster()
    ended = set(cluster.ended_daemons())
    for name in DAEMONS:
        print(f"{name:<26}{'ended' if name in ended else 'runs'}")
    serves = "kube-apiserver" not in ended and cluster.serves()
    print(f"{'API server':<26}{'serves' if serves else 'does not answer'}")
    print(f"{'Spark operator':<26}{'ready' if serves and spark.installed(cluster) else 'not ready'}")
    return FAILED if ended or not serves else 0


def restart(options: argparse.Namespace) -> int:
    cluster = _cluster()
    with locked(cluster.folders.cache / "lock"), step(f"{options.daemon} killed, and started {options.away:g} s later"):
        restart_daemon(cluster, options.daemon, options.away)
    return 0


def env(_: argparse.Namespace) -> int:
    cluster = _cluster()
    commands = f"{cluster.programs['kubectl'].parent}:{cluster.programs['helm'].parent}"
    print(f"export KUBECONFIG={cluster.folders.kubeconfig}")
    print(f'export PATH="{commands}:$PATH"')
    return 0


def kubeconfig(_: argparse.Namespace) -> int:
    print(_cluster().folders.kubeconfig)
    return 0


def kubectl(options: argparse.Namespace) -> int:
    cluster = _cluster()
    if sandbox.running(cluster.folders) is None:
        raise Failure("the cluster is not up; start it with: hack/cluster up")
    sys.stdout.flush()
    os.execve(cluster.programs["kubectl"], ["kubectl", *options.arguments], cluster.environment)


def load(options: argparse.Namespace) -> int:
    cluster = _cluster()
    for archive in options.archives:
        if not archive.is_file():
            raise Failure(f"{archive} is not a file; give image archives (docker, OCI), or use hack/images load", USAGE)
    with locked(cluster.folders.cache / "lock"):
        for archive in options.archives:
            with step(f"load {archive.name}"):
                run(cluster.ctr("images", "import", str(archive)), cluster.folders.logs / "load.log")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/cluster",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")

    def verb(name: str, run_it: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(run=run_it)
        return added

    def builds(parser: argparse.ArgumentParser) -> None:
        text = "installs missing Debian packages; this is the default when CI is set"
        parser.add_argument("--yes", action="store_true", help=text)
        parser.add_argument("--no-spark", dest="spark", action="store_false", help="leaves out the Spark operator")

    builds(
        verb(
            "up",
            up,
            "builds what is missing, starts the node and installs the Spark operator; does nothing if the node runs",
        )
    )
    builds(
        verb(
            "build",
            build,
            "only builds what `up` needs; the first time this takes ten minutes, and five for the images",
        )
    )
    verb("down", down, "ends the node and removes everything that it made; built programs and images stay in the cache")
    verb(
        "status",
        status,
        "prints which daemons run; the exit code is 1 unless all of them run and the API server serves",
    )
    restarter = verb("restart", restart, "kills a daemon with kill -9, as a crash would, and starts it again")
    restarter.add_argument("daemon", choices=DAEMONS)
    restarter.add_argument(
        "--away", type=float, default=0, metavar="SECONDS", help="waits for SECONDS before it starts the daemon again"
    )
    verb(
        "env",
        env,
        'prints shell lines that set up kubectl and helm for this node; use them with: eval "$(hack/cluster env)"',
    )
    verb("kubeconfig", kubeconfig, "prints the path of the administrator's kubeconfig")
    kubectl_verb = verb("kubectl", kubectl, f"runs kubectl {versions()['KUBERNETES']} on this cluster")
    kubectl_verb.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    loader = verb("load", load, "imports image archives into the node's containerd")
    loader.add_argument("archives", nargs="+", type=Path, metavar="IMAGE_TAR")
    return parser


def main() -> int:
    """Runs the command line. Returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was begun is removed, as after Ctrl-C
    if sys.argv[1:2] == ["kubectl"]:  # everything behind it is kubectl's, --help too
        options = argparse.Namespace(run=kubectl, arguments=sys.argv[2:])
    else:
        options = _parser().parse_args()
    try:
        code: int = options.run(options)
    except Failure as failure:
        print(f"hack/cluster: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        print("hack/cluster: interrupted", file=sys.stderr)
        return FAILED
    return code
