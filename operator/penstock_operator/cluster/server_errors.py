"""The errors of the API server, and how they are read from its answers.

    KubeError           the API server refused or could not be reached
    ├─ Conflict    409  another client changed the object first, or owns the field
    └─ Forbidden   403  the operator's role, a quota or an admission plugin does not allow it

Source: Kubernetes API conventions ("Status": `message`, `reason`, `details.causes`, `details.retryAfterSeconds`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast

from penstock_operator.manifest import Manifest, dig, items_of, text_at
from penstock_operator.plans.refusals import Refusal, ServerAnswer, refusal_in

__all__ = [
    "INTERNAL_ERROR",
    "NOT_FOUND",
    "NOT_SENT",
    "TOO_MANY_REQUESTS",
    "Conflict",
    "Forbidden",
    "KubeError",
    "error_in",
]

NOT_FOUND: Final = 404
TOO_MANY_REQUESTS: Final = 429
CONFLICT: Final = 409
INTERNAL_ERROR: Final = 500

NOT_SENT: Final = "this operator does not lead any more, so it writes nothing"
"""What a request says that was not sent."""

_LONGEST_RETRY_AFTER_SECONDS: Final = 300.0
"""A longer wait that a server asks for is cut: a proxy may be wrong, and the operator must not stop for hours."""


class KubeError(Exception):
    """The API server refused, or could not be reached (status 0)."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        causes: frozenset[str] = frozenset(),
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status: Final = status
        self.said: Final = message
        """The request, and the server's own words."""
        self.causes: Final = causes
        """The reasons in `details.causes`."""
        self.retry_after_seconds: Final = retry_after_seconds
        """How long the server asks to wait, None if it does not."""

    @property
    def is_passing(self) -> bool:
        """Whether the server did not answer, is overloaded or has failed, or another client was faster: the same
        request may succeed later.
        """
        return self.status in (0, CONFLICT, TOO_MANY_REQUESTS) or self.status >= INTERNAL_ERROR

    @property
    def refusal(self) -> Refusal | None:
        """What a person can do about it; None if waiting helps."""
        return refusal_in(ServerAnswer(status=self.status, said=self.said, causes=self.causes))


class Conflict(KubeError):
    """Another client changed the object first, or owns the field."""


class Forbidden(KubeError):
    """The operator's role, a quota or an admission plugin does not allow it."""


_ERRORS: Final[dict[int, type[KubeError]]] = {403: Forbidden, 409: Conflict}


def error_in(status: int, data: bytes, headers: Mapping[str, str], request: str) -> KubeError:
    """The error that an answer is. `request`: method and path, for the message."""
    answer = _parsed(data)
    causes = items_of(answer, "details", "causes")
    words = [text_at(answer, "message") or data.decode(errors="replace")[:500].strip()]
    for cause in causes:
        said = ": ".join(part for part in (text_at(cause, "field"), text_at(cause, "message")) if part)
        if said and (text_at(cause, "message") or said) not in words[0]:
            words.append(said)
    return _ERRORS.get(status, KubeError)(
        status,
        f"{request}: {'; '.join(words)}",
        causes=frozenset(reason for cause in causes if (reason := text_at(cause, "reason"))),
        retry_after_seconds=_retry_after(answer, headers),
    )


def _parsed(data: bytes) -> Manifest | None:
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return cast(Manifest, found) if isinstance(found, dict) else None


def _retry_after(answer: Manifest | None, headers: Mapping[str, str]) -> float | None:
    """Seconds, from the header or the answer's details. The other form of the header, a date, is not used by API
    servers.
    """
    header = headers.get("Retry-After", "")
    told = dig(answer, "details", "retryAfterSeconds")
    seconds = float(header) if header.isdecimal() else float(told) if isinstance(told, int) else 0.0
    return min(seconds, _LONGEST_RETRY_AFTER_SECONDS) if seconds > 0 else None
