"""Draws the documents with the templates of this package. Everything that is put into a template is escaped.

No template marks a text as safe, and no part of a style, script or address comes from a client without being encoded
(tests/page). Pure but for reading the templates, which are part of the package.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
import markupsafe

from penstock_api.lag_result import SubscriptionLag
from penstock_page import plot, text
from penstock_page.documents import BrokerPlace, MessagesPage, Overview, Report, SubscriptionPage
from penstock_page.subscription_list import Wanted
from penstock_page.trouble import SHOWN, SLOW_PARTS

__all__ = [
    "OVERVIEW",
    "SUBSCRIPTION",
    "icon",
    "login",
    "messages",
    "overview",
    "problem",
    "report",
    "style",
    "subscription",
]

TEMPLATES: Final = Path(__file__).parent / "templates"
OVERVIEW: Final = "./"
"""Address of the overview, relative to the folder of all pages."""
SUBSCRIPTION: Final = "subscription"
MESSAGES: Final = "messages"


def style() -> str:
    """The style sheet."""
    return (TEMPLATES / "style.css").read_text(encoding="utf-8")


def icon() -> str:
    """The picture of the page in a browser's tab, SVG."""
    return (TEMPLATES / "icon.svg").read_text(encoding="utf-8")


def login(*, to: str, minutes: int, refused: str | None = None) -> str:
    """The form for the token. `to`: where the reader goes then; `refused`: why the last attempt failed."""
    return _drawn("login.html", to=to, minutes=minutes, refused=refused)


def problem(heading: str, message: str) -> str:
    """A page that says what went wrong."""
    return _drawn("problem.html", heading=heading, message=message)


def overview(page: Overview, *, can_log_out: bool) -> str:
    """The page of all subscriptions."""
    return _page("overview.html", page, page.place, page.refresh_seconds, can_log_out)


def subscription(page: SubscriptionPage, *, can_log_out: bool) -> str:
    """The page of one subscription."""
    return _page("subscription.html", page, page.place, page.refresh_seconds, can_log_out)


def messages(page: MessagesPage, *, can_log_out: bool) -> str:
    """The page of messages that wait."""
    return _page("messages.html", page, page.place, page.refresh_seconds, can_log_out)


def report(page: Report, *, version: str) -> str:
    """The file of a past time: it needs nothing else, and allows itself nothing but its own style."""
    sheet = style()
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    title = f"{page.place.namespace}/{page.place.broker}"
    # The one text that is not escaped is our own style sheet.
    return _drawn(
        "report.html",
        report=page,
        title=title,
        version=version,
        style_text=markupsafe.Markup(sheet),
        style_hash=digest,
    )


def _page(
    template: str,
    page: Overview | SubscriptionPage | MessagesPage,
    place: BrokerPlace,
    refresh_seconds: int | None,
    can_log_out: bool,
) -> str:
    return _drawn(template, page=page, place=place, refresh_seconds=refresh_seconds, can_log_out=can_log_out)


def title_of(lag: SubscriptionLag) -> str:
    """The resource that declared the subscription, else its queue."""
    return f"{lag.owner_namespace}/{lag.owner_name}" if lag.owner_name else lag.queue_name


def address(asked: Wanted, **changes: Any) -> str:
    """The overview with other wishes; a change of anything but the page begins with the first page."""
    new = replace(asked, **{"page": 1, **changes})
    query = {"q": new.search, "state": new.state.value if new.state else "", "page": "" if new.page == 1 else new.page}
    return _address(OVERVIEW, {**query, "refresh": "" if new.is_refreshing else "off"})


def subscription_address(queue_name: str, hours: int = 0, is_refreshing: bool = True) -> str:
    """The page of one subscription."""
    refresh = "" if is_refreshing else "off"
    return _address(SUBSCRIPTION, {"queue": queue_name, "hours": hours or "", "refresh": refresh})


def messages_address(queue_name: str, offset: int = 0) -> str:
    """The messages that wait in a queue or subscription."""
    return _address(MESSAGES, {"queue": queue_name, "offset": offset or ""})


def _address(page: str, query: dict[str, object]) -> str:
    given = urlencode({key: value for key, value in query.items() if value != ""})
    return f"{page}?{given}" if given else page


PARTS: Final = (plot.panels, plot.spark_path)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = (text.clock, text.count, text.day_and_clock, text.duration, text.millis, text.printable)
    environment.filters |= {each.__name__: each for each in (*shown, text.printable_lines, text.size)}
    given: dict[str, Any] = {
        "SHOWN": SHOWN,
        "SLOW_PARTS": SLOW_PARTS,
        **{name: getattr(plot, name) for name in ("HEIGHT", "SPARK_HEIGHT", "SPARK_WIDTH", "WIDTH")},
        **{each.__name__: each for each in (*PARTS, address, messages_address, subscription_address, title_of)},
    }
    environment.globals.update(given)
    return environment


def _drawn(template: str, **given: Any) -> str:
    return _environment().get_template(template).render({"refresh_seconds": None, "can_log_out": False, **given})
