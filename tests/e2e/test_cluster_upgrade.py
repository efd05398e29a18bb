"""An upgrade from the release before, and the rollback to it, on the cluster while messages flow: the commands of
docs/how-to/upgrade.md, in their order.

The release before is built from the commit that hack/releasing/previous-release names: its images, its CRDs and its
charts. No operator of the whole cluster may run meanwhile, which would take the Broker for its own, too: this test is
not one of tests/operator/installed.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from e2e.kube import ROOT, Kube, own_cluster_environment, wait_for
from e2e.story import StoryError
from kube import binaries, images
from kube.node import Cluster
from kube.settings import addresses, folders
from support import cluster_images
from support.chaos_load import flowing
from support.installed_operator import MINUTE, NAMESPACE, Team, whole
from support.previous_release import previous_tree

pytestmark = pytest.mark.cluster

RELEASE = "upgraded"
CHART = "helm/penstock-operator"


@dataclass(frozen=True, slots=True)
class Site:
    """The operator's namespace, and one for a Broker."""

    home: Kube
    team: Team

    def helm(self, *words: str) -> str:
        """helm, in the operator's namespace."""
        return self.home.helm(*words, "--namespace", self.home.namespace)

    def values(self, tag: str) -> list[str]:
        """Settings for images with this tag, as both releases know them."""
        settings = {"image.tag": tag, "brokerImage.tag": tag, "lagImage.tag": tag}
        return [f"--set-string={name}={value}" for name, value in settings.items()]

    def take_image(self, tag: str) -> None:
        """Give the Broker the image with this tag, and wait until its pod runs that and is Ready."""
        image = f"localhost/penstock-broker:{tag}"
        self.team.kube.kubectl("patch", "broker", "main", "--type=merge", "-p", f'{{"spec": {{"image": "{image}"}}}}')
        wait_for("the pod of this image", lambda: self.image_of_pod() == image or None, 3 * MINUTE)
        self.team.wait_ready()

    def image_of_pod(self) -> str:
        """Of the broker's container."""
        return str(self.team.field("pod", "main-0", "spec", "containers", 0, "image"))

    def pod(self) -> object:
        """The uid of the broker's pod."""
        return self.team.field("pod", "main-0", "metadata", "uid")

    def url(self) -> str:
        """Where clients connect."""
        return f"amqp://{self.team.field('service', 'main-amqp', 'spec', 'clusterIP')}:5672"


def previous_tag() -> str:
    """Build the images of the release before with its own recipes, and bring them to the node. Returns their tag. The
    lag job's, which is the largest, is left out: nothing here runs it.
    """
    command = [str(previous_tree() / "hack/images"), "build", "broker", "operator"]
    built = subprocess.run(command, cwd=previous_tree(), capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    places = folders()
    images.load(Cluster(places, addresses(), binaries.located(places)), built.stdout.split())
    return built.stdout.split()[0].rpartition(":")[2]


def apply_crds(kube: Kube, tree: Path) -> None:
    kube.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(tree / "crds"))


@pytest.fixture
def site() -> Iterator[Site]:
    mark = f"penstock-u-{secrets.token_hex(3)}"
    environment = own_cluster_environment()
    made = Site(Kube(mark, environment), Team(Kube(f"{mark}-0", environment)))
    others = made.home.kubectl(
        "get", "deployment", "-A", "-l", "app.kubernetes.io/name=penstock-operator", "-o", "name"
    )
    assert not others.strip(), "another operator runs, and would give the Broker its own image"
    apply_crds(made.home, ROOT)
    made.home.kubectl("apply", "-f", "-", stdin="---".join(NAMESPACE.format(name=it) for it in (mark, f"{mark}-0")))
    try:
        yield made
    finally:
        made.home.kubectl("delete", "namespace", f"{mark}-0", "--ignore-not-found", "--wait", "--timeout=180s")
        made.helm("uninstall", RELEASE, "--ignore-not-found", "--wait")
        made.home.kubectl("delete", "namespace", mark, "--wait", "--timeout=120s")
        apply_crds(made.home, ROOT)


def test_upgrade_and_rollback_under_traffic_lose_nothing(site: Site) -> None:
    before, now = previous_tag(), cluster_images.images().tag
    apply_crds(site.home, previous_tree())
    watched = f"--set=watchNamespaces={{{site.team.kube.namespace}}}"
    wait = ("--wait", "--timeout=180s")
    site.helm("install", RELEASE, str(previous_tree() / CHART), "--set=crds.enabled=false", watched,
              *site.values(before), *wait)  # fmt: skip
    site.team.apply(*whole(listeners={"amqp": True}, authentication={"anonymous": True}))
    site.team.wait_ready()
    pod = site.pod()
    with flowing(site.url) as load:
        # The upgrade: CRDs, operator, broker.
        apply_crds(site.home, ROOT)
        site.helm("upgrade", RELEASE, str(ROOT / CHART), "--reset-then-reuse-values", *site.values(now), *wait)
        site.helm("test", RELEASE)
        site.team.wait_ready()
        assert (site.pod(), site.image_of_pod()) == (pod, f"localhost/penstock-broker:{before}")
        load.flows()
        assert load.reconnects == 0, load.last_problem
        site.take_image(now)
        load.flows()

        # Nobody uninstalls it now by a slip.
        with pytest.raises(StoryError) as refused:
            site.helm("uninstall", RELEASE, "--timeout=120s")
        assert "1 Broker, 1 Exchange and 3 Subscriptions" in str(refused.value)
        assert site.home.get("deployment", f"{RELEASE}-penstock-operator") is not None

        # The rollback: broker, operator, and the CRDs stay.
        site.take_image(before)
        load.flows()
        pod = site.pod()
        site.helm("rollback", RELEASE, "1", *wait)
        site.team.wait_ready()
        assert (site.pod(), site.image_of_pod()) == (pod, f"localhost/penstock-broker:{before}")
        load.flows()
