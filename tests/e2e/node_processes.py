"""Processes of a pod's container, as the host of a hack/cluster node sees them: to end one as a crash would.

Inside its own namespace process 1 can't be killed with -9; from the host it can. Needs root.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

__all__ = ["freeze", "kill", "of_container", "of_daemon"]


def of_container(pod_uid: str, verb: str) -> int | None:
    """Process id of the `penstock VERB` that runs in the pod; None if none does."""
    names = (pod_uid, pod_uid.replace("-", "_"))
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            group = (folder / "cgroup").read_text()
        except OSError:  # it has ended meanwhile
            continue
        if verb.encode() in words[:4] and any(name in group for name in names):
            return int(folder.name)
    return None


def of_daemon(name: str) -> int | None:
    """Process id of a daemon of the node, such as the kubelet; None if it does not run."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            program = (folder / "cmdline").read_bytes().split(b"\0")[0]
        except OSError:  # it has ended meanwhile
            continue
        if Path(program.decode(errors="replace")).name == name:
            return int(folder.name)
    return None


def freeze(pid: int) -> None:
    """Stop it where it is: it does nothing any more, and hears of no SIGTERM, until it is killed."""
    os.kill(pid, signal.SIGSTOP)


def kill(pid: int) -> None:
    """kill -9."""
    os.kill(pid, signal.SIGKILL)
