"""Compiles the parts of Penstock that are C (`broker/penstock_native`) when the project is built or installed.

Without a C compiler or Python's headers the build goes on: the twins in Python serve, several times slower.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = {
    "proton": ("proton.c", "batches.c", "deliveries.c", "input.c", "output.c", "sent.c"),
    "messages": ("messages.c", "backlog.c", "fields.c"),
    "aio": ("aio.c",),
}
"""Sources by module; all are in `FOLDER`."""
FOLDER = Path("broker/penstock_native")
OPTIONS = ["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Wno-cast-function-type", "-fPIC", "-shared"]


class Compilation(BuildHookInterface[Any]):
    """Adds the compiled modules to the wheel; an editable installation finds them beside their sources."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the files are collected."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        try:
            built = [compile_module(root / FOLDER, name) for name in MODULES]
        except (OSError, subprocess.CalledProcessError) as error:
            for name in MODULES:  # an installation in place would use what an older version left
                place_of(root / FOLDER, name).unlink(missing_ok=True)
            print(f"penstock is installed without its compiled engine, and will be slower: {error}", file=sys.stderr)
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"] += [str(path.relative_to(root)) for path in built]


def place_of(folder: Path, name: str) -> Path:
    """The file of a compiled module."""
    return folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"


def compile_module(folder: Path, name: str, *, target: Path | None = None, options: Sequence[str] = ()) -> Path:
    """Compile one module from its sources in `folder`, into `target` if that is given.

    Raises OSError if there is no compiler, CalledProcessError if it fails.
    """
    built = place_of(target or folder, name)
    made = built.with_suffix(f".{os.getpid()}")
    command = [
        *shlex.split(os.environ.get("CC", "cc")),
        *OPTIONS,
        *shlex.split(os.environ.get("CFLAGS", "")),
        *options,
        f"-I{sysconfig.get_paths()['include']}",
        *(str(folder / source) for source in MODULES[name]),
        "-o",
        str(made),
    ]
    subprocess.run(command, check=True)
    made.replace(built)  # a process may have the former one mapped
    return built


if __name__ == "__main__":
    for module in MODULES:
        print(compile_module(Path(__file__).resolve().parent / FOLDER, module))
