"""The cluster's certificates and kubeconfigs, made anew for each cluster with openssl."""

from __future__ import annotations

import base64
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from kube.settings import NODE_NAME, Addresses
from kube.steps import run

DAYS = "365"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A key pair that `authority` signs for `subject`."""

    name: str
    subject: str
    authority: str = "ca"
    usage: str = "clientAuth"
    hosts: tuple[str, ...] = ()


# Certificates of programs that reach the API server by a kubeconfig of the same name.
CLIENTS = (
    Certificate("admin", "/O=system:masters/CN=penstock-admin"),
    Certificate("controller-manager", "/CN=system:kube-controller-manager"),
    Certificate("scheduler", "/CN=system:kube-scheduler"),
    Certificate("proxy", "/CN=system:kube-proxy"),
)


def _servers(at: Addresses) -> tuple[Certificate, ...]:
    service = "kubernetes.default.svc"
    names = ("kubernetes", "kubernetes.default", service, f"{service}.cluster.local", "localhost")
    api_addresses = (f"IP:{at.node}", f"IP:{at.api_service}", "IP:127.0.0.1")
    api_hosts = (*(f"DNS:{name}" for name in names), *api_addresses)
    return (
        Certificate("apiserver", "/CN=kube-apiserver", usage="serverAuth", hosts=api_hosts),
        Certificate("apiserver-to-kubelet", "/O=system:masters/CN=kube-apiserver-to-kubelet"),
        Certificate("aggregator", "/CN=aggregator", authority="aggregator-ca"),
        _kubelet(NODE_NAME, at),
    )


def _kubelet(node: str, at: Addresses, authority: str = "ca") -> Certificate:
    hosts = (f"DNS:{node}", f"IP:{at.node}", "IP:127.0.0.1")
    subject = f"/O=system:nodes/CN=system:node:{node}"
    return Certificate("kubelet", subject, authority, usage="serverAuth,clientAuth", hosts=hosts)


class _Maker:
    def __init__(self, folder: Path, log: Path) -> None:
        self._folder = folder
        self._log = log

    def openssl(self, *arguments: str) -> None:
        run(["openssl", *arguments], self._log, cwd=self._folder)

    def _key(self, name: str) -> None:
        self.openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", f"{name}.key")

    def authority(self, name: str) -> None:
        self._key(name)
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature")
        subject = ("-subj", f"/CN=penstock-{name}", "-days", DAYS)
        self.openssl("req", "-x509", "-new", "-key", f"{name}.key", *subject, *usage, "-out", f"{name}.crt")

    def certificate(self, wanted: Certificate) -> None:
        name, signer = wanted.name, wanted.authority
        self._key(name)
        self.openssl("req", "-new", "-key", f"{name}.key", "-subj", wanted.subject, "-out", f"{name}.csr")
        lines = ["basicConstraints=CA:FALSE", "keyUsage=critical,digitalSignature", f"extendedKeyUsage={wanted.usage}"]
        if wanted.hosts:
            lines.append(f"subjectAltName={','.join(wanted.hosts)}")
        (self._folder / f"{name}.ext").write_text("\n".join(lines) + "\n")
        by = ("-CA", f"{signer}.crt", "-CAkey", f"{signer}.key", "-CAcreateserial", "-days", DAYS)
        self.openssl("x509", "-req", "-in", f"{name}.csr", *by, "-extfile", f"{name}.ext", "-out", f"{name}.crt")

    def service_account_keys(self) -> None:
        self.openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "sa.key")
        self.openssl("pkey", "-in", "sa.key", "-pubout", "-out", "sa.pub")

    def kubeconfig(self, name: str, server: str) -> None:
        def inline(file: str) -> str:
            return base64.b64encode((self._folder / file).read_bytes()).decode()

        text = f"""\
apiVersion: v1
kind: Config
current-context: penstock
contexts: [{{name: penstock, context: {{cluster: penstock, user: {name}}}}}]
clusters: [{{name: penstock, cluster: {{server: "{server}", certificate-authority-data: {inline("ca.crt")}}}}}]
users:
- name: {name}
  user: {{client-certificate-data: {inline(f"{name}.crt")}, client-key-data: {inline(f"{name}.key")}}}
"""
        (self._folder / f"{name}.kubeconfig").write_text(text)


def make(folder: Path, at: Addresses, log: Path) -> None:
    """Fills `folder` with authorities, certificates, service-account keys and kubeconfigs, readable by root alone."""
    folder.mkdir(parents=True, mode=0o700)
    before = os.umask(0o077)
    try:
        maker = _Maker(folder, log)
        maker.authority("ca")
        maker.authority("aggregator-ca")
        for wanted in (*CLIENTS, *_servers(at)):
            maker.certificate(wanted)
        maker.service_account_keys()
        for name in (*(client.name for client in CLIENTS), "kubelet"):
            maker.kubeconfig(name, f"https://{at.api_server}:6443")
    finally:
        os.umask(before)


def make_worker(folder: Path, of_first: Path, node: str, at: Addresses, log: Path) -> None:
    """Fills `folder` with what a worker needs; `of_first` is the folder of the node with the authority."""
    folder.mkdir(parents=True, mode=0o700)
    before = os.umask(0o077)
    try:
        for name in ("ca.crt", "proxy.kubeconfig"):
            shutil.copy(of_first / name, folder)
        maker = _Maker(folder, log)
        maker.certificate(_kubelet(node, at, str(of_first / "ca")))
        maker.kubeconfig("kubelet", f"https://{at.api_server}:6443")
    finally:
        os.umask(before)
