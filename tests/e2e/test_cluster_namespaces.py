"""An operator of single namespaces (`watchNamespaces`) on a real cluster: it may not watch children, so it lists them;
and its Role in a namespace goes before the resources when that is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.kube import wait_for
from support.installed_operator import MINUTE, Installation, Team, open_installation

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with open_installation(namespaced=True) as made:
        yield made


@pytest.fixture(scope="module")
def team(installation: Installation) -> Iterator[Team]:
    with installation.team() as made:
        made.apply_whole()
        made.wait_ready()
        yield made


def test_children_that_are_deleted_are_back(team: Team) -> None:
    team.kube.kubectl("delete", "service", "orders-x", "main-amqp")
    wait_for("the Services to be back", lambda: team.field("service", "main-amqp", "metadata", "name"), MINUTE)
    wait_for("the Exchange's Service", lambda: team.field("service", "orders-x", "metadata", "name"), MINUTE)


def test_deletion_of_the_whole_namespace(installation: Installation, team: Team) -> None:
    team.kube.kubectl("delete", "namespace", team.kube.namespace, "--timeout=120s")
    assert "because of a bug in the operator" not in installation.log()
