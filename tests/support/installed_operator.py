"""An operator on the cluster, installed by the chart for a test, and namespaces that enforce Pod Security level
restricted.

It is installed as `helm install` without values does: it watches the whole cluster, its children too, and lists every
two minutes, so that what a test sees within a minute came by a watch. With `namespaced=True` it watches the test's
namespaces alone, as with `watchNamespaces`, and lists every 20 seconds.
"""

from __future__ import annotations

import secrets
import ssl
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import yaml
from e2e.kube import ROOT, Kube, own_cluster_environment, pick, wait_for
from support.cluster_images import images

from penstock_amqp.client.address import Address
from penstock_amqp.client.management import ManagementClient
from penstock_amqp.sasl.client import Login

__all__ = ["MINUTE", "Installation", "Team", "open_installation", "whole"]

MINUTE = 60
NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata:
  name: {name}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
"""


@dataclass(frozen=True, slots=True)
class Team:
    """One namespace for a test."""

    kube: Kube

    def apply(self, *manifests: dict[str, Any]) -> None:
        """kubectl apply, in the order given."""
        self.kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests))

    def apply_whole(self, **broker: Any) -> None:
        """Apply examples/kubernetes/whole.yaml with these fields in the Broker's spec."""
        self.apply(*whole(**broker))

    def wait_ready(self, *names: str, seconds: float = 3 * MINUTE) -> None:
        """Wait until these objects, as kind/name, are Ready; without any: all of whole.yaml."""
        every = names or ("broker/main", "exchange/orders", *(f"subscription/{it}" for it in SUBSCRIPTIONS))
        try:
            wait_for("all to be Ready", lambda: all(self.is_ready(*it.split("/")) for it in every), seconds)
        except TimeoutError as error:
            names_by_kind = [it.split("/") for it in every]
            why = (
                f"{kind}/{name}: {self.reason(kind, name, 'Ready')}: {self.message(kind, name, 'Ready')}"
                for kind, name in names_by_kind
            )
            raise TimeoutError("\n".join((str(error), *why))) from None

    def look(self) -> None:
        """Have the operator look at the Broker now: it does not watch Secrets, pods or what other namespaces have, and
        would look within two minutes.
        """
        now = f"penstock.dev/reconcile-at={datetime.now(UTC)}"
        self.kube.kubectl("annotate", "broker", "main", now, "--overwrite")

    def is_ready(self, kind: str, name: str) -> bool:
        """Whether the object is Ready."""
        return self.reason(kind, name, "Ready")[0] == "True"

    def reason(self, kind: str, name: str, condition: str) -> tuple[str, str]:
        """Status and reason of a condition, empty if there is no such condition."""
        for one in cast("list[dict[str, str]]", pick(self.kube.get(kind, name), "status", "conditions") or []):
            if one["type"] == condition:
                return one["status"], one["reason"]
        return "", ""

    def message(self, kind: str, name: str, condition: str) -> str:
        """The message of a condition, empty if there is no such condition."""
        for one in cast("list[dict[str, str]]", pick(self.kube.get(kind, name), "status", "conditions") or []):
            if one["type"] == condition:
                return one["message"]
        return ""

    def field(self, kind: str, name: str, *path: str | int) -> Any:
        """A field of an object, None if there is no such field."""
        return pick(self.kube.get(kind, name), *path)

    def are_gone(self, *kinds: str) -> bool:
        """Whether no object of these kinds exists any more."""
        return not pick(self.kube.get(",".join(kinds)), "items")

    async def management(self) -> ManagementClient:
        """A connection to the broker's management, as the operator has it; the caller closes it."""
        ca = self.kube.secret("main-amqp", "ca.crt") or ""
        address = Address(
            host=str(self.field("service", "main-management", "spec", "clusterIP")),
            port=5670,
            tls=ssl.create_default_context(cadata=ca),
            server_name=f"main-management.{self.kube.namespace}.svc",
        )
        password = self.kube.secret("main-management", "password") or ""
        return await ManagementClient.connect(address, login=Login("operator", password))

    def ask_observer(self, path: str, token: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of the observer's answer to GET, or to PUT with a body. Raises OSError if there is none, and
        HTTPError for a refusal.
        """
        host = self.field("service", "main-observer", "spec", "clusterIP")
        context = ssl.create_default_context(cadata=self.kube.secret("main-amqp", "ca.crt") or "")
        context.check_hostname = False  # it is asked by the address of its Service
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        method = "GET" if body is None else "PUT"
        request = urllib.request.Request(f"https://{host}:8080{path}", data=body, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, answer.read()

    async def connect_as_client(self) -> None:
        """A new AMQP connection through the Broker's Service, without TLS; raises if it does not succeed."""
        host = self.field("service", "main-amqp", "spec", "clusterIP")
        await (await ManagementClient.connect(f"{host}:5672")).close()


def whole(**broker: Any) -> list[dict[str, Any]]:
    """The manifests of examples/kubernetes/whole.yaml, without runs of the lag job, to spare the node."""
    manifests = list(yaml.safe_load_all((ROOT / "examples/kubernetes/whole.yaml").read_text()))
    manifests[0]["spec"].update({"lagAnalysis": {"suspend": True}, "resources": {"requests": {"cpu": "30m"}}, **broker})
    return manifests


SUBSCRIPTIONS = ("billing", "shipping-eu", "fraud")


@dataclass(slots=True)
class Installation:
    """An operator and its namespaces."""

    home: Kube
    release: str
    tag: str
    """Of the images of broker and operator."""
    namespaced: bool = False
    """It watches the namespaces of the teams alone, and not the whole cluster."""
    _free: list[str] = field(default_factory=list[str])
    """Names of namespaces that no team has."""
    _made: list[str] = field(default_factory=list[str])
    """Namespaces that are there, the operator's own excepted."""

    @contextmanager
    def team(self) -> Generator[Team]:
        """A namespace that no test has used yet."""
        name = self._free.pop()
        if name not in self._made:
            self.make(name)
        made = Team(Kube(name, self.home.environment))
        try:
            yield made
        finally:
            # One node has to carry them all; the rest goes with the namespace in the end.
            made.kube.kubectl("delete", "broker", "--all", "--wait=false", check=False)

    def make(self, *names: str) -> None:
        """Make namespaces for teams."""
        self.home.kubectl("apply", "-f", "-", stdin="---".join(NAMESPACE.format(name=name) for name in names))
        self._made.extend(names)

    def remove(self) -> None:
        """Delete the namespaces of the teams, and wait until they are gone."""
        if self._made:
            self.home.kubectl("delete", "namespace", *self._made, "--ignore-not-found", "--timeout=600s")

    def install(self, **values: str) -> None:
        """Install or upgrade the operator, and wait until it is ready."""
        chosen = {
            "image.tag": self.tag,
            "brokerImage.tag": self.tag,
            "lagImage.tag": self.tag,
            "crds.enabled": "false",
            "uninstallGuard.enabled": "false",
            **(self._narrow() if self.namespaced else {}),
            **values,
        }
        settings = [f"--set={name}={value}" for name, value in chosen.items()]
        self.home.helm(
            "upgrade", "--install", self.release, str(ROOT / "helm/penstock-operator"), "--namespace",
            self.home.namespace, *settings, "--wait", "--timeout", "300s",
        )  # fmt: skip

    def _narrow(self) -> dict[str, str]:
        return {"watchNamespaces": "{" + ",".join(self.teams) + "}", "resyncSeconds": "20"}

    @property
    def teams(self) -> list[str]:
        """The namespaces that teams can have."""
        return [f"{self.home.namespace}-{number}" for number in range(WATCHED if self.namespaced else TEAMS)]

    def scale_operator(self, replicas: int) -> None:
        """Stop the operator, or start it again."""
        deployment = f"deployment/{self.release}-penstock-operator"
        self.home.kubectl("scale", deployment, f"--replicas={replicas}")
        wait_for(
            f"{replicas} operators",
            lambda: len(cast("list[object]", pick(self.home.get("pods"), "items") or [])) == replicas,
            5 * MINUTE,
        )
        self.home.kubectl("rollout", "status", deployment, "--timeout=300s")

    def log(self, since: datetime | None = None) -> str:
        """The operator's log, from this time on: what tests before have caused is not in it."""
        when = () if since is None else (since.strftime("--since-time=%Y-%m-%dT%H:%M:%S.%fZ"),)
        return self.home.kubectl("logs", f"deployment/{self.release}-penstock-operator", "--tail=-1", *when)


TEAMS = 30
"""More than the tests of one installation for the whole cluster need."""
WATCHED = 3
"""Namespaces of an operator that watches those of the teams alone; one that no team uses is among them."""


@contextmanager
def open_installation(*, namespaced: bool = False, **values: str) -> Generator[Installation]:
    """Install the CRDs and an operator with these values; in the end everything but the CRDs is removed."""
    environment = own_cluster_environment()
    mark = f"penstock-t-{secrets.token_hex(3)}"
    tag = images().tag
    installation = Installation(Kube(mark, environment), f"op-{mark[-6:]}", tag, namespaced)
    installation._free = installation.teams[::-1]  # pyright: ignore[reportPrivateUsage]  # it is this module's own
    installation.home.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    installation.home.kubectl("apply", "-f", "-", stdin=NAMESPACE.format(name=mark))
    try:
        if namespaced:
            installation.make(*installation.teams)  # the chart makes a Role in each
        installation.install(**values)
        yield installation
    finally:
        # The operator last: the finalizers of the others are its own.
        installation.remove()
        installation.home.helm("uninstall", installation.release, "--namespace", mark, "--wait")
        installation.home.kubectl("delete", "namespace", mark, "--wait", "--timeout=120s")
