"""All images that the charts and the operator name come from one registry, unless a value says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.helm_template import BROKER, OPERATOR, hooks, rendered, template

pytestmark = pytest.mark.built  # hack/cluster builds Helm

USERS = ("broker.spec.authentication.usersSecretRef.name=users", "test.user=app")
REGISTRY = "global.imageRegistry=registry.example:5000/team"


def images(*settings: str) -> dict[str, str]:
    """The images of operator, brokers and lag jobs, and of the hooks, by name."""
    made = rendered(OPERATOR, *settings)
    (deployment,) = (it for it in made if it["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    told = {it["name"].removeprefix("PENSTOCK_OPERATOR_"): it.get("value", "") for it in container["env"]}
    (test,), (guard,) = hooks(made, "test"), hooks(made, "pre-delete")
    return {
        "operator": container["image"],
        "broker": told["BROKER_IMAGE"],
        "lag": told["LAG_IMAGE"],
        "test": test["spec"]["containers"][0]["image"],
        "guard": guard["spec"]["template"]["spec"]["containers"][0]["image"],
    }


def of_broker(*settings: str) -> str:
    (pod,) = hooks(rendered(BROKER, *USERS, *settings), "test")
    return str(pod["spec"]["containers"][0]["image"])


def test_one_value_names_the_registry_of_all_images() -> None:
    assert images(REGISTRY) == {
        "operator": "registry.example:5000/team/penstock-operator:0.1.0",
        "broker": "registry.example:5000/team/penstock-broker:0.1.0",
        "lag": "registry.example:5000/team/penstock-lag:0.1.0",
        "test": "registry.example:5000/team/penstock-operator:0.1.0",
        "guard": "registry.example:5000/team/penstock-operator:0.1.0",
    }
    assert of_broker(REGISTRY) == "registry.example:5000/team/penstock-broker:0.1.0"


def test_one_value_names_the_tag_of_all_images() -> None:
    assert {it.rpartition(":")[2] for it in images("global.imageTag=abc").values()} == {"abc"}
    assert of_broker("global.imageTag=abc") == "localhost/penstock-broker:abc"


def test_a_repository_and_a_tag_of_one_image_win_over_the_common_ones() -> None:
    """As releases before the common values were installed: an upgrade that keeps the values changes no image."""
    found = images(REGISTRY, "global.imageTag=abc", "brokerImage.repository=mirror.example/b", "brokerImage.tag=v7")
    assert (found["broker"], found["lag"]) == ("mirror.example/b:v7", "registry.example:5000/team/penstock-lag:abc")


def test_the_broker_s_test_runs_its_broker_s_image() -> None:
    assert of_broker(REGISTRY, "broker.spec.image=mirror.example/b:7") == "mirror.example/b:7"
    assert of_broker("broker.spec.image=mirror.example/b:7", "test.image=t:1") == "t:1"


@pytest.mark.parametrize("chart", [OPERATOR, BROKER])
@pytest.mark.parametrize("wrong", ["https://registry.example", "registry.example/", "", "Registry example"])
def test_what_is_no_registry_is_refused(chart: Path, wrong: str) -> None:
    done = template(chart, *(USERS if chart == BROKER else ()), f"global.imageRegistry={wrong}")
    assert done.returncode != 0
    assert "at '/global/imageRegistry'" in done.stderr
