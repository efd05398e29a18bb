"""Labels and annotations of the values meet those of the charts: no key is there twice."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.helm_template import BROKER, OPERATOR, template

pytestmark = pytest.mark.built  # hack/cluster builds Helm

OPEN = "broker.spec.authentication.anonymous=true"
INSTANCE, PART_OF = r"app\.kubernetes\.io/instance", r"app\.kubernetes\.io/part-of"
PROTECTION = "penstock.dev/delete-protection"


class OnceLoader(yaml.SafeLoader):
    """Refuses a mapping with the same key twice, as Kustomize does; PyYAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice in line {node.start_mark.line + 1}: {sorted(keys)}"
        return super().construct_mapping(node, deep)


def made(chart: Path, kind: str, *settings: str) -> dict[str, Any]:
    done = template(chart, *settings)
    assert done.returncode == 0, done.stderr
    documents = list(yaml.load_all(done.stdout, OnceLoader))
    (found,) = (it for it in documents if it and it["kind"] == kind)
    return dict(found)


@pytest.mark.parametrize(
    ("chart", "kind", "settings"),
    [
        (OPERATOR, "PodMonitor", ("podMonitor.enabled=Always", f"podMonitor.labels.{INSTANCE}=mine")),
        (OPERATOR, "PrometheusRule", ("prometheusRule.enabled=Always", f"prometheusRule.labels.{INSTANCE}=mine")),
        (OPERATOR, "ConfigMap", ("dashboard.enabled=true", f"dashboard.labels.{INSTANCE}=mine")),
        (BROKER, "PodMonitor", (OPEN, "podMonitor.enabled=Always", f"podMonitor.labels.{PART_OF}=mine")),
        (BROKER, "Broker", (OPEN, f"broker.labels.{PART_OF}=mine")),
    ],
)
def test_a_label_of_the_values_takes_the_place_of_the_chart_s(
    chart: Path, kind: str, settings: tuple[str, ...]
) -> None:
    labels = made(chart, kind, *settings)["metadata"]["labels"]
    assert "mine" in labels.values()
    assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_a_label_of_the_pod_is_added_to_those_of_the_selector() -> None:
    spec = made(OPERATOR, "Deployment", "podLabels.team=a", f"podLabels.{INSTANCE}=one")["spec"]
    selector = {"app.kubernetes.io/name": "penstock-operator", "app.kubernetes.io/instance": "one"}
    assert spec["selector"]["matchLabels"] == selector
    assert spec["template"]["metadata"]["labels"] == {**selector, "team": "a"}


def test_null_is_no_label() -> None:
    for value in ("podLabels", "podMonitor.labels", "dashboard.labels"):
        assert made(OPERATOR, "Deployment", f"{value}=null", "podMonitor.enabled=Always", "dashboard.enabled=true")


def test_a_label_by_which_the_deployment_finds_its_pod_is_not_changed() -> None:
    done = template(OPERATOR, f"podLabels.{INSTANCE}=mine")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        'podLabels.app.kubernetes.io/instance can\'t be "mine": by this label the Deployment finds its pods, '
        'and it is "one"' in done.stderr
    )


def test_delete_protection_holds_also_against_an_annotation_of_the_values() -> None:
    annotation = rf"broker.annotations.{PROTECTION.replace('.', chr(92) + '.')}=no"
    assert made(BROKER, "Broker", OPEN, "deleteProtection=true", annotation)["metadata"]["annotations"] == {
        PROTECTION: "true"
    }
