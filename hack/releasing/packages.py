"""The wheel, the sdist and the charts of a release, from the exported files of its commit."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from kube.steps import Failure, run

from releasing.archives import packed_folder
from releasing.source import CHARTS, Commit

__all__ = ["build_charts", "build_python"]


def build_python(commit: Commit, tree: Path, target: Path, log: Path) -> None:
    """Build the wheel for this machine's Python and platform, and the sdist, into `target`."""
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(commit.seconds),
        # The compiler writes the folder of the sources, which is another one each time, into what it makes.
        "CFLAGS": f"{os.environ.get('CFLAGS', '')} -ffile-prefix-map={tree}=/penstock",
    }
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
    run(command, log, env=environment, cwd=tree)
    wheels = [file.name for file in target.glob("*.whl")]
    if not wheels or wheels[0].endswith("-none-any.whl"):
        raise Failure(f"the wheel has no compiled engine; the end of {log} says why. Install a C compiler (gcc)")


def build_charts(commit: Commit, tree: Path, target: Path, helm: Path, log: Path) -> None:
    """Package the charts into `target`. Helm checks and packages them; they are packed once more without its times."""
    for chart in CHARTS:
        with tempfile.TemporaryDirectory() as scratch:
            run([helm, "package", tree / chart, "--destination", scratch], log)
            (packed,) = Path(scratch).iterdir()
            run(["tar", "-xzf", packed, "-C", scratch], log)
            name = Path(chart).name
            (target / packed.name).write_bytes(packed_folder(Path(scratch) / name, name, commit.seconds))
