"""How a process of ours reports that it can't go on: a cause, a cure and an exit code, for people and for scripts.

The `run()` of the broker, the observer, the operator or the lag job raises one of these; `penstock` prints it without a
traceback and exits with its code. Any other exception of a `run()` is a bug and keeps its traceback.

    Failure       1  something was tried and did not work
    ├─ Misuse     2  the command line, a setting or a manifest is wrong; nothing was tried
    └─ CannotRun  3  this machine lacks something that the command needs

The lag job adds OutOfMemory, 4 (penstock_lag.spark_failures). Source: docs/reference/command-line.md.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = ["CannotRun", "Failure", "Misuse"]


class Failure(Exception):
    """Something was tried and did not work.

    Args:
        cause: what went wrong, one or more lines, for a person.
        cure: what to do about it; empty if only the cause is known.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, cure: str = "") -> None:
        super().__init__(cause, cure)
        self.cause = cause
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.cause}\n{self.cure}" if self.cure else self.cause


class Misuse(Failure):
    """The command line, a setting or a manifest is wrong; nothing was tried."""

    exit_code: ClassVar[int] = 2


class CannotRun(Failure):
    """This machine lacks something that the command needs."""

    exit_code: ClassVar[int] = 3
