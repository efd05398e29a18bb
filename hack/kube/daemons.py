"""The command lines of the node's daemons, in the order in which they may start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kube.binaries import Binaries
from kube.settings import NODE_NAME, PROVISIONER, Addresses, Folders

Command = list[str | Path]
ETCD = "http://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"


def options(values: Mapping[str, object]) -> list[str | Path]:
    """The values as options of a command."""
    return [f"--{name}={value}" for name, value in values.items()]


def etcd(folders: Folders, programs: Binaries) -> Command:
    """Without fsync: the cluster does not outlive a crash of the machine anyway."""
    flags = {
        "name": NODE_NAME,
        "data-dir": folders.state / "etcd",
        "unsafe-no-fsync": "true",
        "listen-client-urls": ETCD,
        "advertise-client-urls": ETCD,
        "listen-peer-urls": ETCD_PEER,
        "initial-advertise-peer-urls": ETCD_PEER,
        "initial-cluster": f"{NODE_NAME}={ETCD_PEER}",
    }
    return [programs["etcd"], *options(flags)]


def api_server(folders: Folders, programs: Binaries, at: Addresses) -> Command:
    pki = folders.state / "pki"
    flags = {
        "etcd-servers": ETCD,
        "advertise-address": at.node,
        "secure-port": 6443,
        "service-cluster-ip-range": at.services,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "client-ca-file": pki / "ca.crt",
        "tls-cert-file": pki / "apiserver.crt",
        "tls-private-key-file": pki / "apiserver.key",
        "kubelet-client-certificate": pki / "apiserver-to-kubelet.crt",
        "kubelet-client-key": pki / "apiserver-to-kubelet.key",
        "kubelet-certificate-authority": pki / "ca.crt",
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": pki / "sa.pub",
        "service-account-signing-key-file": pki / "sa.key",
        "requestheader-client-ca-file": pki / "aggregator-ca.crt",
        "requestheader-allowed-names": "aggregator",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": pki / "aggregator.crt",
        "proxy-client-key-file": pki / "aggregator.key",
        "enable-aggregator-routing": "true",
        "profiling": "false",
    }
    return [programs["kube-apiserver"], *options(flags)]


def _as_client(kubeconfig: Path) -> dict[str, object]:
    names = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    switched_off = {"leader-elect": "false", "profiling": "false"}
    return {**dict.fromkeys(names, kubeconfig), "bind-address": "127.0.0.1", **switched_off}


def controller_manager(folders: Folders, programs: Binaries, at: Addresses) -> Command:
    """Its default of 20 requests a second would hold up the start by five seconds."""
    pki = folders.state / "pki"
    flags = {
        **_as_client(pki / "controller-manager.kubeconfig"),
        "kube-api-qps": 300,
        "kube-api-burst": 500,
        "use-service-account-credentials": "true",
        "root-ca-file": pki / "ca.crt",
        "service-account-private-key-file": pki / "sa.key",
        "cluster-signing-cert-file": pki / "ca.crt",
        "cluster-signing-key-file": pki / "ca.key",
        "service-cluster-ip-range": at.services,
        "allocate-node-cidrs": "false",
    }
    return [programs["kube-controller-manager"], *options(flags)]


def scheduler(folders: Folders, programs: Binaries) -> Command:
    return [programs["kube-scheduler"], *options(_as_client(folders.state / "pki" / "scheduler.kubeconfig"))]


def kubelet(folders: Folders, programs: Binaries, at: Addresses) -> Command:
    flags = {
        "config": folders.state / "kubelet.yaml",
        "kubeconfig": folders.state / "pki" / "kubelet.kubeconfig",
        "root-dir": folders.state / "kubelet",
        "cert-dir": folders.state / "kubelet-pki",
        "hostname-override": folders.node,
        "node-ip": at.node,
    }
    return [programs["kubelet"], *options(flags)]


def kube_proxy(folders: Folders, programs: Binaries) -> Command:
    return [programs["kube-proxy"], *options({"config": folders.state / "kube-proxy.yaml"})]


def provisioner(folders: Folders, programs: Binaries) -> Command:
    flags = {"kubeconfig": folders.kubeconfig, "folder": folders.state / "volumes", "name": PROVISIONER}
    return [programs["volume-provisioner"], *options(flags)]


def containerd(folders: Folders) -> Command:
    return ["containerd", *options({"config": folders.state / "containerd.toml"})]
