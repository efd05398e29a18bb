"""What becomes of the child that a plan wants applied or deleted, as the next view of its resource tells it.

An Exchange needs its Service, so a refusal of that ends the pass; a Subscription or a Queue works without its Secrets.
Source: docs/decisions/050-names-of-children.md, docs/decisions/070-observer-tokens.md,
docs/decisions/111-binding-secrets.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from penstock_operator.children import binding_secret
from penstock_operator.cluster.api_server import ApiServer, KubeError
from penstock_operator.cluster.cache import ResourceKey
from penstock_operator.cluster.child_versions import ChildVersions
from penstock_operator.manifest import Manifest
from penstock_operator.plans.decisions import ChildState, DeleteChild
from penstock_operator.plans.exchange import ExchangeView
from penstock_operator.plans.queue import QueueView
from penstock_operator.plans.refusals import Refusal
from penstock_operator.plans.subscription import SubscriptionView
from penstock_operator.reconcile.binding_secrets import BindingSecrets
from penstock_operator.reconcile.resource_children import apply_owned, delete_owned

__all__ = ["ChildrenOfViews", "ViewT"]

ViewT = TypeVar("ViewT", ExchangeView, SubscriptionView, QueueView)


@dataclass(slots=True)
class ChildrenOfViews:
    """Applies and deletes the children of Exchanges, Subscriptions and Queues."""

    kube: ApiServer
    versions: ChildVersions
    bindings: BindingSecrets
    clock: Callable[[], datetime]

    async def with_child(self, key: ResourceKey, view: ViewT, manifest: Manifest) -> ViewT:
        """The view with what became of the child that was to be applied. Raises KubeError."""
        uid = view.resource.metadata.uid
        if isinstance(view, ExchangeView):
            return replace(view, service=await self._apply(manifest, uid))
        try:
            if isinstance(view, SubscriptionView) and manifest.get("type") == binding_secret.TYPE:
                return replace(view, binding_secret=await self.bindings.write(key, manifest, uid))
            return replace(view, scale_secret=await self._apply(manifest, uid))
        except KubeError as error:
            is_binding = manifest.get("type") == binding_secret.TYPE
            return _refused(view, _refusal(error), is_binding=is_binding)

    async def without_child(self, key: ResourceKey, view: ViewT, unwanted: DeleteChild) -> ViewT:
        """The view after the child was deleted. Raises KubeError."""
        assert not isinstance(view, ExchangeView), "the Service of an Exchange goes with it"
        if isinstance(view, SubscriptionView) and unwanted.name == binding_secret.secret_name(view.resource):
            return replace(view, binding_secret=await self.bindings.remove(key, view.resource, unwanted.name))
        uid = view.resource.metadata.uid
        try:
            if await delete_owned(self.kube, unwanted.kind, key.namespace, unwanted.name, uid):
                self.versions.forget(key)
        except KubeError as error:
            return _refused(view, _refusal(error), is_binding=False)
        return replace(view, scale_secret=ChildState.GONE)

    async def _apply(self, manifest: Manifest, uid: str) -> ChildState:
        return await apply_owned(self.kube, self.versions, manifest, uid, self.clock().timestamp())


def _refusal(error: KubeError) -> Refusal:
    """Why the API server does not take something; the error itself if it may do so later."""
    if error.refusal is None:
        raise error
    return error.refusal


def _refused(view: ViewT, refusal: Refusal, *, is_binding: bool) -> ViewT:
    assert not isinstance(view, ExchangeView), "the refusal of its Service ends the pass"
    if isinstance(view, SubscriptionView) and is_binding:
        return replace(view, binding_secret=ChildState.REFUSED, binding_refusal=refusal)
    return replace(view, scale_secret=ChildState.REFUSED, scale_refusal=refusal)
