"""The operations of the Kubernetes API that the operator needs, as a Protocol; `api_server_http` implements it.

Objects are plain maps. Every write is a server-side apply of the operator's own fields, or a JSON patch with a test of
the resource version. The errors are in `server_errors`. Source: docs/decisions/058-server-side-apply.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock_operator.cluster.server_errors import Conflict, Forbidden, KubeError
from penstock_operator.manifest import Manifest

__all__ = ["API_RESOURCES", "ApiResource", "ApiServer", "Conflict", "Forbidden", "KubeError", "api_resource_of"]


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A kind of objects in the API, with what is needed to build its URLs."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of all objects, of one object, or of its subresource."""
        parts = ["api" if "/" not in self.api_version else "apis", self.api_version]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/" + "/".join(parts)


API_RESOURCES: Final[dict[str, ApiResource]] = {
    kind.kind: kind
    for kind in (
        ApiResource("penstock.dev/v1alpha1", "Broker", "brokers"),
        ApiResource("penstock.dev/v1alpha1", "Exchange", "exchanges"),
        ApiResource("penstock.dev/v1alpha1", "Subscription", "subscriptions"),
        ApiResource("penstock.dev/v1alpha1", "Queue", "queues"),
        ApiResource("v1", "ConfigMap", "configmaps"),
        ApiResource("v1", "Event", "events"),
        ApiResource("v1", "Namespace", "namespaces", namespaced=False),
        ApiResource("v1", "Node", "nodes", namespaced=False),
        ApiResource("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
        ApiResource("v1", "Pod", "pods"),
        ApiResource("v1", "Secret", "secrets"),
        ApiResource("v1", "Service", "services"),
        ApiResource("v1", "ServiceAccount", "serviceaccounts"),
        ApiResource("apps/v1", "Deployment", "deployments"),
        ApiResource("apps/v1", "StatefulSet", "statefulsets"),
        ApiResource("batch/v1", "CronJob", "cronjobs"),
        ApiResource("cert-manager.io/v1", "Certificate", "certificates"),
        ApiResource("cert-manager.io/v1", "CertificateRequest", "certificaterequests"),
        ApiResource("coordination.k8s.io/v1", "Lease", "leases"),
        ApiResource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
        ApiResource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        ApiResource("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", "scheduledsparkapplications"),
        ApiResource("sparkoperator.k8s.io/v1beta2", "SparkApplication", "sparkapplications"),
        ApiResource("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False),
    )
}


def api_resource_of(manifest: Mapping[str, object]) -> ApiResource:
    """The API resource of an object."""
    return API_RESOURCES[str(manifest["kind"])]


class ApiServer(Protocol):
    """One API server. Every method raises KubeError."""

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        """The object, None if there is none."""
        ...

    def list(
        self, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Manifest]:
        """All objects of a kind, or those that a selector of labels or of fields chooses, page by page. Raises if the
        list expires meanwhile; the caller then starts again.
        """
        ...

    async def apply(self, manifest: Manifest) -> Manifest:
        """Server-side apply of a child as field manager `penstock-operator`; it takes back changes to its fields."""
        ...

    async def apply_status(
        self, resource: Manifest, status: Manifest, manager: str, *, unchanged: bool = False
    ) -> Manifest:
        """Server-side apply of the status fields of `manager`; Conflict if the resource was created anew meanwhile, and
        with `unchanged` also if it was changed.
        """
        ...

    async def set_finalizers(self, resource: Manifest, finalizers: Sequence[str]) -> Manifest | None:
        """Replace the finalizers and return the object, None if that deleted it. Conflict if they changed meanwhile."""
        ...

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object that is never updated, such as an Event."""
        ...

    async def delete(self, manifest: Manifest, *, orphan: bool = False) -> None:
        """Delete the object with this name and uid; no error if it does not exist. `orphan`: what it owns stays."""
        ...

    async def document(self, path: str) -> Manifest | None:
        """The document at a path that is not an object's, None if there is none."""
        ...

    async def serves(self, kind: ApiResource) -> bool:
        """Whether the cluster has this kind."""
        ...
