"""What is text stays text: YAML takes `no`, `on` or `2024` for something else, and each of them can be a name."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from kube.binaries import located
from kube.settings import folders
from support.helm_template import BROKER, OPERATOR
from support.helm_template import template as helm_template

pytestmark = pytest.mark.built  # hack/cluster builds Helm

TEXTS = {"name", "namespace", "serviceAccountName", "image", "key", "value", "resourceNames", "labels", "matchLabels"}
WORDS = ("on", "123", "yes")
"""A boolean, an integer and another boolean for YAML 1.1, which Helm reads."""


def rendered(chart: Path, release: str, namespace: str, *settings: str) -> list[dict[str, Any]]:
    command = [str(located(folders())["helm"]), "template", release, str(chart), "--namespace", namespace]
    done = subprocess.run([*command, *settings], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [it for it in yaml.safe_load_all(done.stdout) if it and it["kind"] != "CustomResourceDefinition"]


def wrong(found: Any, path: str = "") -> Iterator[str]:
    """The places at which the API server wants text and gets something else."""
    if isinstance(found, dict):
        for key, value in cast(dict[str, Any], found).items():
            if key in TEXTS and not isinstance(value, (str, list, dict)) and not (key == "value" and value is None):
                yield f"{path}.{key}: {value!r}"
            yield from wrong(value, f"{path}.{key}")
    elif isinstance(found, list):
        for each in cast(Sequence[Any], found):  # of another type than what `isinstance` has found
            if path.endswith(".resourceNames") and not isinstance(each, str):
                yield f"{path}: {each!r}"
            yield from wrong(each, path)
    if path.endswith(("abels", "annotations")) and isinstance(found, dict):
        yield from (
            f"{path}.{key}: {value!r}"
            for key, value in cast(dict[str, Any], found).items()
            if not isinstance(value, str)
        )


@pytest.mark.parametrize("word", WORDS)
def test_the_operator_may_be_called_and_live_in_what_yaml_takes_for_no_text(word: str) -> None:
    everything = (
        f"--set-json=watchNamespaces=[{word!r}]".replace("'", '"'),
        f"--set-string=fullnameOverride={word}",
        f"--set-string=priorityClassName={word}",
        "--set=replicas=2,podMonitor.enabled=Always,prometheusRule.enabled=Always,dashboard.enabled=true",
        f'--set-json=pageLogin.brokers=["{word}/main"]',
        "--set=lag.executors.instances=1",
    )
    assert [f"{it['kind']}{place}" for it in rendered(OPERATOR, word, word, *everything) for place in wrong(it)] == []


@pytest.mark.parametrize("word", ["on", "yes", "y", "null"])
def test_a_broker_and_what_is_declared_on_it_may_be_called_so(word: str) -> None:
    everything = (
        "--set=broker.spec.authentication.anonymous=true,podMonitor.enabled=Always,deleteProtection=true",
        f'--set-json=exchanges={{"{word}": {{"type": "Topic"}}}}',
        f'--set-json=subscriptions={{"{word}": {{}}}}',
        f'--set-json=queues={{"{word}": {{}}}}',
        f'--set-json=scaleTokens=["{word}"]',
    )
    made = rendered(BROKER, word, "2024", *everything)
    assert [f"{it['kind']}{place}" for it in made for place in wrong(it)] == []
    assert {it["metadata"]["name"] for it in made if it["apiVersion"].startswith("penstock.dev/")} == {word}


def test_a_version_with_build_metadata_makes_labels_that_the_api_server_takes(tmp_path: Path) -> None:
    for chart in (OPERATOR, BROKER):
        copy = tmp_path / chart.name
        shutil.copytree(chart, copy)
        about = yaml.safe_load((copy / "Chart.yaml").read_text(encoding="utf-8"))
        changed = {**about, "version": "1.2.3+build.7", "appVersion": "1.2.3+build.7"}
        (copy / "Chart.yaml").write_text(yaml.safe_dump(changed), encoding="utf-8")
        done = helm_template(copy, "broker.spec.authentication.anonymous=true" if chart == BROKER else "replicas=1")
        assert done.returncode == 0, done.stderr
        labels = [it["metadata"].get("labels", {}) for it in yaml.safe_load_all(done.stdout) if it]
        assert {value for each in labels for value in each.values() if "+" in value} == set()
        assert {each["helm.sh/chart"] for each in labels if "helm.sh/chart" in each} == {f"{chart.name}-1.2.3_build.7"}
