"""Installs the Kubeflow Spark operator by its own chart, which comes with the Go module that it is built from."""

from __future__ import annotations

import json
from pathlib import Path

from kube import images
from kube.node import Cluster
from kube.steps import run, step, succeeds

NAMESPACE = "spark-operator"
RELEASE = "spark-operator"


def installed(cluster: Cluster) -> bool:
    """The release is there and its two Deployments are ready."""
    ask = cluster.kubectl("-n", NAMESPACE, "wait", "deployment", "--all", "--for=condition=Available", "--timeout=1s")
    return succeeds(ask, env=cluster.environment)


def install(cluster: Cluster) -> None:
    """Builds and loads the image if needed and installs the chart for all namespaces.

    With `jobNamespaces` holding the empty string the operator watches every namespace, also later ones, and makes no
    service account in them.
    """
    image = images.build(cluster.folders, ("spark-operator",))["spark-operator"]
    with step("load spark-operator"):
        images.load(cluster, (image,))
    registry, _, rest = image.partition("/")
    repository, _, tag = rest.partition(":")
    values = {
        "image": {"registry": registry, "repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"},
        "spark": {"jobNamespaces": [""]},
        # no UI Service per run: a run takes seconds and its driver has no API token
        "controller": {"uiService": {"enable": False}},
    }
    with step("Spark operator ready"):
        _make_namespace(cluster)
        helm, chart = cluster.programs["helm"], cluster.programs.spark_chart
        options = ["--namespace", NAMESPACE, "--values", "-", "--wait", "--timeout", "180s"]
        log = cluster.folders.logs / "spark.log"
        command: list[str | Path] = [helm, "upgrade", "--install", RELEASE, chart, *options]
        run(command, log, env=cluster.environment, stdin=json.dumps(values).encode())


def _make_namespace(cluster: Cluster) -> None:
    """The operator's own namespace enforces Pod Security restricted, which its chart meets."""
    manifest = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
"""
    apply = cluster.kubectl("apply", "--server-side", "-f", "-")
    run(apply, cluster.folders.logs / "spark.log", env=cluster.environment, stdin=manifest.encode())
