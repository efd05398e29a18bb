"""Standard output that says itself why it can't be written, so that nobody takes that for an error of a connection."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys

from penstock_api.failure import Failure

__all__ = ["OutputLost", "StandardOutput", "forget_output"]


class OutputLost(Failure):
    """Standard output takes nothing more: its disk is full, or the program that read it has ended."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"the output can't be written: {error.strerror or error}.", "Send it to somewhere else.")
        self.is_unread = error.errno == errno.EPIPE
        """Nobody reads it any more, as after `| head -1`: nothing to complain of."""


class StandardOutput(io.TextIOWrapper):
    """Text for standard output. Writing raises `OutputLost` in place of `OSError`."""

    @classmethod
    def over(cls, output: io.TextIOWrapper) -> StandardOutput:
        """Writes to the same file in the same way, but letters that its encoding lacks do not end the command."""
        is_ascii = codecs.lookup(output.encoding).name == "ascii"  # click writes UTF-8 then, past this object
        return cls(
            output.buffer,
            encoding="utf-8" if is_ascii else output.encoding,
            errors="backslashreplace" if output.errors == "strict" else output.errors,
            line_buffering=output.line_buffering,
            write_through=output.write_through,
        )

    def write(self, text: str, /) -> int:
        """Write as the parent does."""
        try:
            return super().write(text)
        except OSError as error:
            raise OutputLost(error) from error

    def flush(self) -> None:
        """Flush as the parent does."""
        try:
            super().flush()
        except OSError as error:
            raise OutputLost(error) from error


def forget_output() -> None:
    """Drop what could not be written, so that the interpreter does not try it again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
