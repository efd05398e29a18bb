"""How many examples a property test tries: few in every run of the tests, many in hack/soak/machine."""

from __future__ import annotations

import os

__all__ = ["IS_LONG_FORM", "examples"]

VARIABLE = "PENSTOCK_MACHINE_EXAMPLES"
IS_LONG_FORM = VARIABLE in os.environ


def examples(few: int) -> int:
    """As many as the environment says, else a few."""
    return int(os.environ.get(VARIABLE, few))
