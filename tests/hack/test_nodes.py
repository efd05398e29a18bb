"""What hack/soak/nodes is made of, without a cluster: ranges and folders of workers, what it takes from the runbook."""

from __future__ import annotations

import itertools
import subprocess
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from e2e.kube import ROOT
from kube import pki
from kube.settings import Addresses, Folders
from kube.workers import MOST
from support.followed_page import Page
from support.nodes_parts import COMMANDS, PARTS
from support.nodes_stage import PAGE, WORKERS
from support.nodes_watch import attached

WHOLE = IPv4Network("10.214.0.0/16")
EVERY = range(MOST + 1)


def test_no_node_has_an_address_of_another() -> None:
    nodes = [Addresses(WHOLE, worker) for worker in EVERY]
    ranges = [part for at in nodes for part in (at.cable, at.node_pods)]
    assert not any(one.overlaps(other) for one, other in itertools.combinations([*ranges, nodes[0].services], 2))
    assert all(at.node_pods.subnet_of(nodes[0].pods) for at in nodes)
    assert {at.api_server for at in nodes} == {nodes[0].node}


def test_the_first_node_routes_for_its_workers_and_the_host_for_the_whole_cluster() -> None:
    first, worker = Addresses(WHOLE), Addresses(WHOLE, 1)
    assert first.behind == (first.services, first.pods)
    assert worker.behind == (worker.node_pods,)
    assert IPv4Address(worker.host) in worker.cable


def test_nodes_have_nothing_in_common_but_the_administrators_access(tmp_path: Path) -> None:
    nodes = [Folders(tmp_path, "some", worker) for worker in EVERY]
    for places in zip(*((it.node, it.state, it.run, it.link, it.cgroup, it.node_logs) for it in nodes), strict=True):
        assert len(set(places)) == len(nodes)
    assert {it.kubeconfig for it in nodes} == {nodes[0].state / "pki" / "admin.kubeconfig"}
    assert all(len(str(it.containerd)) < 108 for it in nodes)


def test_the_certificate_of_a_worker_is_of_the_clusters_authority_and_its_own_name(tmp_path: Path) -> None:
    first, worker = tmp_path / "first", tmp_path / "worker"
    pki.make(first, Addresses(WHOLE), tmp_path / "log")
    pki.make_worker(worker, first, "worker-2", Addresses(WHOLE, 2), tmp_path / "log")
    words = ["openssl", "verify", "-CAfile", "ca.crt", "-verify_ip", "10.214.2.1", "-verify_hostname", "worker-2"]
    ran = subprocess.run([*words, "kubelet.crt"], cwd=worker, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "https://10.214.0.1:6443" in (worker / "kubelet.kubeconfig").read_text()
    assert not (worker / "ca.key").exists(), "the authority's key is the first node's alone"


@pytest.mark.parametrize("beginning", COMMANDS)
def test_the_runbook_shows_each_command_that_is_followed_once(beginning: str, tmp_path: Path) -> None:
    assert Page(PAGE, {}, tmp_path, lambda _: None).command(beginning)


def test_help_names_each_part() -> None:
    said = subprocess.run(["hack/soak/nodes", "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(f"\n  {name} " in said for name in PARTS)
    wrong = subprocess.run(["hack/soak/nodes", "drian"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert f"there is no part drian; there are: {', '.join(PARTS)}" in wrong.stderr


def test_there_is_a_range_for_each_worker() -> None:
    assert max(WORKERS) <= MOST


def test_a_volume_counts_once_for_a_node_however_many_pods_use_it() -> None:
    staged = "/x/kubelet/plugins/kubernetes.io/csi/loop.penstock.dev/abc/globalmount"
    lines = [
        f"612 30 7:0 / {staged} rw,relatime shared:9 - xfs /dev/loop0 rw",
        "613 30 7:0 / /x/kubelet/pods/uid/volumes/kubernetes.io~csi/pvc-1/mount rw - xfs /dev/loop0 rw",
        "30 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw",
    ]
    assert attached("\n".join(lines)) == {"abc"}
