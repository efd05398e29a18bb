"""Checks of a process's settings that name all mistakes at once, so that nobody corrects them one start after another.

The settings of the observer and of the operator use it; those that are read from a file have models. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock_api.failure import Misuse

__all__ = ["SettingChecks", "WrongSettings"]

T = TypeVar("T")


class WrongSettings(Misuse):
    """Some settings of a process can't be used."""

    def __init__(self, process: str, mistakes: tuple[tuple[str, str], ...]) -> None:
        """`mistakes`: the name of each setting, and what it must be."""
        self.mistakes = mistakes
        if len(mistakes) == 1:
            ((name, rule),) = mistakes
            super().__init__(f"{process} setting {name} can't be used.", f"It must be {rule}.")
            return
        lines = [f"{len(mistakes)} {process} settings can't be used:"]
        lines += [f"  {name} must be {rule}" for name, rule in mistakes]
        super().__init__("\n".join(lines), "Correct all of them.")


class SettingChecks:
    """Collects what is wrong with the settings of one process."""

    def __init__(self, process: str) -> None:
        """`process`: whose settings they are, for a person."""
        self._process = process
        self._mistakes: list[tuple[str, str]] = []

    def check(self, good: bool, name: str, rule: str) -> None:
        """Note a mistake unless `good`. `rule` says what the setting must be."""
        if not good:
            self._mistakes.append((name, rule))

    def read(self, text: str, as_value: Callable[[str], T], default: T, name: str, rule: str) -> T:
        """The value of a text. If there is none it is a mistake, and the default stands for it."""
        try:
            return as_value(text)
        except ValueError:
            self.check(False, name, rule)
            return default

    def add(self, others: WrongSettings) -> None:
        """Note the mistakes of other checks, too."""
        self._mistakes += others.mistakes

    def end(self) -> None:
        """Raise `WrongSettings` if there were mistakes."""
        if self._mistakes:
            raise WrongSettings(self._process, tuple(self._mistakes))
