"""A Broker on Kubernetes as the story's site: its Service, its pod's deaths, its lag in `kubectl get psub`.

On the node of hack/cluster the host reaches Service addresses and can kill a container's process. On another cluster
clients come through `kubectl port-forward`, started again whenever it ends, and the crash is a forced deletion.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from e2e import node_processes
from e2e.kube import Kube, pick, wait_for
from e2e.page_visit import PageVisit
from e2e.story import StoryError

from penstock_api import observer_api
from penstock_api.lag_result import LagResult
from penstock_cli.up.layout import free_endpoint

__all__ = ["BROKER", "POD", "SUBSCRIPTIONS", "ClusterSite", "Forward"]

BROKER: Final = "main"
POD: Final = f"{BROKER}-0"
SUBSCRIPTIONS: Final = ("billing", "shipping-eu", "fraud")
READY_SECONDS: Final = 600.0
AMQPS: Final = 5671
WARNING: Final = "The browser warns, because the certificate is signed by the Broker's own authority."
CONNECTING: Final = "transport.connectTimeout=2000"
"""The address of a deleted pod does not answer: docs/how-to/jms.md."""
FAILOVER: Final = "failover.reconnectDelay=100&failover.useReconnectBackOff=false&failover.maxReconnectAttempts=-1"


class Forward:
    """`kubectl port-forward` that comes back; the local port stays the same."""

    def __init__(self, kube: Kube, service: str, port: int) -> None:
        self.endpoint = free_endpoint("127.0.0.1", 0)
        self._words = ("port-forward", f"service/{service}", f"{self.endpoint.rpartition(':')[2]}:{port}")
        self._kube = kube
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        context = ("--context", self._kube.context) if self._kube.context is not None else ()
        full = ("kubectl", *context, "--namespace", self._kube.namespace, *self._words)
        while not self._ended.is_set():
            self._process = subprocess.Popen(
                full, env=self._kube.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            self._process.wait()
            self._ended.wait(0.5)

    def close(self) -> None:
        """End it."""
        self._ended.set()
        if self._process is not None:
            self._process.terminate()
        self._thread.join(timeout=10)


class ClusterSite:
    """The Broker of examples/kubernetes/whole.yaml in one namespace."""

    def __init__(self, kube: Kube, work: Path, *, is_own_node: bool) -> None:
        self._kube = kube
        self._is_own_node = is_own_node
        self._forwards: list[Forward] = []
        self._ca = work / "ca.crt"
        self._ca.write_text(str(pick(kube.get("configmap", f"{BROKER}-ca"), "data", "ca.crt")))
        self._amqps = self._route(f"{BROKER}-amqp", AMQPS)
        self._observer = self._route(f"{BROKER}-observer", observer_api.PORT)

    def close(self) -> None:
        """End what forwards ports."""
        for forward in self._forwards:
            forward.close()

    def _route(self, service: str, port: int) -> str:
        if self._is_own_node:
            return f"{pick(self._kube.get('service', service), 'spec', 'clusterIP')}:{port}"
        forward = Forward(self._kube, service, port)
        self._forwards.append(forward)
        return forward.endpoint

    def access(self, *, failover: bool) -> list[str]:
        """Options of the Java clients."""
        # The certificate names the Service; clients here come by its address.
        amqps = f"amqps://{self._amqps}?transport.verifyHost=false&{CONNECTING}"
        prefetch = "jms.prefetchPolicy.all=100"
        uri = f"failover:({amqps})?{prefetch}&{FAILOVER}" if failover else f"{amqps}&{prefetch}"
        return ["--uri", uri, "--ca", str(self._ca)]

    def get(self, path: str) -> object:
        """JSON from the observer."""
        token = str(self._kube.secret(f"{BROKER}-observer", "token")).strip()
        context = ssl.create_default_context(cafile=str(self._ca))
        context.check_hostname = False  # the address is a ClusterIP or a forwarded port
        request = urllib.request.Request(
            f"https://{self._observer}{path}", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return json.load(answer)

    def page(self) -> PageVisit:
        """How a person reaches the page from this machine, with the token of those who only look."""
        token = str(self._kube.secret(f"{BROKER}-observer", "page.token"))
        return PageVisit(f"https://{self._observer}", token, WARNING)

    def depth(self, subscription: str) -> int:
        """Unsettled messages as the broker counts them now; waits for the observer, which may be starting still."""
        return wait_for(f"the observer to know {subscription!r}", lambda: self._depth(subscription), READY_SECONDS)

    def _depth(self, subscription: str) -> int | None:
        for state in cast("list[dict[str, object]]", self._try_get(observer_api.SUBSCRIPTIONS) or []):
            if state["subscriptionName"] == subscription and state["scope"] == "Global" and state["durable"]:
                return int(cast("int", state["depth"]))
        return None

    def _try_get(self, path: str) -> object | None:
        try:
            return self.get(path)
        except OSError:
            return None

    def pod(self) -> dict[str, object]:
        """The broker pod; empty while there is none."""
        return cast("dict[str, object]", self._kube.get("pod", POD) or {})

    def container(self, name: str) -> dict[str, object]:
        """Status of a container of the pod; empty while there is none."""
        statuses = cast("list[dict[str, object]]", pick(self.pod(), "status", "containerStatuses") or [])
        return next((status for status in statuses if status.get("name") == name), dict[str, object]())

    def delete_pod(self) -> str:
        """Delete the pod as a drain or an upgrade does, and wait for its successor."""
        return self._replaced("kubectl delete pod")

    def crash(self) -> str:
        """kill -9 the broker's process (elsewhere: delete the pod without grace) and wait until it serves again."""
        if not self._is_own_node:
            return self._replaced("kubectl delete pod --force", "--grace-period=0", "--force")
        restarts = int(cast("int", self.container("broker").get("restartCount", 0)))
        pid = node_processes.of_container(str(pick(self.pod(), "metadata", "uid")), "broker")
        if pid is None:
            raise StoryError("the broker's process is not to be found on this host")
        started = time.monotonic()
        node_processes.kill(pid)
        self._wait("the broker's container to run again", lambda: self._is_restarted(restarts))
        return f"process {pid} killed, serves again after {time.monotonic() - started:.0f} s"

    def _is_restarted(self, restarts: int) -> bool:
        status = self.container("broker")
        return int(cast("int", status.get("restartCount", 0))) > restarts and bool(status.get("ready"))

    def _replaced(self, how: str, *options: str) -> str:
        uid = pick(self.pod(), "metadata", "uid")
        started = time.monotonic()
        self._kube.kubectl("delete", "pod", POD, "--wait=false", *options)
        self._wait("the pod's successor to serve", lambda: self._is_successor(uid))
        return f"{how}: its successor serves after {time.monotonic() - started:.0f} s"

    def _is_successor(self, uid: object) -> bool:
        now = pick(self.pod(), "metadata", "uid")
        return now is not None and now != uid and bool(self.container("broker").get("ready"))

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        wait_for(what, lambda: True if condition() else None, READY_SECONDS)

    def kill_observer(self) -> bool:
        """End the observer's process if it runs; True if it did."""
        if self._is_own_node:
            pid = node_processes.of_container(str(pick(self.pod(), "metadata", "uid")), "observer")
            if pid is None:
                return False
            node_processes.kill(pid)
            return True
        end = "import os, signal; os.kill(1, signal.SIGTERM)"
        self._kube.kubectl("exec", POD, "-c", "observer", "--", "python3", "-c", end, check=False)
        return True

    def lag_status(self) -> dict[str, dict[str, object]]:
        """`status.lag` of each subscription that has one."""
        found: dict[str, dict[str, object]] = {}
        for name in SUBSCRIPTIONS:
            lag = pick(self._kube.get("subscriptions.penstock.dev", name), "status", "lag")
            if isinstance(lag, dict):
                found[name] = cast("dict[str, object]", lag)
        return found

    def result(self, run_name: str) -> LagResult:
        """The result document of a run, from the observer that keeps it."""
        return LagResult.model_validate(self.get(observer_api.RESULTS.format(run_name=run_name)))
