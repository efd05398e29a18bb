"""The volumes of a Broker: read their claims where that can matter, and carry out what `volume_growth` decides.

Source: docs/decisions/105-volumes-grow.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from penstock_api.quantity import parse_quantity
from penstock_api.resources import Broker
from penstock_operator.children.stateful_set import is_recorded
from penstock_operator.children.volume_claims import (
    VOLUMES,
    are_same,
    claim_name,
    resized,
    template_sizes,
    wanted_sizes,
)
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError
from penstock_operator.manifest import Manifest, dig
from penstock_operator.plans.broker_health import is_serving
from penstock_operator.plans.conditions import is_shown
from penstock_operator.plans.volume_growth import (
    Expansion,
    LookUpClass,
    NothingToGrow,
    ReplaceStatefulSet,
    ResizeClaim,
    VolumesView,
    next_step,
    sizes_for_a_new_stateful_set,
)
from penstock_operator.plans.volume_report import volume_obstacle
from penstock_operator.reconcile.broker_children import ObservedChildren

__all__ = ["grow_volumes", "observe_volumes"]

logger = logging.getLogger(__name__)


async def observe_volumes(kube: ApiServer, broker: Broker, observed: ObservedChildren) -> VolumesView | None:
    """The volumes, None if they need not be looked at: they had the sizes of the spec when they were read last, and
    since then neither the spec nor the StatefulSet asks for others, and the pod serves.

    Raises:
        KubeError: the API server refused.
    """
    stateful_set = observed.get("StatefulSet", broker.metadata.name)
    serves = is_serving(observed.get("Pod", f"{broker.metadata.name}-0"))
    wanted, template = wanted_sizes(broker), template_sizes(stateful_set)
    leaving = dig(stateful_set, "metadata", "deletionTimestamp") is not None
    if serves and not leaving and template is not None and are_same(template, wanted) and _had_them(broker, wanted):
        return None
    view = VolumesView(wanted=wanted, template=template, is_leaving=leaving)
    kind, namespace = API_RESOURCES["PersistentVolumeClaim"], broker.metadata.namespace
    try:
        found = await asyncio.gather(*(kube.get(kind, namespace, claim_name(broker, volume)) for volume in VOLUMES))
    except KubeError as error:
        if error.status != 403:
            raise
        return replace(view, may_read_claims=False)
    claims = {volume: claim for volume, claim in zip(VOLUMES, found, strict=True) if claim is not None}
    return replace(view, claims=claims)


def _had_them(broker: Broker, wanted: Mapping[str, str]) -> bool:
    """Whether `status.storage` says that each volume has what the spec and its claim ask for."""
    shown = broker.status.storage
    for volume in VOLUMES:
        sizes = None if shown is None else {"data": shown.data, "ledger": shown.ledger}[volume]
        if sizes is None or sizes.requested is None or sizes.capacity is None:
            return False
        request = parse_quantity(sizes.requested)
        if request < parse_quantity(wanted[volume]) or parse_quantity(sizes.capacity) < request:
            return False
    return True


async def grow_volumes(
    kube: ApiServer, broker: Broker, observed: ObservedChildren, view: VolumesView | None
) -> VolumesView | None:
    """Do everything that can be done now, and return what is then known. What is waited for is done by a later pass.
    The children must have been applied before: the ConfigMap then has the record of the StatefulSet.

    Raises:
        KubeError: the API server can't be reached, or something changed meanwhile.
    """
    if view is None:
        return None
    name = broker.metadata.name
    stateful_set, config_map = observed.get("StatefulSet", name), observed.get("ConfigMap", f"{name}-config")
    # A StatefulSet that was not there before was made in this pass.
    template = sizes_for_a_new_stateful_set(view)
    view = replace(view, template=template, is_recorded=is_recorded(stateful_set, config_map))
    while not isinstance(step := next_step(view), NothingToGrow):
        try:
            view = await _done(kube, broker, view, step, stateful_set)
        except KubeError as error:
            if error.status not in (403, 422):
                raise
            view = replace(view, refused=str(error))
            obstacle = volume_obstacle(broker, view)
            if obstacle is None or not is_shown(obstacle, broker.status.conditions):
                logger.warning("the volumes of Broker %s can't be changed: %s", broker.key, error)
    return view


async def _done(
    kube: ApiServer,
    broker: Broker,
    view: VolumesView,
    step: LookUpClass | ResizeClaim | ReplaceStatefulSet,
    stateful_set: Manifest | None,
) -> VolumesView:
    match step:
        case LookUpClass(name):
            return replace(view, classes={**view.classes, name: await _expansion(kube, name)})
        case ResizeClaim(volume, size):
            claim = await kube.apply(resized(view.claims[volume], size))
            logger.info("the claim %s/%s asks for %s", broker.metadata.namespace, claim_name(broker, volume), size)
            return replace(view, claims={**view.claims, volume: claim})
        case ReplaceStatefulSet():
            if stateful_set is not None:
                logger.info("StatefulSet %s is deleted without its pods and made again", broker.key)
                await kube.delete(stateful_set, orphan=True)
            return replace(view, is_leaving=True)


async def _expansion(kube: ApiServer, name: str) -> Expansion:
    """Whether volumes of this storage class can grow."""
    try:
        found = await kube.get(API_RESOURCES["StorageClass"], None, name)
    except KubeError as error:
        if error.status != 403:
            raise
        return Expansion.NOT_KNOWN
    if found is None:
        return Expansion.NO_CLASS
    return Expansion.ALLOWED if found.get("allowVolumeExpansion") is True else Expansion.NOT_ALLOWED
