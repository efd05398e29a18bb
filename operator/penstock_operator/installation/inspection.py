"""Asks the API server what `findings` and `removal` judge. Source: docs/how-to/upgrade.md."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from penstock_api.failure import Failure
from penstock_api.resources.crd import KINDS
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError
from penstock_operator.cluster.api_server_http import HttpApiServer
from penstock_operator.installation.findings import OPENAPI, findings_of_crds, findings_of_deployment
from penstock_operator.installation.removal import Release, refusal_of_removal
from penstock_operator.manifest import text_at

__all__ = ["check_installation", "guard_installation", "inspect", "names_by_kind"]


async def check_installation(namespace: str, deployment: str) -> list[str]:
    """What was found right, a line each.

    Raises:
        Failure: something is wrong, or the API server can't be asked.
    """
    async with _connected() as kube:
        return await inspect(kube, namespace, deployment)


async def guard_installation(release: Release) -> str:
    """Return a sentence if the release may be uninstalled.

    Raises:
        Failure: it may not, or the API server can't be asked.
    """
    async with _connected() as kube:
        refusal = refusal_of_removal(release, await names_by_kind(kube, release.concerned))
    if refusal is not None:
        raise refusal
    where = f"namespace {', '.join(release.concerned)}" if release.concerned else "the cluster"
    return f"There is no resource of Penstock in {where}: release {release.name} may be uninstalled."


async def inspect(kube: ApiServer, namespace: str, deployment: str) -> list[str]:
    """The same as `check_installation`, with an API server that is connected."""
    wrong = findings_of_crds(await kube.document(OPENAPI))
    wrong += findings_of_deployment(deployment, await kube.get(API_RESOURCES["Deployment"], namespace, deployment))
    if wrong:
        raise Failure("\n".join(wrong))
    counts = {kind: len(names) for kind, names in (await names_by_kind(kube)).items()}
    return [
        "The CRDs have every field that this release knows.",
        f"Deployment {namespace}/{deployment} is available.",
        "The cluster has " + ", ".join(f"{count} {kind}s" for kind, count in counts.items()) + ".",
    ]


async def names_by_kind(kube: ApiServer, namespaces: Sequence[str] = ()) -> dict[str, list[str]]:
    """The resources in these namespaces, or in all, as `namespace/name`; a kind that is not served has none.

    Raises KubeError.
    """
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        names = found.setdefault(kind.kind, [])
        try:
            for namespace in namespaces or (None,):
                async for one in kube.list(API_RESOURCES[kind.kind], namespace):
                    names.append(f"{text_at(one, 'metadata', 'namespace')}/{text_at(one, 'metadata', 'name')}")
        except KubeError as error:
            if error.status != 404:
                raise
    return found


@asynccontextmanager
async def _connected() -> AsyncGenerator[ApiServer]:
    kube = await HttpApiServer.connect()
    try:
        yield kube
    except KubeError as error:
        raise Failure(
            f"The API server did not answer a question about the installation: {error}.",
            "Check that the operator's ServiceAccount has the roles of its chart (rbac.create).",
        ) from error
    finally:
        await kube.close()
