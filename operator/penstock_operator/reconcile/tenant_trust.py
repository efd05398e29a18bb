"""Writes the CA of a Broker into the namespaces of the resources that use it, and keeps it up to date there.

What can't be written in one namespace keeps nothing else from being done: it is logged once, and tried again with each
reconcile. Source: docs/decisions/101-reach.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock_api.resources import Broker, Declaring
from penstock_operator.children.metadata import is_ours
from penstock_operator.children.tenant_trust import name_of, tenant_config_map
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError
from penstock_operator.manifest import Manifest, dig, items_of, text_at

__all__ = ["TenantTrust"]

logger = logging.getLogger(__name__)

AT_ONCE: Final = 16
"""Namespaces that are looked at at the same time."""


@dataclass(slots=True)
class TenantTrust:
    """The CAs of Brokers in other namespaces, and what the log was told of them."""

    kube: ApiServer
    _told: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """By Broker (`namespace/name`), then by namespace: why its CA is not there. What lasts for weeks is one line."""

    async def publish(self, broker: Broker, tenants: Mapping[str, Declaring], trusted: bytes) -> None:
        """Write a ConfigMap into each of these namespaces, if it is not there as it should be: into `AT_ONCE` of them
        at the same time. Where it can't be written is logged if that is news, and so is that it is over.

        Raises:
            KubeError: the API server can't be reached, or failed.
        """
        places = asyncio.Semaphore(AT_ONCE)
        problems: dict[str, str] = {}

        async def publish(namespace: str, tenant: Declaring) -> None:
            async with places:
                try:
                    problem = await self._publish(broker, namespace, tenant_config_map(broker, tenant, trusted))
                except KubeError as error:
                    if error.status in (0, 429) or error.status >= 500:
                        raise
                    problem = f"it can't be written: {error}"
                if problem is not None:
                    problems[namespace] = problem

        try:
            async with asyncio.TaskGroup() as group:
                for namespace, tenant in tenants.items():
                    group.create_task(publish(namespace, tenant))
        except ExceptionGroup as failed:  # the first; the others were cancelled, or failed alike
            raise failed.exceptions[0] from failed
        self._tell(broker, tenants, problems)

    def forget(self, broker: str) -> None:
        """The Broker (`namespace/name`) is gone."""
        self._told.pop(broker, None)

    async def _publish(self, broker: Broker, namespace: str, wanted: Manifest) -> str | None:
        """Why it can't be done, None if it is done."""
        there = await self.kube.get(API_RESOURCES["ConfigMap"], namespace, name_of(broker))
        if there is not None and not is_ours(there, broker.metadata.uid):
            return f"the ConfigMap {name_of(broker)} there is somebody else's, so clients can't take the CA from it"
        if there is None or dig(there, "data") != wanted["data"] or _owners(there) != _owners(wanted):
            await self.kube.apply(wanted)
        return None

    def _tell(self, broker: Broker, tenants: Mapping[str, Declaring], problems: dict[str, str]) -> None:
        before = self._told.get(broker.key, {})
        for namespace, problem in sorted(problems.items()):
            if before.get(namespace) != problem:
                logger.warning("the CA of Broker %s is not in namespace %s: %s", broker.key, namespace, problem)
        for namespace in sorted(before.keys() - problems.keys()):
            if namespace in tenants:
                logger.info("the CA of Broker %s is in namespace %s now", broker.key, namespace)
        self._told[broker.key] = problems


def _owners(manifest: Manifest) -> set[str | None]:
    return {text_at(each, "uid") for each in items_of(manifest, "metadata", "ownerReferences")}
