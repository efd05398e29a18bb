"""The page on lag during the demo: where it is, the token for its login, and the wait for somebody who looks at it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock_api.observer_api import PAGE

__all__ = ["STAYING", "PageVisit", "invite", "stay"]

STAYING: Final = "everything stays up until you press Ctrl-C"


@dataclass(frozen=True, slots=True)
class PageVisit:
    """How a person reaches the page."""

    observer: str
    """URL of the observer, without a path."""
    token: str
    """What the form of the login wants."""
    note: str = ""
    """What to expect there, as a sentence."""


def invite(visit: PageVisit, say: Callable[[str], None]) -> None:
    """Say where the page is."""
    say(f"the page on lag: {visit.observer}{PAGE}/ (log in with the token {visit.token})")
    if visit.note:
        say(visit.note)


def stay(visit: PageVisit, say: Callable[[str], None], wait: Callable[[], object] | None = None) -> None:
    """Return at Ctrl-C; `wait` waits for it, and lets KeyboardInterrupt through; None: without end."""
    invite(visit, say)
    say(STAYING)
    try:
        (wait or threading.Event().wait)()
    except KeyboardInterrupt:
        say("ending")
