"""A real API server with its etcd, and nothing else of a cluster: no node, and only the controllers that a test wants.
hack/cluster builds the programs.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from kube.binaries import located
from kube.settings import folders

from penstock_cli.up.layout import free_endpoint

__all__ = ["ApiServerAlone", "api_server_alone"]

_TOKEN: Final = "of-the-test"
_CRDS: Final = Path(__file__).resolve().parents[2] / "crds"
_SECONDS: Final = 120.0
"""It starts within ten seconds; only a test that fails waits so long."""


@dataclass(frozen=True, slots=True)
class ApiServerAlone:
    """How to reach it, with every right."""

    kubeconfig: Path

    def kubectl(self, *arguments: str) -> str:
        """What kubectl says. Raises CalledProcessError."""
        command = [str(located(folders())["kubectl"]), *arguments]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    def apply_crds(self) -> None:
        """Ours, as they are in this tree."""
        self.kubectl("apply", "--server-side", "-f", str(_CRDS))


@contextmanager
def api_server_alone(
    folder: Path, controllers: Sequence[str] = (), namespaces: Sequence[str] = ("shop",)
) -> Generator[ApiServerAlone]:
    """It runs, with its data and logs in `folder`, on free ports of the loopback, and has our CRDs and `namespaces`.
    `controllers`: those of kube-controller-manager that run beside it, such as `namespace-controller`.
    """
    programs = located(folders())
    client, peer, secure = (free_endpoint("127.0.0.1", 0).rpartition(":")[2] for _ in range(3))
    (folder / "tokens.csv").write_text(f"{_TOKEN},me,me,system:masters\n")
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    etcd, url = f"http://127.0.0.1:{client}", f"https://127.0.0.1:{secure}"
    with ExitStack() as running:
        running.enter_context(
            _started(
                folder / "etcd.log",
                programs["etcd"],
                name="default",
                data_dir=folder / "etcd",
                unsafe_no_fsync="true",
                listen_client_urls=etcd,
                advertise_client_urls=etcd,
                listen_peer_urls=f"http://127.0.0.1:{peer}",
                initial_advertise_peer_urls=f"http://127.0.0.1:{peer}",
                initial_cluster=f"default=http://127.0.0.1:{peer}",
            )
        )
        server = running.enter_context(
            _started(
                folder / "apiserver.log",
                programs["kube-apiserver"],
                etcd_servers=etcd,
                bind_address="127.0.0.1",
                secure_port=secure,
                cert_dir=folder / "certificates",
                service_cluster_ip_range="10.255.0.0/24",
                authorization_mode="AlwaysAllow",
                token_auth_file=folder / "tokens.csv",
                service_account_issuer="https://kubernetes.default.svc",
                service_account_key_file=key,
                service_account_signing_key_file=key,
                endpoint_reconciler_type="none",
            )
        )
        ca = folder / "certificates" / "apiserver.crt"
        _wait_until_ready(server, url, ca, folder / "apiserver.log")
        kubeconfig = _kubeconfig(url, ca, folder / "kubeconfig")
        if controllers:
            running.enter_context(
                _started(
                    folder / "controllers.log",
                    programs["kube-controller-manager"],
                    kubeconfig=kubeconfig,
                    controllers=",".join(controllers),
                    secure_port=0,
                    leader_elect="false",
                    kube_api_qps=300,
                    kube_api_burst=500,
                )
            )
        made = ApiServerAlone(kubeconfig)
        made.apply_crds()
        made.kubectl("wait", "--for=condition=Established", "crd", "--all")
        for name in namespaces:
            made.kubectl("create", "namespace", name)
        yield made


@contextmanager
def _started(log: Path, program: Path, **options: object) -> Generator[subprocess.Popen[bytes]]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    with log.open("wb") as written, subprocess.Popen([program, *flags], stdout=written, stderr=written) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_until_ready(server: subprocess.Popen[bytes], url: str, ca: Path, log: Path) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        assert server.poll() is None and time.monotonic() < end, log.read_text()[-2000:]
        try:
            context = ssl.create_default_context(cafile=str(ca))
            request = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {_TOKEN}"})
            with urllib.request.urlopen(request, context=context, timeout=5):
                return
        except OSError:  # its certificate or its port is not there yet, or it is not ready
            time.sleep(0.05)


def _kubeconfig(url: str, ca: Path, path: Path) -> Path:
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "me", "user": {"token": _TOKEN}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path
