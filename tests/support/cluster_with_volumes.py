"""An API server in memory with what a cluster does about StatefulSets and their claims.

Templates of claims cannot be changed; a StatefulSet that is deleted without its pods stays until the garbage collector
has released them; a claim takes a new size only if Kubernetes would. The process that talks to it can be ended before
or after any of its writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from support.api_server_in_memory import ApiServerInMemory

from penstock_api.quantity import parse_quantity
from penstock_operator.cluster.api_server import KubeError
from penstock_operator.manifest import Manifest

__all__ = ["CLASS", "ClusterWithVolumes", "Ended"]

CLASS = "fast"


class Ended(Exception):
    """The operator was ended here."""


@dataclass
class ClusterWithVolumes(ApiServerInMemory):
    """A cluster with one storage class, for one Broker `shop/main`."""

    ends_at: int | None = None
    """Before which write of the operator it ends, if even; after which, if odd; counted in half writes."""
    half_writes: int = 0
    quota: str = ""
    """Why larger claims are refused; empty if they are not."""

    def __post_init__(self) -> None:
        about: Any = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS}}
        self.objects["StorageClass", "", CLASS] = {**about, "allowVolumeExpansion": True}

    async def apply(self, manifest: Manifest) -> Manifest:
        self._half_write()
        made = cast(Any, manifest)
        at = (made["kind"], made["metadata"]["namespace"], made["metadata"]["name"])
        there = self.objects.get(at)
        if made["kind"] == "PersistentVolumeClaim":
            result = self._resize(there, made)
        else:
            if made["kind"] == "StatefulSet" and _other_templates(there, made):
                raise KubeError(422, "updates to statefulset spec for fields other than ... are forbidden")
            result = await ApiServerInMemory.apply(self, manifest)
            if made["kind"] == "StatefulSet":
                kept = {"uid": f"uid-{self._version}"} if there is None else there["metadata"]
                for key in ("uid", "deletionTimestamp"):
                    if key in kept:
                        self.objects[at]["metadata"][key] = kept[key]
                result = cast(Manifest, self.objects[at])
        self._half_write()
        return result

    async def delete(self, manifest: Manifest, *, orphan: bool = False) -> None:
        self._half_write()
        about = cast(Any, manifest)["metadata"]
        if orphan:
            there = self.objects[cast(Any, manifest)["kind"], about["namespace"], about["name"]]
            assert there["metadata"]["uid"] == about["uid"]
            there["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
        else:
            await ApiServerInMemory.delete(self, manifest)
        self._half_write()

    def _half_write(self) -> None:
        self.half_writes += 1
        if self.half_writes == self.ends_at:
            raise Ended

    def _resize(self, there: Any, made: Any) -> Manifest:
        if there is None or there["metadata"]["uid"] != made["metadata"]["uid"]:
            raise KubeError(409, "the claim is gone")
        size = made["spec"]["resources"]["requests"]["storage"]
        before, capacity = there["spec"]["resources"]["requests"]["storage"], there["status"]["capacity"]["storage"]
        if parse_quantity(size) > parse_quantity(before):
            if self.quota:
                raise KubeError(403, self.quota)
            if self.objects["StorageClass", "", CLASS].get("allowVolumeExpansion") is not True:
                raise KubeError(403, "the storageclass that provisions the pvc must support resize")
        elif parse_quantity(size) < parse_quantity(before):
            assert parse_quantity(size) > parse_quantity(capacity), "the operator must never ask a volume to shrink"
        there["spec"]["resources"]["requests"]["storage"] = size
        return self._touch(there)

    # -- what the cluster does --------------------------------------------------------------------------------------

    def runs_the_pod(self) -> None:
        """The StatefulSet's controller makes claims and pod if they are not there."""
        stateful_set = self.objects.get(("StatefulSet", "shop", "main"))
        if stateful_set is None or "deletionTimestamp" in stateful_set["metadata"]:
            return
        for template in stateful_set["spec"]["volumeClaimTemplates"]:
            name = f"{template['metadata']['name']}-main-0"
            if ("PersistentVolumeClaim", "shop", name) not in self.objects:
                self.claim(template["metadata"]["name"], template["spec"]["resources"]["requests"]["storage"])
        template = stateful_set["spec"]["template"]
        pod = self.objects.get(("Pod", "shop", "main-0"))
        if pod is None or pod["spec"] != template["spec"]:
            about = {"name": "main-0", "namespace": "shop", "uid": f"uid-{self._version}"}
            status = {"containerStatuses": [{"name": "broker", "ready": True}]}
            made: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]}
            self._put({**made, "status": status})

    def claim(self, volume: str, size: str, capacity: str | None = None) -> Any:
        """Makes a claim with a volume."""
        about = {"name": f"{volume}-main-0", "namespace": "shop", "uid": f"uid-of-{volume}"}
        made: Any = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": about,
            "spec": {"storageClassName": CLASS, "resources": {"requests": {"storage": size}}},
            "status": {"phase": "Bound", "capacity": {"storage": capacity or size}},
        }
        self._put(made)
        return made

    def gives_space(self) -> None:
        """The storage gives each claim what it asks for."""
        for (kind, _, _), it in self.objects.items():
            if kind == "PersistentVolumeClaim":
                it["status"] = {"phase": "Bound", "capacity": dict(it["spec"]["resources"]["requests"])}

    def releases_pods(self) -> None:
        """The garbage collector ends the deletion of a StatefulSet without its pods."""
        for at, it in tuple(self.objects.items()):
            if at[0] == "StatefulSet" and "deletionTimestamp" in it["metadata"]:
                del self.objects[at]

    def sizes(self, volume: str = "data") -> tuple[str, str, str]:
        """What template and claim ask for, and what the volume has."""
        stateful_set = self.objects["StatefulSet", "shop", "main"]
        asked = {it["metadata"]["name"]: it["spec"] for it in stateful_set["spec"]["volumeClaimTemplates"]}
        claim = self.objects["PersistentVolumeClaim", "shop", f"{volume}-main-0"]
        requests = (asked[volume]["resources"]["requests"], claim["spec"]["resources"]["requests"])
        return requests[0]["storage"], requests[1]["storage"], claim["status"]["capacity"]["storage"]


def _other_templates(there: Any, made: Any) -> bool:
    """Whether a StatefulSet that exists is to get other templates of claims."""
    return there is not None and there["spec"]["volumeClaimTemplates"] != made["spec"]["volumeClaimTemplates"]
