"""What hack/soak/reach plays on: the operator as README installs it, a Broker as the page on tenants shows it, and
clients in pods of several namespaces, each of which tries to connect.

The namespaces: `shop` has the Broker, `billing` may use it, `monitoring` and `elsewhere` have nothing to do with it.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import yaml
from e2e.kube import ROOT, Kube, wait_for
from e2e.story import StoryError
from support.installed_operator import MINUTE, Team
from support.page_commands import shown
from support.page_manifests import shown_spec, shown_yaml

__all__ = ["ELSEWHERE", "HOME", "NAMESPACES", "REACH", "Stage", "StoryError", "installation", "part", "set_stage"]

HOME: Final = "penstock-system"
ELSEWHERE: Final = "elsewhere"
NAMESPACES: Final = ("shop", "billing", "monitoring", ELSEWHERE)
REACH: Final = ROOT / "docs/how-to/reach.md"
TENANTS: Final = ROOT / "docs/how-to/tenants.md"
USER, PASSWORD = "app", "PASSWORD"
"""As `docs/how-to/install.md` shows them."""
ATTEMPT_SECONDS: Final = 15
SCRAPE: Final = """
import ssl, sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]})
context = ssl.create_default_context(cafile="/trust/ca.crt")
print(urllib.request.urlopen(request, timeout=5, context=context).read().decode().count("penstock_"))
"""
CONNECT: Final = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


def part(key: str, fits: Callable[[Any], object] = lambda _: True) -> dict[str, Any]:
    """The part of a Broker's spec that the page on reach shows with this key, whose value fits."""
    return shown_spec(REACH, lambda spec: key in spec and fits(spec[key]))


def installation(registry: str) -> list[str]:
    """The commands of README that install the operator, on a node that has the images."""
    commands = [each.command for each in shown(ROOT / "README.md")]
    behind_push = commands[commands.index("hack/images push REGISTRY") + 1 :]
    wanted = itertools.takewhile(lambda command: command.startswith(("helm ", "kubectl create ")), behind_push)
    return [command.replace("REGISTRY", registry) for command in wanted]


@dataclass(slots=True)
class Stage:
    """The node with everything on it."""

    environment: Mapping[str, str]
    work: Path
    say: Callable[[str], None]
    image: str
    """The broker's image, of which the clients run too."""
    began: float = field(default_factory=time.monotonic)
    _told_outside: str = ""

    def tell(self, text: str) -> None:
        """Print a line with the time."""
        self.say(f"[{time.monotonic() - self.began:5.0f} s] {text}")

    def kube(self, namespace: str = "shop") -> Kube:
        """kubectl in a namespace."""
        return Kube(namespace, self.environment)

    @property
    def shop(self) -> Team:
        """The namespace of the Broker."""
        return Team(self.kube())

    def patch(self, spec: Mapping[str, Any]) -> None:
        """Change these fields of the Broker's spec; None removes one."""
        self.kube().kubectl("patch", "broker", "main", "--type=merge", "--patch", json.dumps({"spec": spec}))

    def exec(self, namespace: str, *words: str, pod: str = "client") -> str:
        """Run a command in a client's pod. Raises StoryError if it fails."""
        return self.kube(namespace).kubectl("exec", pod, "--", "timeout", str(ATTEMPT_SECONDS), *words)

    def _succeeds(self, namespace: str, *words: str, pod: str = "client") -> bool:
        try:
            self.exec(namespace, *words, pod=pod)
        except StoryError:
            return False
        return True

    def is_served(self, namespace: str, host: str = "main-amqp.shop.svc", pod: str = "client") -> bool:
        """Whether a client in this namespace logs in over TLS, sends a message, and receives it."""
        access = ("--ca-file", "/trust/ca.crt", "--user", USER, "--password-file", f"/login/{USER}")
        return self._succeeds(namespace, "penstock", "ping", "--broker", f"amqps://{host}", *access, pod=pod)

    def scrapes(self, namespace: str) -> bool:
        """Whether a pod in this namespace gets the Broker's metrics as Prometheus does."""
        token = self.kube().secret("main-observer-scrape", "token") or ""
        url = "https://main-observer.shop.svc:8080/metrics"
        return self._succeeds(namespace, "python3", "-c", SCRAPE, url, token)

    def manages(self, namespace: str) -> bool:
        """Whether a pod in this namespace gets a connection to the management, where the operator logs in."""
        return self._succeeds(namespace, "python3", "-c", CONNECT, "main-management.shop.svc", "5670")

    def trust_everywhere(self) -> None:
        """Give every client's namespace what clients of the Broker trust, as the page says; then its pod."""
        trusted = {"ca.crt": str(self.shop.field("configmap", "main-ca", "data", "ca.crt"))}
        for namespace in NAMESPACES:
            documents = [
                _named("ConfigMap", "trust", data=trusted),
                _named("Secret", "login", stringData={USER: PASSWORD}),
                _client("client", self.image),
            ]
            self.kube(namespace).kubectl("delete", "pod", "client", "--ignore-not-found", "--grace-period=1")
            Team(self.kube(namespace)).apply(*documents)
        for namespace in NAMESPACES:
            self.kube(namespace).kubectl("wait", "pod/client", "--for=condition=Ready", "--timeout=90s")

    def add_client(self, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        """A further client, with labels."""
        pod = _client(name, self.image)
        pod["metadata"]["labels"] = dict(labels)
        Team(self.kube(namespace)).apply(pod)
        self.kube(namespace).kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=90s")

    def runs(self) -> tuple[object, object]:
        """Which pod the Broker has, and how often its containers were started again."""
        status = cast("list[dict[str, int]]", self.shop.field("pod", "main-0", "status", "containerStatuses"))
        return self.shop.field("pod", "main-0", "metadata", "uid"), sum(each["restartCount"] for each in status)

    def outside(self, hosts: Mapping[str, str], *words: str) -> str:
        """Run a command of .venv on this machine, to which these names lead to these addresses. Raises StoryError."""
        with tempfile.NamedTemporaryFile("w", dir=self.work, suffix=".hosts") as file:
            file.write("".join(f"{address} {name}\n" for name, address in hosts.items()))
            file.flush()
            script = f'mount --bind {file.name} /etc/hosts; exec "$@"'
            command = ["unshare", "--mount", "sh", "-ec", script, "sh", *words]
            ran = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise StoryError(f"{' '.join(words)}: {ran.stderr.strip()}")
        return ran.stdout

    def outside_is_served(self, url: str, trusted: str, hosts: Mapping[str, str] | None = None) -> bool:
        """Whether a client on this machine, outside the cluster, is served at this URL; it verifies the certificate."""
        ca, password = self.work / "ca.crt", self.work / "password"
        ca.write_text(trusted)
        password.write_text(PASSWORD)
        access = ("--ca-file", str(ca), "--user", USER, "--password-file", str(password))
        try:
            self.outside(hosts or {}, ".venv/bin/penstock", "ping", "--broker", url, *access)
        except StoryError as error:
            why = str(error).partition("\n")[0].rpartition("penstock: ")[2]
            if why != self._told_outside:
                self.tell(f"  outside: {why}")
                self._told_outside = why
            return False
        return True


def set_stage(stage: Stage, registry: str) -> None:
    """Install the operator by README's commands, and make Broker, Exchange, Subscription and clients."""
    for command in installation(registry):
        stage.tell(f"$ {command}")
        subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=ROOT, env=stage.environment, check=True)
    for namespace in NAMESPACES[1:]:
        stage.kube().kubectl("create", "namespace", namespace)
    stage.kube().kubectl("create", "secret", "generic", "my-users", f"--from-literal={USER}={PASSWORD}")
    (broker,) = (each for each in shown_yaml(TENANTS) if each.get("kind") == "Broker")
    del broker["spec"]["permissions"]  # they are about ServiceAccounts; these clients have a password
    exchange = _resource("Exchange", "orders", {"brokerRef": {"name": "main"}, "allowedNamespaces": ["billing"]})
    stage.shop.apply(broker, exchange)
    billing = Team(stage.kube("billing"))
    billing.apply(subscription("billing"))
    stage.shop.wait_ready("broker/main", "exchange/orders")
    billing.wait_ready("subscription/billing")
    wait_for("the CA in billing", lambda: billing.field("configmap", "shop.main-ca", "data", "ca.crt"), 3 * MINUTE)
    stage.trust_everywhere()


def subscription(name: str) -> dict[str, Any]:
    """A Subscription of the namespace `billing`."""
    there = {"namespace": "shop"}
    return _resource(
        "Subscription", name, {"brokerRef": {"name": "main", **there}, "exchangeRef": {"name": "orders", **there}}
    )


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "penstock.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _named(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def _client(name: str, image: str) -> dict[str, Any]:
    """A pod that waits for commands."""
    text = f"""
    apiVersion: v1
    kind: Pod
    metadata: {{name: {name}}}
    spec:
      terminationGracePeriodSeconds: 1
      automountServiceAccountToken: false
      containers:
        - name: client
          image: {image}
          command: [sleep, infinity]
          volumeMounts:
            - {{name: trust, mountPath: /trust}}
            - {{name: login, mountPath: /login}}
      volumes:
        - {{name: trust, configMap: {{name: trust}}}}
        - {{name: login, secret: {{secretName: login}}}}
    """
    return cast("dict[str, Any]", yaml.safe_load(text))
