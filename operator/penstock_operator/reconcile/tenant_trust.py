"""Writes the CA of a Broker into the namespaces of the resources that use it, and keeps it up to date there.

What can't be written in one namespace keeps nothing else from being done: it is logged, and tried again with the next
reconcile. Source: docs/decisions/101-reach.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from penstock_api.resources import Broker, Declaring
from penstock_operator.children.metadata import is_ours
from penstock_operator.children.tenant_trust import name_of, tenant_config_map
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError
from penstock_operator.manifest import Manifest, dig, items_of, text_at

__all__ = ["publish_trust"]

logger = logging.getLogger(__name__)

AT_ONCE: Final = 16
"""Namespaces that are looked at at the same time."""


async def publish_trust(kube: ApiServer, broker: Broker, tenants: Mapping[str, Declaring], trusted: bytes) -> None:
    """Write a ConfigMap into each of these namespaces, if it is not there as it should be: into `AT_ONCE` of them at
    the same time.

    Raises:
        KubeError: the API server can't be reached, or failed.
    """
    places = asyncio.Semaphore(AT_ONCE)

    async def publish(namespace: str, tenant: Declaring) -> None:
        async with places:
            try:
                await _publish(kube, broker, namespace, tenant_config_map(broker, tenant, trusted))
            except KubeError as error:
                if error.status in (0, 429) or error.status >= 500:
                    raise
                logger.warning(
                    "the CA of Broker %s can't be written into namespace %s: %s", broker.key, namespace, error
                )

    try:
        async with asyncio.TaskGroup() as group:
            for namespace, tenant in tenants.items():
                group.create_task(publish(namespace, tenant))
    except ExceptionGroup as failed:  # the first; the others were cancelled, or failed alike
        raise failed.exceptions[0] from failed


async def _publish(kube: ApiServer, broker: Broker, namespace: str, wanted: Manifest) -> None:
    there = await kube.get(API_RESOURCES["ConfigMap"], namespace, name_of(broker))
    if there is not None and not is_ours(there, broker.metadata.uid):
        logger.warning(
            "ConfigMap %s/%s is somebody else's, so clients there can't take the CA of Broker %s from it",
            *(namespace, name_of(broker), broker.key),
        )
        return
    if there is None or dig(there, "data") != wanted["data"] or _owners(there) != _owners(wanted):
        await kube.apply(wanted)


def _owners(manifest: Manifest) -> set[str | None]:
    return {text_at(each, "uid") for each in items_of(manifest, "metadata", "ownerReferences")}
