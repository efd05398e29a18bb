"""The version of this distribution."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

__all__ = ["VERSION"]

VERSION: Final = version("penstock")
