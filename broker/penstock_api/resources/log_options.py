"""`spec.logging` of a Broker: which log lines broker and observer write, and in which form."""

from __future__ import annotations

from typing import Literal

from penstock_api import schema

__all__ = ["LoggingSpec"]


class LoggingSpec(schema.Spec):
    """Log lines of the broker and the observer. A change restarts the pod."""

    level: Literal["Debug", "Info", "Warning", "Error"] = "Info"
    """Least severe lines that are written. `Debug` writes much, and slows the broker down."""
    format: Literal["Text", "Json"] = "Text"
    """`Json`: one JSON object a line."""

    def options(self) -> dict[str, str]:
        """The options of the processes that differ from their defaults, by their names on the command line."""
        chosen = {"log-level": (self.level, "Info"), "log-format": (self.format, "Text")}
        return {name: word.lower() for name, (word, default) in chosen.items() if word != default}
