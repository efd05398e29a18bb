"""The files of `penstock up`: a folder that is kept, and a temporary folder for Unix sockets.

Sockets have a folder of their own because their paths must be short (108 bytes), whatever the data folder is called.
"""

from __future__ import annotations

import errno
import json
import random
import secrets
import socket
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock_api.failure import CannotRun
from penstock_api.listen_failures import listen_failure

__all__ = ["Layout", "check_endpoint", "free_endpoint"]

PORTS: Final = range(20_000, 30_000)
"""Below the ports that a system gives to whoever asks for any, or connects (on Linux ip_local_port_range): one of those
could be taken while the child that listens on it restarts.
"""

_candidates: Final = iter(random.sample(PORTS, len(PORTS)))
"""Each is tried once by a process, so that two children never get the same."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one `penstock up`."""

    root: Path
    """Folder of this Broker; it stays when the command ends."""
    sockets: Path
    """Folder of the sockets; it is deleted when the command ends."""

    @property
    def data(self) -> Path:
        """The broker's log."""
        return self.root / "data"

    @property
    def ledger(self) -> Path:
        """The observer's ledger and the lag results."""
        return self.root / "ledger"

    @property
    def token(self) -> Path:
        """Bearer token of the observer."""
        return self.root / "observer.token"

    @property
    def broker_config(self) -> Path:
        """Configuration of the broker, made from the manifests at each start."""
        return self.root / "broker.yaml"

    @property
    def secrets(self) -> Path:
        """Files of users and token issuers that the broker reads, made from the manifests at each start."""
        return self.root / "secrets"

    @property
    def tls(self) -> Path:
        """CA and server certificate, if the manifests have none."""
        return self.root / "tls"

    @property
    def management(self) -> Path:
        """Socket of `$management` with all rights."""
        return self.sockets / "management.sock"

    @property
    def observer(self) -> Path:
        """Socket of `$management` for the observer."""
        return self.sockets / "observer.sock"

    @property
    def state(self) -> Path:
        """Addresses and process ids of a running `penstock up`, as JSON, for other programs."""
        return self.root / "up.json"

    def log(self, name: str) -> Path:
        """Output of one child."""
        return self.root / f"{name}.log"

    def prepare(self) -> None:
        """Make the folders and the token, unless they are there. Raises `CannotRun` where nothing can be written."""
        with self.usable():
            for folder in (self.data, self.ledger):
                folder.mkdir(parents=True, exist_ok=True)
            if not self.token.exists():
                self.token.touch(mode=0o600)
                self.token.write_text(secrets.token_urlsafe(32) + "\n", encoding="ascii")

    @contextmanager
    def usable(self) -> Generator[None]:
        """What the system does not allow in the folder, in this block, becomes a `CannotRun`."""
        try:
            yield
        except OSError as error:
            told = f"the folder {self.root} can't be used: {error.strerror}."
            raise CannotRun(told, "Choose another one with --data, or make it writable for this user.") from error

    def write_state(self, state: Mapping[str, object]) -> None:
        """Replace the state file atomically, so that no process reads a part of it."""
        hidden = self.state.with_suffix(".new")
        hidden.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        hidden.replace(self.state)


def free_endpoint(host: str, port: int) -> str:
    """HOST:PORT, with a free port in the place of 0: a child must come back on the port its clients know.

    Raises `CannotRun` if the host isn't this machine, or all `PORTS` are taken.
    """
    if port == 0:
        port = _free_port(host, _candidates)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_endpoint(option: str, host: str, port: int) -> None:
    """Raise `CannotRun` if a child could not listen there: else this command would take for its own what answers
    there. `option`: by which the endpoint was named.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the children: old connections do not matter
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
                why, cure = listen_failure(error)
                raise CannotRun(f"nothing can listen on {host}:{port} ({option}): {why}.", cure) from error


def _free_port(host: str, candidates: Iterator[int]) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in candidates:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                told = f"nothing can listen on {host}: {error.strerror}."
                raise CannotRun(told, "Name an address of this machine, such as 127.0.0.1.") from error
        return port
    told = f"no port of {host} from {PORTS.start} to {PORTS.stop - 1} is free."
    raise CannotRun(told, "End what listens there, or name the ports with --listen and --observer.")
