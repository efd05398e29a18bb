"""Compiles the parts of Penstock that are C (`broker/penstock_native`) when the project is built or installed.

Without a C compiler or Python's headers the build goes on: the twins in Python serve, several times slower.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = {"proton": ("proton.c", "batches.c"), "messages": ("messages.c",)}
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
            built = [compile_module(root, name, sources) for name, sources in MODULES.items()]
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"penstock is installed without its compiled engine, and will be slower: {error}", file=sys.stderr)
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"] += [str(path.relative_to(root)) for path in built]


def compile_module(root: Path, name: str, sources: tuple[str, ...]) -> Path:
    """Compile one module beside its sources. Raises OSError if there is no compiler, CalledProcessError if it fails."""
    folder = root / FOLDER
    built = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    made = built.with_suffix(f".{os.getpid()}")
    command = [
        *shlex.split(os.environ.get("CC", "cc")),
        *OPTIONS,
        *shlex.split(os.environ.get("CFLAGS", "")),
        f"-I{sysconfig.get_paths()['include']}",
        *(str(folder / source) for source in sources),
        "-o",
        str(made),
    ]
    subprocess.run(command, check=True)
    made.replace(built)  # a process may have the former one mapped
    return built


if __name__ == "__main__":
    for module, files in MODULES.items():
        print(compile_module(Path(__file__).resolve().parent, module, files))
