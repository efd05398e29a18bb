"""The watches, which kopf runs. It does nothing else here: every event goes to the controller.

No handler of kopf that changes objects is used, so kopf adds no annotations and no finalizers.

Only an operator that watches the whole cluster watches children. An operator that watches single namespaces can lose
its Role before it ends, when a namespace is deleted, and kopf ends as a whole if a watch stays forbidden. There,
`Controller.resync_children` puts Brokers and Exchanges into the work queue at intervals. Source:
docs/decisions/057-lists-are-the-truth.md.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import kopf

from penstock_api.resources import GROUP, VERSION
from penstock_operator import names
from penstock_operator.cluster.controller import Controller
from penstock_operator.settings import OperatorSettings

__all__ = ["watch"]

_CHILDREN: Final = (("apps", "v1", "statefulsets"), ("", "v1", "services"), ("", "v1", "configmaps"))
_SERVER_TIMEOUT_SECONDS: Final = 300


async def watch(controller: Controller, settings: OperatorSettings) -> None:
    """Watch until the process is told to stop; kopf handles SIGTERM and SIGINT."""
    await kopf.operator(
        registry=_registry(controller, children=not settings.namespaces),
        settings=_settings(),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
    )


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = _SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = _SERVER_TIMEOUT_SECONDS + 10
    settings.watching.connect_timeout = 30
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 60
    for child in _CHILDREN:
        settings.watching.label_selectors[child] = names.MANAGED_BY
    return settings


def _registry(controller: Controller, *, children: bool) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    async def resource(event: Any, **_: Any) -> None:
        manifest = dict(event["object"])
        (controller.resource_deleted if event["type"] == "DELETED" else controller.resource_changed)(manifest)

    async def child(event: Any, **_: Any) -> None:
        controller.child_changed(dict(event["object"]), is_deleted=event["type"] == "DELETED")

    for plural in ("brokers", "exchanges", "subscriptions"):
        kopf.on.event(GROUP, VERSION, plural, registry=registry)(resource)
    for group, version, plural in _CHILDREN if children else ():
        kopf.on.event(group, version, plural, registry=registry)(child)
    return registry


logging.getLogger("kopf.objects").setLevel(logging.WARNING)
