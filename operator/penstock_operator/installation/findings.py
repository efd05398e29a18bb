"""What is wrong with an installation, from what the API server says of it. Pure.

The schemas that the API server publishes are compared with those of this release, because CRDs that are older than the
operator lose new fields without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from penstock_api.resources import base
from penstock_api.resources.crd import KINDS, ResourceKind, definition
from penstock_operator.manifest import dig, items_of, text_at

__all__ = ["OPENAPI", "findings_of_crds", "findings_of_deployment"]

OPENAPI: Final = f"/openapi/v3/apis/{base.GROUP}/{base.VERSION}"
"""Where the API server publishes the schemas of our kinds."""
_NAMED: Final = 3
_UPGRADE: Final = "Upgrade the CRDs: `kubectl apply --server-side -f crds`, or the chart with crds.enabled=true."


def findings_of_crds(published: Mapping[str, object] | None) -> list[str]:
    """What the CRDs of the cluster lack; `published` is the document at `OPENAPI`, None if there is none."""
    return [finding for kind in KINDS if (finding := _finding_of(kind, published)) is not None]


def findings_of_deployment(name: str, deployment: Mapping[str, object] | None) -> list[str]:
    """Why the operator's Deployment is not available."""
    if deployment is None:
        return [f"There is no Deployment {name}. Name the one of the operator's release."]
    wanted = _number(deployment, "spec", "replicas", default=1)
    if _number(deployment, "status", "observedGeneration") < _number(deployment, "metadata", "generation"):
        return [f"Deployment {name} has just been changed. Wait for `kubectl rollout status deployment/{name}`."]
    available = _number(deployment, "status", "availableReplicas")
    updated = _number(deployment, "status", "updatedReplicas")
    if available < wanted or updated < wanted or wanted == 0:
        why = "".join(
            f" ({text_at(one, 'reason')}: {text_at(one, 'message')})"
            for one in items_of(deployment, "status", "conditions")
            if one.get("status") == "False"
        )
        return [
            f"{available} of {wanted} pods of Deployment {name} are ready, {updated} of this release{why}. "
            f"Look at `kubectl describe deployment/{name}` and at the log of its pod."
        ]
    return []


def _finding_of(kind: ResourceKind, published: Mapping[str, object] | None) -> str | None:
    served = _served(kind, published)
    name = f"{kind.plural}.{base.GROUP}"
    if served is None:
        return f"The cluster does not serve {name}. {_UPGRADE}"
    version = cast("list[Mapping[str, object]]", dig(definition(kind), "spec", "versions"))[0]
    wanted = cast("Mapping[str, object]", dig(version, "schema", "openAPIV3Schema"))
    missing = sorted(
        f"{part}.{path}"
        for part in ("spec", "status")
        for path in _paths(_at(wanted, part)) - _paths(_at(served, part))
    )
    if not missing:
        return None
    shown = ", ".join(missing[:_NAMED]) + (f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else "")
    return f"CRD {name} is older than the operator: it does not have {shown}. {_UPGRADE}"


def _served(kind: ResourceKind, published: Mapping[str, object] | None) -> Mapping[str, object] | None:
    schemas = dig(published, "components", "schemas")
    meant = {"group": base.GROUP, "kind": kind.kind, "version": base.VERSION}
    for schema in cast("Mapping[str, Mapping[str, object]]", schemas or {}).values():
        if meant in items_of(schema, "x-kubernetes-group-version-kind"):
            return schema
    return None


def _at(schema: Mapping[str, object], part: str) -> Mapping[str, object]:
    return cast("Mapping[str, object]", dig(schema, "properties", part) or {})


def _paths(schema: Mapping[str, object], prefix: str = "") -> set[str]:
    """The paths of all fields below a schema; an item of a list or a map adds nothing to the path."""
    return set(_walk(schema, prefix))


def _walk(schema: Mapping[str, object], prefix: str) -> Iterator[str]:
    for below in ("items", "additionalProperties"):
        inner = schema.get(below)
        if isinstance(inner, Mapping):
            yield from _walk(cast("Mapping[str, object]", inner), prefix)
    for name, field in cast("Mapping[str, Mapping[str, object]]", schema.get("properties") or {}).items():
        yield f"{prefix}{name}"
        yield from _walk(field, f"{prefix}{name}.")


def _number(manifest: Mapping[str, object], *path: str, default: int = 0) -> int:
    value = dig(manifest, *path)
    return value if isinstance(value, int) else default
