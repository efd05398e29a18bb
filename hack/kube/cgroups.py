"""The cgroup below which the kubelet keeps its pods: one folder with version 2, one per controller with version 1.

Namespaces do not cover cgroups, so these are made and removed by name.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from kube.steps import NOT_POSSIBLE, Failure

CGROUPS = Path("/sys/fs/cgroup")
KUBELET_CONTROLLERS = {"cpu", "cpuset", "hugetlb", "memory", "pids"}


def _roots(name: str) -> list[Path]:
    """The folder of this name in every cgroup hierarchy: one with version 2, one per controller with version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / name]
    return [place / name for place in CGROUPS.iterdir() if place.is_dir() and not place.is_symlink()]


def make(name: str) -> None:
    """Makes the folders of this name, below which the kubelet makes its own.

    Raises Failure (exit code 3) if version 2 does not let us have a controller that the kubelet insists on.
    """
    if (CGROUPS / "cgroup.controllers").exists():
        _hand_down(CGROUPS)
    for root in _roots(name):
        root.mkdir(exist_ok=True)


def _hand_down(parent: Path) -> None:
    """Version 2: a folder has the controllers that its parent hands down."""
    offered = set((parent / "cgroup.controllers").read_text().split())
    handed_down = parent / "cgroup.subtree_control"
    for controller in sorted((offered & KUBELET_CONTROLLERS) - set(handed_down.read_text().split())):
        try:
            handed_down.write_text(f"+{controller}")
        except OSError as refused:
            raise Failure(f"{handed_down} refuses +{controller}: {refused.strerror}", NOT_POSSIBLE) from refused


def remove(name: str) -> None:
    """Removes the folders of this name. Raises Failure if a process stays in one."""
    for root in _roots(name):
        _remove_tree(root)


def _remove_tree(root: Path) -> None:
    deadline = time.monotonic() + 10
    while root.exists():
        for folder, _, _ in os.walk(root, topdown=False):
            try:
                os.rmdir(folder)
            except OSError as busy:  # its last process is still being taken down
                if time.monotonic() > deadline:
                    raise Failure(f"the cgroup {folder} can't be removed: {busy.strerror}") from busy
        time.sleep(0.05)
