"""The YAML that pages of the documentation show, for tests that apply it to a cluster as it is printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, cast

import yaml

__all__ = ["shown_blocks", "shown_spec", "shown_yaml"]

_BLOCK: Final = re.compile(r"^ *```ya?ml\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def shown_blocks(page: Path) -> list[str]:
    """The text of every block of YAML of a page, in its order."""
    return [dedent(block) for block in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def shown_yaml(page: Path) -> list[dict[str, Any]]:
    """Every YAML document of a page that is a map, in its order."""
    found = [each for block in shown_blocks(page) for each in yaml.safe_load_all(block)]
    return [cast("dict[str, Any]", each) for each in found if isinstance(each, dict)]


def shown_spec(page: Path, fits: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The one part of a spec that fits. Raises ValueError if none does, or several do."""
    documents = [each["spec"] for each in shown_yaml(page) if "spec" in each]
    found = [spec for spec in documents if fits(spec)]
    if len(found) != 1:
        raise ValueError(f"{page.name} shows {len(found)} such parts of a spec, where one is needed")
    return dict(found[0])
