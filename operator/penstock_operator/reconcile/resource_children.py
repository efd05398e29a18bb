"""Applies and deletes one child of an Exchange, a Subscription or a Queue, unless it is somebody else's or is as it
should be.

Source: docs/decisions/050-names-of-children.md, docs/decisions/099-unchanged-costs-nothing.md.
"""

from __future__ import annotations

from penstock_operator.children.metadata import belongs_to_predecessor, is_ours
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, api_resource_of
from penstock_operator.cluster.child_versions import ChildVersions
from penstock_operator.manifest import Manifest, dig
from penstock_operator.plans.decisions import ChildState

__all__ = ["apply_owned", "delete_owned"]


async def apply_owned(kube: ApiServer, versions: ChildVersions, manifest: Manifest, uid: str, now: float) -> ChildState:
    """Apply a child of the resource `uid`; `now` in seconds since the epoch.

    Raises:
        KubeError: the API server refused.
    """
    if versions.is_in_force(manifest, now):
        return ChildState.APPLIED
    namespace, name = str(dig(manifest, "metadata", "namespace")), str(dig(manifest, "metadata", "name"))
    observed = await kube.get(api_resource_of(manifest), namespace, name)
    if observed is not None and not is_ours(observed, uid):
        return ChildState.PREDECESSOR if belongs_to_predecessor(observed, uid) else ChildState.TAKEN
    if observed is None or not versions.confirm(manifest, observed, now):
        versions.note_applied(manifest, await kube.apply(manifest), now)
    return ChildState.APPLIED


async def delete_owned(kube: ApiServer, kind: str, namespace: str, name: str, uid: str) -> bool:
    """Delete a child of the resource `uid`. Whether there was one; what is somebody else's stays.

    Raises:
        KubeError: the API server refused.
    """
    observed = await kube.get(API_RESOURCES[kind], namespace, name)
    if observed is None or not is_ours(observed, uid):
        return False
    await kube.delete(observed)
    return True
