"""The node's own network, mount and process namespaces, and the virtual network link to the host.

One small process (`pause`) is process 1 of the node. Every daemon and container descends from it, every mount and link
is made inside, so ending that one process ends all of them: nothing can be left over, however `up` was interrupted.
What namespaces do not cover (cgroups, folders) is written down in `node.json` and removed by name.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path

from kube import cgroups
from kube.settings import Addresses, Folders
from kube.steps import NOT_POSSIBLE, Failure, output, run, wait_until

# Places outside the cache that the daemons write to whatever their options are; inside the node they are empty memory.
COVERED = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")
SYSCTLS = ("net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")


@dataclass(frozen=True, slots=True)
class Node:
    """A started sandbox: its process 1 as the host sees it, and what must be removed by name."""

    pid: int
    started: int  # clock ticks since boot: distinguishes the process from a later one with the same number
    cache: str
    whole: str
    made: tuple[str, ...]

    def enter(self, command: Sequence[str | Path]) -> list[str]:
        """The command as it must be given on the host to run inside the node."""
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--", *map(str, command)]

    def enter_network(self, command: Sequence[str | Path]) -> list[str]:
        """The same for a command that only needs the node's network, and knows processes by the host's numbers."""
        return ["nsenter", f"--target={self.pid}", "--net", "--", *map(str, command)]


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the program's name: [0] is the state, [19] the start time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _alive(node: Node) -> bool:
    fields = _stat_fields(node.pid)
    # A zombie has ended: some machines' process 1 collects it late.
    return bool(fields) and fields[0] not in "ZX" and int(fields[19]) == node.started


def _record(folders: Folders) -> Path:
    return folders.run / "node.json"


def _read(folders: Folders) -> Node | None:
    try:
        fields = json.loads(_record(folders).read_text())
    except FileNotFoundError:
        return None
    return Node(**{**fields, "made": tuple(fields["made"])})


def recorded(folders: Folders) -> Node | None:
    """The sandbox that was started last from this cache and not removed, alive or not."""
    node = _read(folders)
    return node if node is not None and node.cache == str(folders.cache) else None


def foreign(folders: Folders) -> Node | None:
    """The sandbox of the same name of another cache, if it is running."""
    node = _read(folders)
    return node if node is not None and node.cache != str(folders.cache) and _alive(node) else None


def running(folders: Folders) -> Node | None:
    """The sandbox if its process 1 is running."""
    node = recorded(folders)
    return node if node is not None and _alive(node) else None


def programs(node: Node) -> dict[str, int]:
    """Program name -> process number on the host, of everything in the node but containers' contents."""
    inside = os.readlink(f"/proc/{node.pid}/ns/pid")
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.readlink(entry / "ns" / "pid") == inside:
                found[Path((entry / "cmdline").read_bytes().split(b"\0")[0].decode()).name] = int(entry.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # ended meanwhile, or not to be looked at and thus not ours
    return found


def _used_ranges() -> Iterator[tuple[IPv4Network, str]]:
    for route in json.loads(output(["ip", "-json", "-4", "route", "show", "table", "all"])):
        destination = route.get("dst", "default")
        if destination != "default" and route.get("type", "unicast") in ("unicast", "local"):
            yield IPv4Network(destination), f"a route to {destination} by {route.get('dev', '?')}"


def refuse_clash(folders: Folders, at: Addresses) -> None:
    """Raises Failure (exit code 3) if a name or an address range is in use already."""
    if (other := foreign(folders)) is not None:
        cure = f"end it with PENSTOCK_CACHE={other.cache} hack/cluster down, or set PENSTOCK_CLUSTER_NAME and _RANGE"
        raise Failure(f"a cluster of the same name and another cache is up; {cure}", NOT_POSSIBLE)
    if Path("/sys/class/net", folders.link).exists():
        cure = f"remove it with: ip link delete {folders.link}"
        raise Failure(f"a network link {folders.link} is there that is not ours; {cure}", NOT_POSSIBLE)
    for used, how in _used_ranges():
        if used.overlaps(at.whole):
            raise Failure(f"{at.whole} is in use: {how}; name a free /16 with PENSTOCK_CLUSTER_RANGE", NOT_POSSIBLE)


def start(folders: Folders, at: Addresses, pause: Path, *, within: Node | None = None) -> Node:
    """Makes the namespaces, the network link and the cgroup. Raises Failure if the kernel refuses one.

    `within`: the first node, for a worker. It is connected to that one, and ends with it: its process namespace is
    inside the other. Everything else is its own.
    """
    made = _make_folders()
    folders.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    covers = "".join(f"mount -t tmpfs -o mode=755 penstock {folder}\n" for folder in COVERED)
    own = _identity(folders) if within else ""
    script = f"set -e\nmount --make-rshared /\n{covers}{own}ip link set lo up\nexec {pause}\n"
    log = folders.node_logs / "node.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    inside = ["nsenter", f"--target={within.pid}", "--pid", "--"] if within else []
    with log.open("ab") as out:
        unshare = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--mount-proc", "sh", "-c", script]
        outer = subprocess.Popen(
            [*inside, *unshare], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    pid = _first_process(outer, log)
    node = Node(pid, int(_stat_fields(pid)[19]), str(folders.cache), str(at.whole), made)
    _record(folders).write_text(json.dumps(asdict(node)))
    _lay_cable(folders.link, node, at, log, within.enter_network if within else list)
    return node


def _identity(folders: Folders) -> str:
    """Lines that give a worker a host name and a machine id of its own."""
    own = folders.run / "machine-id"
    own.write_text(hashlib.md5(folders.node.encode(), usedforsecurity=False).hexdigest() + "\n")
    theirs = Path("/etc/machine-id")
    return f"hostname {folders.node}\n" + (f"mount --bind {own} {theirs}\n" if theirs.exists() else "")


def worker_numbers(folders: Folders) -> list[int]:
    """The workers that were started beside this first node and not removed, alive or not."""
    return sorted(int(place.parent.name.rpartition("-")[2]) for place in folders.run.glob("worker-*/node.json"))


def _make_folders() -> tuple[str, ...]:
    made: list[str] = []
    for name in COVERED:
        folder = Path(name)
        new = [str(place) for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        made += new
    return tuple(made)


def _first_process(outer: subprocess.Popen[bytes], log: Path) -> int:
    """The process that each of nsenter and unshare starts, down to the program that stays."""

    def newest(pid: int) -> int:
        child = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return newest(int(child[0])) if child else pid

    def ready() -> bool:
        if outer.poll() is not None:
            raise Failure(f"the kernel refused the node's namespaces; see {log}")
        return Path(f"/proc/{newest(outer.pid)}/comm").read_text().strip() == "pause"

    wait_until(ready, "the node's first process", seconds=10, cure=f"see {log}")
    return newest(outer.pid)


def _lay_cable(
    link: str, node: Node, at: Addresses, log: Path, outside: Callable[[Sequence[str | Path]], Sequence[str | Path]]
) -> None:
    """`outside` makes of a command the one that runs at the other end of the cable."""
    length = at.cable.prefixlen
    run(outside(["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(node.pid)]), log)
    run(outside(["ip", "address", "add", f"{at.host}/{length}", "dev", link]), log)
    run(outside(["ip", "link", "set", link, "up"]), log)
    run(node.enter(["ip", "address", "add", f"{at.node}/{length}", "dev", "eth0"]), log)
    run(node.enter(["ip", "link", "set", "eth0", "up"]), log)
    run(node.enter(["ip", "route", "add", "default", "via", at.host]), log)
    for range_ in at.behind:
        run(outside(["ip", "route", "add", str(range_), "via", at.node]), log)
    if at.worker:  # what is sent to a worker that is off is not answered
        run(outside(["ip", "route", "replace", "blackhole", str(at.pods)]), log)
    for setting in SYSCTLS:
        run(node.enter(["sysctl", "-q", "-w", setting]), log)


def remove(folders: Folders) -> None:
    """Ends the sandbox, if there is one, and removes everything it made. Raises Failure if something stays."""
    node = recorded(folders)
    if node is not None and _alive(node):
        os.kill(node.pid, signal.SIGTERM)
        wait_until(lambda: not _alive(node), "the node's processes end", seconds=60, cure=f"look at process {node.pid}")
    for name in (folders.cgroup, *(replace(folders, worker=number).cgroup for number in worker_numbers(folders))):
        cgroups.remove(name)
    if folders.state.exists():
        shutil.rmtree(folders.state.resolve())
        folders.state.unlink(missing_ok=True)  # if it was a link, say to another disk
    shutil.rmtree(folders.run, ignore_errors=True)
    if node is not None and not any(Path("/run").glob("*-cluster/node.json")):  # another cluster may use them
        _remove_folders(node.made)


def _remove_folders(made: tuple[str, ...]) -> None:
    for name in sorted(made, key=len, reverse=True):
        if Path(name).is_dir() and not any(Path(name).iterdir()):
            Path(name).rmdir()
