"""`penstock` with brokers that page from the first message on: `python paged_penstock.py WINDOW ARGUMENTS...`.

Each queue that holds something in the log keeps at most WINDOW messages in memory, by constants that are replaced here:
a broker has no setting for this.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock_broker.messages import paging as slices
from penstock_broker.state import paging as limits
from penstock_cli.main import main

__all__ = ["command", "tighten_all"]


def command(window: str) -> str:
    """The arguments of Python that begin such a command."""
    return f"{Path(__file__).resolve()} {int(window)}"


def tighten_all(window: int) -> None:
    """For all brokers that are made in this process from now on."""
    for name, value in {
        "QUEUE_BYTES": 0,
        "WINDOW_MESSAGES": window,
        "LEAST_WINDOW_MESSAGES": window,
        "LEAST_WINDOW_BYTES": 1,
    }.items():
        setattr(limits, name, value)
    looked_ms = "LOOK_MS"
    setattr(slices, looked_ms, 20)  # more often, and it would be all that the broker does


if __name__ == "__main__":
    tighten_all(int(sys.argv.pop(1)))
    main()
