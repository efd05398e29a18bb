"""`penstock_broker.main` with a broker that knows the names of few subscriptions that ended.

It knows 10,000 else: so many had to end before its memory shows what connections leave behind.
"""

from __future__ import annotations

from typing import Any, Final

from penstock_broker import main
from penstock_broker.topology import state_changes

__all__ = ["KNOWN", "run"]

KNOWN: Final = 200


def run(**arguments: Any) -> int:
    """As `penstock_broker.main.run`."""
    kept = "KEPT"
    setattr(state_changes, kept, KNOWN)
    return main.run(**arguments)
