"""What GitOps tools and people write, on a real API server: Argo CD and Flux apply again and again as they do, kubectl
replaces, and somebody edits a status. Status and finalizer survive or come back, and nothing is made that Argo CD would
take for its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.api_server_alone import ApiServerAlone, api_server_alone
from support.ended_operator import end_operator
from support.operator_in_memory import resource
from support.waiting import wait_until

from penstock_operator.brokers.management import BrokerManagement, ManagementAccess, Unreachable
from penstock_operator.main import operate
from penstock_operator.settings import OperatorSettings

pytestmark = pytest.mark.built

SETTINGS = OperatorSettings(
    broker_image="b", lag_image="l", own_namespace="default", liveness_host="127.0.0.1", liveness_port=0, lease="lead"
)
DECLARING = ("Exchange/orders", "Subscription/billing", "Queue/invoices")
ALL = ("Broker/main", *DECLARING)
CHILDREN = "statefulsets,services,configmaps,secrets,serviceaccounts,networkpolicies,poddisruptionbudgets,cronjobs"
INSTANCE = "app.kubernetes.io/instance"
TRACKING = {
    "labels": {INSTANCE: "main", "kustomize.toolkit.fluxcd.io/name": "shop", "argocd.argoproj.io/instance": "main"},
    "annotations": {
        "argocd.argoproj.io/tracking-id": "main:penstock.dev/Broker:shop/main",
        "argocd.argoproj.io/sync-options": "Prune=true",
    },
}


async def no_broker(_access: ManagementAccess) -> BrokerManagement:
    raise Unreachable("there is no broker")


@dataclass
class Site:
    """What is in Git, and the cluster with the operator."""

    server: ApiServerAlone
    folder: Path
    running: asyncio.Task[None]

    @property
    def git(self) -> str:
        """A file with everything, as the tools apply it."""
        path = self.folder / "git.yaml"
        made = [resource(*each.split("/")) for each in ALL]
        for manifest in made:
            manifest["metadata"].update(TRACKING)
        path.write_text(yaml.safe_dump_all(made))
        return str(path)

    def get(self, name: str) -> Any:
        return json.loads(self.server.kubectl("-n", "shop", "get", name, "-o", "json"))

    def shown(self) -> dict[str, Any]:
        """Status and finalizers of everything."""
        found = {name: self.get(name) for name in ALL}
        return {name: (it["status"], it["metadata"].get("finalizers")) for name, it in found.items()}

    async def becomes(self, wanted: dict[str, Any], *, times: bool = True) -> None:
        """Wait until this is shown; without `times`, whatever the conditions say of when they changed."""

        async def is_so() -> bool:
            assert not self.running.done(), self.running
            shown = await asyncio.to_thread(self.shown)
            return shown == wanted if times else _timeless(shown) == _timeless(wanted)

        await wait_until(is_so)

    async def settles(self) -> dict[str, Any]:
        """What is shown when the operator has reported on everything."""
        found: dict[str, Any] = {}

        async def is_done() -> bool:
            nonlocal found
            assert not self.running.done(), self.running
            found = await asyncio.to_thread(self.shown)
            reasons = {name: _ready(status) for name, (status, _) in found.items()}
            held = all(found[name][1] == ["penstock.dev/topology"] for name in DECLARING)
            return held and {reasons[name] for name in DECLARING} == {"BrokerUnreachable"}

        await wait_until(is_done)
        return found


def _ready(status: Any) -> str:
    return next((it["reason"] for it in status["conditions"] if it["type"] == "Ready"), "")


def _timeless(shown: dict[str, Any]) -> dict[str, Any]:
    def without(status: Any) -> Any:
        kept = [{key: said for key, said in it.items() if key != "lastTransitionTime"} for it in status["conditions"]]
        return {**status, "conditions": sorted(kept, key=lambda it: str(it["type"]))}

    return {name: (without(status), finalizers) for name, (status, finalizers) in shown.items()}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServerAlone]:
    with api_server_alone(tmp_path, ("statefulset-controller", "serviceaccount-controller")) as made:
        yield made


@pytest_asyncio.fixture
async def site(server: ApiServerAlone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    settings = replace(SETTINGS, resync_seconds=2)
    made = Site(server, tmp_path, asyncio.create_task(operate(settings, no_broker, str(server.kubeconfig))))
    yield made
    await end_operator(made.running)


async def test_what_others_write_leaves_status_and_finalizer_or_they_come_back(site: Site) -> None:
    kubectl = site.server.kubectl
    apply = ("apply", "--server-side", "--force-conflicts", "-f", site.git)
    kubectl(*apply, "--field-manager=argocd-controller")
    before = await site.settles()
    assert before["Broker/main"][0]["operator"] == "default/lead"
    for manager in ("argocd-controller", "kustomize-controller", "argocd-controller"):
        kubectl(*apply, f"--field-manager={manager}")
        assert site.shown() == before, manager
    # What kubectl has of an object goes back as it is, with status and finalizers, and then without them.
    path = site.folder / "edited.yaml"
    for name in ALL:
        whole = site.get(name)
        whole["metadata"].pop("managedFields", None)
        path.write_text(yaml.safe_dump({**whole, "status": {"conditions": []}}))
        kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=restore", "-f", str(path))
        assert site.shown() == before, "status is not written with the rest"
    kubectl(*apply, "--field-manager=restore")
    assert site.shown() == before, "who does not own the finalizer any more takes nobody's away"
    kubectl("replace", "-f", site.git)
    await site.becomes(before)
    for name in ALL:
        kubectl(
            *("-n", "shop", "patch", name, "--subresource=status", "--type=merge", "--field-manager=kubectl-edit"),
            *("-p", '{"status": {"conditions": [], "operator": null, "observedGeneration": 0}}'),
        )
    await site.becomes(before, times=False)


async def test_argo_takes_no_child_for_its_own(site: Site) -> None:
    """It prunes what has its label or annotation, is not in Git, and has no owner."""
    site.server.kubectl("apply", "--server-side", "--field-manager=argocd-controller", "-f", site.git)
    await site.settles()
    listed = json.loads(site.server.kubectl("-n", "shop", "get", CHILDREN, "-o", "json"))["items"]
    children = [it for it in listed if it["metadata"]["name"] not in ("kube-root-ca.crt", "default")]
    assert {it["kind"] for it in children} >= {"StatefulSet", "Service", "ConfigMap", "Secret"}
    for child in children:
        about = child["metadata"]
        keys = {**about.get("labels", {}), **about.get("annotations", {})}
        assert [key for key in keys if "argoproj" in key or "fluxcd" in key] == [], about["name"]
        assert about["ownerReferences"], about["name"]


async def test_argo_takes_no_claim_for_its_own(site: Site) -> None:
    """The claims have no owner; the Application is called as the Broker."""
    site.server.kubectl("apply", "--server-side", "--field-manager=argocd-controller", "-f", site.git)
    claims: list[Any] = []

    async def are_made() -> bool:
        nonlocal claims
        assert not site.running.done(), site.running
        claims = json.loads(await asyncio.to_thread(site.server.kubectl, "-n", "shop", "get", "pvc", "-o", "json"))[
            "items"
        ]
        return len(claims) == 2

    await wait_until(are_made)
    for claim in claims:
        about = claim["metadata"]
        assert about["labels"] == {"app.kubernetes.io/name": "penstock-broker", "penstock.dev/broker": "main"}
        assert {*about.get("annotations", {})}.isdisjoint(TRACKING["annotations"])
