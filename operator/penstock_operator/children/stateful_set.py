"""The StatefulSet of a Broker, and what pins it.

An upgrade of the operator never replaces broker pods. So what the pods are made with is *pinned* in annotations of the
StatefulSet: the default image at the time when the Broker was made, and the pod revision, which is one of the templates
that this operator knows. A new release of the operator may add a revision; an existing StatefulSet gets it together
with its next image. The ConfigMap has the same annotations, for the moment in which a StatefulSet whose volumes grow is
deleted and made again. Source: docs/decisions/051-broker-pods.md, docs/decisions/061-different-releases.md,
docs/decisions/105-volumes-grow.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

import yaml

from penstock_api import release_terms
from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children import configuration, volume_claims
from penstock_operator.children.metadata import child_metadata, claim_labels, is_ours
from penstock_operator.children.pod_template import template_1
from penstock_operator.manifest import Manifest, dig, items_of, text_at

__all__ = [
    "LATEST",
    "PinnedPods",
    "broker_stateful_set",
    "image_of",
    "is_recorded",
    "pin",
    "revision_of",
    "running_image",
    "unknown_settings",
]

IMAGE_ANNOTATION: Final = "penstock.dev/default-image"
REVISION_ANNOTATION: Final = "penstock.dev/pod-revision"
UNDERSTOOD_ANNOTATION: Final = "penstock.dev/understood-settings"
RUNNING_ANNOTATION: Final = "penstock.dev/running-image"
"""On the ConfigMap only: of a StatefulSet, its pod template says it."""
_RECORD: Final = (IMAGE_ANNOTATION, REVISION_ANNOTATION, UNDERSTOOD_ANNOTATION)


@dataclass(frozen=True, slots=True)
class PinnedPods:
    """What the pods of one Broker are made with; a new version of the operator does not change it."""

    image: str
    """The image in use."""
    default_image: str
    """The image that is used if `spec.image` is not set."""
    revision: int
    """The number of the pod template, among those of this operator."""
    understood: frozenset[str] | None = None
    """The settings that the image knows (terms of `penstock_api.release_terms`); None if its broker has never said."""


def pin(
    broker: Broker, observed: Manifest | None, default_image: str, config_map: Manifest | None = None
) -> PinnedPods:
    """What the pods of a Broker are made with; `observed` is its StatefulSet, None if there is none now, and
    `config_map` its ConfigMap, which keeps the record meanwhile.
    """
    source = observed if observed is not None else _of_this(broker, config_map)
    recorded_image = text_at(source, "metadata", "annotations", IMAGE_ANNOTATION)
    if observed is None and recorded_image is None:
        return PinnedPods(broker.spec.image or default_image, default_image, LATEST)
    kept = recorded_image or default_image
    image = broker.spec.image or kept
    running = running_image(observed, source)
    recorded = text_at(source, "metadata", "annotations", REVISION_ANNOTATION) or ""
    revision = int(recorded) if recorded.isdigit() and int(recorded) in _REVISIONS else LATEST
    understood = _recorded(source) if image == running else None
    return PinnedPods(image, kept, revision if image == running else LATEST, understood)


def _of_this(broker: Broker, config_map: Manifest | None) -> Manifest | None:
    """The ConfigMap, unless it belongs to a deleted Broker of the same name."""
    return config_map if config_map is not None and is_ours(config_map, broker.metadata.uid) else None


def _recorded(source: Manifest | None) -> frozenset[str] | None:
    """The settings that the running image knows, from the annotation: the broker may be down when this is needed."""
    terms = text_at(source, "metadata", "annotations", UNDERSTOOD_ANNOTATION)
    return None if terms is None else frozenset(f"settings.{term}" for term in terms.split(","))


def running_image(observed: Manifest | None, config_map: Manifest | None = None) -> str | None:
    """The broker image in the pod template of a StatefulSet; without one, what the ConfigMap says it was."""
    if observed is None:
        return text_at(config_map, "metadata", "annotations", RUNNING_ANNOTATION)
    return _image(items_of(observed, "spec", "template", "spec", "containers"))


def is_recorded(stateful_set: Manifest | None, config_map: Manifest | None) -> bool:
    """Whether the ConfigMap says of the pods all that the StatefulSet does, so that this one can be made again."""
    if stateful_set is None or config_map is None:
        return False
    here, there = (
        [text_at(it, "metadata", "annotations", key) for key in _RECORD] for it in (stateful_set, config_map)
    )
    return here == there and running_image(stateful_set) == running_image(None, config_map)


def image_of(pod: Manifest | None) -> str | None:
    """The broker image of a pod; None without a pod."""
    return _image(items_of(pod, "spec", "containers"))


def _image(containers: Iterable[Manifest]) -> str | None:
    return next((text_at(each, "image") for each in containers if each.get("name") == "broker"), None)


def broker_stateful_set(
    broker: Broker,
    pinned: PinnedPods,
    signed_by: str = "",
    sizes: Mapping[str, str] | None = None,
    host: str = names.ALL_IPV4,
    observed: Manifest | None = None,
) -> tuple[Manifest, Manifest]:
    """The StatefulSet, and the ConfigMap with the settings that its pods read.

    `signed_by`: the issuer name in the tokens of this cluster, empty if the Broker does not accept them. `sizes`: of
    the claims by volume, if not those of the spec: a StatefulSet that exists keeps what it was made with. `host`: what
    stands for all addresses of a pod. `observed`: the StatefulSet that is there; it keeps its selector, and so the
    labels of its claims, which can't be changed.
    """
    revision = revision_of(pinned)
    rendered = revision.render(broker, signed_by, host)
    name = broker.metadata.name
    record = {
        IMAGE_ANNOTATION: pinned.default_image,
        REVISION_ANNOTATION: str(pinned.revision),
        **_understood_annotation(pinned),
    }
    about = child_metadata(broker, broker, name, record)
    storage = broker.spec.storage
    sizes = volume_claims.wanted_sizes(broker) if sizes is None else sizes
    selector = cast(Manifest, dig(observed, "spec", "selector", "matchLabels") or claim_labels(broker))
    spec: Manifest = {
        "replicas": broker.spec.replicas,
        "serviceName": f"{name}-pods",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": selector},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": storage.when_deleted, "whenScaled": "Retain"},
        "template": revision.template(broker, pinned.image, configuration.digest(rendered), host),
        "volumeClaimTemplates": [
            volume_claims.claim_template(broker, volume, sizes[volume], selector) for volume in volume_claims.VOLUMES
        ],
    }
    made: Manifest = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": about, "spec": spec}
    return made, configuration.config_map(broker, rendered, {**record, RUNNING_ANNOTATION: pinned.image})


def _understood_annotation(pinned: PinnedPods) -> Manifest:
    if pinned.understood is None:
        return {}
    return {UNDERSTOOD_ANNOTATION: ",".join(sorted(term.removeprefix("settings.") for term in pinned.understood))}


def unknown_settings(broker: Broker, pinned: PinnedPods, running: Manifest | None = None) -> tuple[str, ...]:
    """The settings of a Broker that its image does not know; none if it is not known what the image knows.

    An image whose broker has never said what it knows does know the settings that it runs with: those of the ConfigMap
    `running`.
    """
    wanted = revision_of(pinned).settings(broker, "", names.ALL_IPV4)
    if pinned.understood is not None:
        return release_terms.missing_settings(wanted, pinned.understood)
    runs_with = text_at(running, "data", configuration.FILE)
    if runs_with is None:
        return ()
    return release_terms.missing_settings(wanted, release_terms.settings_terms(yaml.safe_load(runs_with)))


@dataclass(frozen=True, slots=True)
class _Revision:
    """A pod template and a settings file that belong together; never changed once released."""

    template: Callable[[Broker, str, str, str], Manifest]
    render: Callable[[Broker, str, str], str]
    settings: Callable[[Broker, str, str], Manifest]
    """What `render` writes into the file: YAML takes so long to be read that each turn of a Broker would feel it."""


_REVISIONS: Final[dict[int, _Revision]] = {1: _Revision(template_1, configuration.render, configuration.settings_of)}
LATEST: Final = max(_REVISIONS)


def revision_of(pinned: PinnedPods) -> _Revision:
    """The pinned revision."""
    return _REVISIONS[pinned.revision]
