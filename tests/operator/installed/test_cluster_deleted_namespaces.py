"""A namespace is deleted with its Broker, its volumes and what is declared, in the worst order that a platform team may
find: the operator's rights there go first, or the broker's pod and its Secrets, or the operator itself is away. It is
gone within two minutes, and the operator goes on with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest
from e2e.kube import pick, wait_for
from support.installed_operator import MINUTE, Installation, Team, open_installation

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def watching() -> Iterator[Installation]:
    """It has a Role in each of its namespaces, as with `watchNamespaces`: that goes with the namespace."""
    with open_installation(namespaced=True) as made:
        yield made


def rights_first(_: Installation, team: Team) -> None:
    team.kube.kubectl("delete", "rolebindings,roles", "--all")


def broker_and_secrets_first(_: Installation, team: Team) -> None:
    team.kube.kubectl("delete", "secrets", "--all")
    team.kube.kubectl("delete", "statefulset", "main", "--wait=false")
    team.kube.kubectl("delete", "pod", "main-0", "--grace-period=0", "--force")


def operator_away(installation: Installation, _: Team) -> None:
    installation.scale_operator(0)


@pytest.mark.parametrize("first", [rights_first, broker_and_secrets_first, operator_away])
def test_the_namespace_goes(watching: Installation, first: Callable[[Installation, Team], None]) -> None:
    with watching.team() as team:
        name = team.kube.namespace
        team.apply_whole()
        team.wait_ready()
        assert team.field("pvc", "data-main-0", "status", "phase") == "Bound"
        try:
            first(watching, team)
            team.kube.kubectl("delete", "namespace", name, "--wait=false")
            if first is operator_away:
                wait_for(
                    "the finalizers alone to be left", lambda: remaining(team) == ["exchanges", "subscriptions"], MINUTE
                )
        finally:
            if first is operator_away:
                watching.scale_operator(1)
        watching.home.kubectl("wait", "--for=delete", f"namespace/{name}", "--timeout=120s")


def remaining(team: Team) -> list[str]:
    """The kinds of which the namespace still has something, as it says itself."""
    conditions = cast(
        "list[dict[str, str]]", pick(team.kube.get("namespace", team.kube.namespace), "status", "conditions") or []
    )
    said = [it["message"] for it in conditions if it["type"] == "NamespaceContentRemaining" and it["status"] == "True"]
    words = said[0].replace(",", " ").split() if said else []
    return sorted(word.partition(".")[0] for word in words if ".penstock.dev" in word)
