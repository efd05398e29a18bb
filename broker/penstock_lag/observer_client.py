"""A client of observers over HTTP: GET and PUT with a bearer token, limited in size, with errors as sentences.

It uses the standard library only, because it also runs in Spark's Python workers. Source: docs/reference/observer.md.
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from penstock_api.connection_failures import connection_failure
from penstock_api.host_names import can_be_looked_up
from penstock_api.observer_api import Problem

__all__ = ["Observer", "ObserverError"]

TIMEOUT_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 1.0
MAX_BYTES: Final = 256 * 1024 * 1024
REFUSED: Final = (401, 403)
"""The status of an answer to a token that is unknown, or good for something else."""
TOKEN_CURE: Final = (
    "Give a token that is good for this, by --token-file or in PENSTOCK_OBSERVER_TOKEN; "
    "docs/reference/observer.md says which is."
)


class ObserverError(Exception):
    """An observer could not be reached, or answered with an error. The message is a sentence without its full stop."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status, None if there was no answer."""

    def cure(self, otherwise: str) -> str:
        """What a person does about it: another token if the observer refused this one, else `otherwise`."""
        return TOKEN_CURE if self.status in REFUSED else otherwise


@dataclass(frozen=True, slots=True)
class Observer:
    """Address, token and CA of one observer. It can be pickled: it holds no connection."""

    url: str
    token: str
    ca_file: Path | None = None
    patience_seconds: float = 0.0
    """How long to retry while no answer comes: the observer may be restarting, or a proxy may not know it yet."""

    def get(self, path: str) -> bytes:
        """The body of a reply with status 200. Raises ObserverError in every other case."""
        return self._send(self._request(path, self._headers(), "GET"))

    def put(self, path: str, body: bytes) -> bytes:
        """The body of a reply with status 200 or 201. Raises ObserverError in every other case."""
        headers = {**self._headers(), "Content-Type": "application/json"}
        return self._send(self._request(path, headers, "PUT", body))

    def _request(
        self, path: str, headers: dict[str, str], method: str, body: bytes | None = None
    ) -> urllib.request.Request:
        try:
            if not self.url.isascii():
                raise ValueError("it has letters that are not ASCII; write the host as DNS has it")
            if not can_be_looked_up(urlsplit(self.url).hostname or ""):
                raise ValueError("a part of the host's name is empty or too long")
            return urllib.request.Request(self.url.rstrip("/") + path, body, headers, method=method)
        except ValueError as error:
            raise ObserverError(f"{self.url} is not an address: {error}") from error

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def _send(self, request: urllib.request.Request) -> bytes:
        deadline = time.monotonic() + self.patience_seconds
        while True:
            try:
                return self._send_once(request)
            except ObserverError as error:
                if error.status is not None or time.monotonic() + PAUSE_SECONDS > deadline:
                    raise
            time.sleep(PAUSE_SECONDS)

    def _send_once(self, request: urllib.request.Request) -> bytes:
        try:
            with self._opener().open(request, timeout=TIMEOUT_SECONDS) as answer:
                body: bytes = answer.read(MAX_BYTES + 1)
                left = 0 if len(body) > MAX_BYTES else answer.length or 0
        except urllib.error.HTTPError as error:
            with error:
                raise ObserverError(f"{request.full_url} answered {error.code}: {_told(error)}", error.code) from error
        except urllib.error.URLError as error:
            reason = error.reason
            why = connection_failure(reason) if isinstance(reason, OSError) else reason
            raise ObserverError(f"{request.full_url} can't be reached: {why}") from error
        except http.client.RemoteDisconnected as error:  # a BadStatusLine, too
            raise ObserverError(f"{request.full_url} did not answer: the other side broke the connection") from error
        except http.client.BadStatusLine as error:
            raise ObserverError(f"{request.full_url} did not answer: what listens there speaks no HTTP") from error
        except (OSError, http.client.HTTPException) as error:
            raise ObserverError(f"{request.full_url} did not answer: {connection_failure(error)}") from error
        if left:  # http.client takes an answer that ends early for a whole one
            raise ObserverError(f"{request.full_url} did not answer: {left} bytes of its answer did not come")
        if len(body) > MAX_BYTES:
            raise ObserverError(f"{request.full_url} answered more than {MAX_BYTES} bytes")
        return body

    def _opener(self) -> urllib.request.OpenerDirector:
        """No proxies: observers are in the same cluster. No redirects: they would send the token to another host."""
        opener = urllib.request.OpenerDirector()
        opener.add_handler(urllib.request.HTTPHandler())
        opener.add_handler(urllib.request.HTTPSHandler(context=_trusting(self.ca_file)))
        opener.add_handler(urllib.request.HTTPDefaultErrorHandler())
        opener.add_handler(urllib.request.HTTPErrorProcessor())
        return opener


def _trusting(ca_file: Path | None) -> ssl.SSLContext:
    """What is trusted. It is read anew only if the file changed: reading the system's certificates costs more than a
    request, and a run makes thousands of them.
    """
    return _context(ca_file, 0 if ca_file is None else ca_file.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _context(ca_file: Path | None, _changed_ns: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))


def _told(error: urllib.error.HTTPError) -> str:
    """The message of a Problem body, or the status phrase."""
    try:
        return Problem.model_validate_json(error.read(65_536)).message
    except (ValueError, OSError, http.client.HTTPException):
        return str(error.reason)
