"""Runs one target under libFuzzer: `python -m fuzz.fuzzed TARGET [libFuzzer's options and folders]`."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import Any

atheris: Any = import_module("atheris")  # ships no types

with atheris.instrument_imports(include=["penstock_core", "penstock_amqp", "penstock_broker"]):
    from fuzz.targets import TARGETS


def main() -> None:
    """The command line."""
    logging.getLogger().addHandler(logging.NullHandler())  # hundreds of refusals a second are nothing to read
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
