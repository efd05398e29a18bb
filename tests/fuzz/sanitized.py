"""A build of the C that ends the process at a wrong address or undefined behaviour, and the environment that loads it.

It lies in a folder of its own, in front of the sources: no other process loads it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["environment"]

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
LIBRARIES = ("libasan.so", "libubsan.so")


def environment(
    folder: Path, sources: Path = ROOT / "broker" / "penstock_native", modules: Sequence[str] = ()
) -> dict[str, str]:
    """Compile `sources` into `folder`; the environment in which Python uses what was made. `modules`: those that are
    compiled, if not all; the others are there already.

    Raises OSError or CalledProcessError if that can't be done here.
    """
    sys.path.insert(0, str(ROOT))
    try:
        builder: Any = import_module("hatch_build")
    finally:
        sys.path.remove(str(ROOT))
    target = folder / "penstock_native"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(sources / "__init__.py", target)
    for name in modules or builder.MODULES:
        builder.compile_module(sources, name, target=target, options=OPTIONS)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "tests"), str(ROOT / "hack"), *sys.path]),
        "LD_PRELOAD": " ".join(map(_library, LIBRARIES)),
        "PYTHONMALLOC": "malloc",  # so that each object has addresses of its own
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # Python keeps much until it ends
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }


def _library(name: str) -> str:
    command = [os.environ.get("CC", "cc"), f"-print-file-name={name}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(found).is_absolute():
        raise FileNotFoundError(f"the compiler has no {name}")
    return found
