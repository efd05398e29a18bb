"""Many JMS clients in one Java process (tests/jms, Fleet): started, stopped, and killed together."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e import jms_tool
from support.waiting import until

__all__ = ["Fleet"]

PATIENCE_SECONDS: Final = 300.0


class Fleet:
    """The process; `with` ends it whatever happens. `access` is `--uri ...` and what else reaches the broker."""

    def __init__(self, access: Sequence[str], log: Path) -> None:
        self.events: dict[tuple[str, str], str] = {}
        """(event, name of the client) -> the rest of the line, as Fleet.java says."""
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            jms_tool.java("Fleet", access),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, name="read fleet", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event, name, *rest = line.split()
            self.events[event, name] = " ".join(rest)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for stream in (self._process.stdin, self._process.stdout, self._log):
            stream.close()

    def obey(self, command: str) -> None:
        """Send a command of Fleet.java and return when the client is ready; or, for `await EVENT NAME`, when that
        event has come.

        Raises:
            RuntimeError: the client, or the whole process, has failed.
        """
        verb, name, *_ = command.split()
        if verb == "await":
            self.wait_for(*command.split()[1:])
            return
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        if verb != "stop":
            self.wait_for("ready", name)

    def wait_for(self, event: str, name: str) -> str:
        """The rest of an event's line, once it has come. Raises as `obey`."""

        def has_come() -> bool:
            failure = self.events.get(("failed", name))
            if failure is not None or self._process.poll() is not None:
                raise RuntimeError(f"the client {name} failed: {failure or f'see {self._log.name}'}")
            return (event, name) in self.events

        until(has_come, f"{event} {name}", PATIENCE_SECONDS)
        return self.events[event, name]

    def told(self, event: str) -> dict[str, str]:
        """What clients have told under this event, by the name of the client."""
        return {name: rest for (said, name), rest in list(self.events.items()) if said == event}

    @property
    def failures(self) -> dict[str, str]:
        """Clients that have ended by themselves, and why."""
        return self.told("failed")

    def kill(self) -> None:
        """kill -9, unless it has ended."""
        self._process.kill()
        self._process.wait()
