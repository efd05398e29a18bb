"""What Helm renders from the project's charts, without a cluster. Helm is the one that hack/cluster builds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml
from kube.binaries import located
from kube.settings import folders

__all__ = ["BROKER", "OPERATOR", "hooks", "rendered", "template"]

ROOT = Path(__file__).resolve().parents[2]
OPERATOR, BROKER = ROOT / "helm/penstock-operator", ROOT / "helm/penstock-broker"


def template(chart: Path, *settings: str, release: str = "one") -> subprocess.CompletedProcess[str]:
    """`helm template` with `--set` for each of the settings, in namespace `home`."""
    command = [str(located(folders())["helm"]), "template", release, str(chart), "--namespace", "home"]
    command += [f"--set={it}" for it in settings]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(chart: Path, *settings: str, release: str = "one") -> list[dict[str, Any]]:
    """The manifests; an AssertionError with what Helm said if it failed. The CRDs among them are 200 KB, for which the
    loader in Python takes a second.
    """
    done = template(chart, *settings, release=release)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if document]


def hooks(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Those that are hooks of this kind, such as `test` or `pre-delete`."""
    return [it for it in documents if it["metadata"].get("annotations", {}).get("helm.sh/hook") == kind]
