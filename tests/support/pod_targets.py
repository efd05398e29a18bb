"""What Prometheus' discovery of Kubernetes (role `pod`) finds. Source: its documentation, `kubernetes_sd_config`."""

from __future__ import annotations

import re
from typing import Any, cast

from penstock_operator.manifest import Manifest, dig

__all__ = ["discovered"]


def discovered(pod: Manifest, namespace: str, name: str) -> list[dict[str, str]]:
    """The meta labels that Prometheus gives each port of a pod: characters that a label can't have become `_`."""
    found: list[dict[str, str]] = []
    labels = cast("dict[str, str]", dig(pod, "metadata", "labels"))
    meta = {f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', key)}": text for key, text in labels.items()}
    meta |= {"__meta_kubernetes_namespace": namespace, "__meta_kubernetes_pod_name": name}
    for container in cast("list[dict[str, Any]]", dig(pod, "spec", "containers")):
        for port in container.get("ports", ()):
            found.append(
                {
                    **meta,
                    "__meta_kubernetes_pod_container_name": container["name"],
                    "__meta_kubernetes_pod_container_port_name": port["name"],
                    "__meta_kubernetes_pod_container_port_number": str(port["containerPort"]),
                }
            )
    return found
