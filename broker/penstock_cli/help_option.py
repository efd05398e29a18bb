"""The names of the option for help, the same for every command."""

from __future__ import annotations

from typing import Final

__all__ = ["WITH_HELP"]

WITH_HELP: Final = {"help_option_names": ["-h", "--help"]}
"""Settings of click for a command that is the beginning of a command line, or stands alone behind `penstock lag`."""
