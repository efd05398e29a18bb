"""The Events that say why the pod of a Broker is not ready, read only while it is not.

Source: docs/decisions/126-events-read.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock_api.resources import Broker
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError
from penstock_operator.manifest import Manifest, text_at
from penstock_operator.plans.broker_health import is_serving
from penstock_operator.plans.pod_trouble import asked_about

__all__ = ["read_events"]


async def read_events(
    kube: ApiServer,
    broker: Broker,
    pod: Manifest | None,
    stateful_set: Manifest | None,
    claims: Mapping[str, Manifest],
) -> tuple[Manifest, ...]:
    """The Events about what the pod waits for; none if they are not needed, or may not be read. Roles of one's own may
    lack the right to, and the status then says less.

    Raises:
        KubeError: the API server can't be reached.
    """
    if broker.spec.replicas == 0 or is_serving(pod):
        return ()
    found: list[Manifest] = []
    try:
        for about in asked_about(pod, stateful_set, tuple(claims.values())):
            fields = f"involvedObject.uid={text_at(about, 'metadata', 'uid')}"
            found += [
                each async for each in kube.list(API_RESOURCES["Event"], broker.metadata.namespace, fields=fields)
            ]
    except KubeError as error:
        if error.status != 403:
            raise
    return tuple(found)
