"""Which subscriptions one page of the overview shows: search, filter by state, order, and pages of a fixed size.

Pure. However many subscriptions there are, a page holds at most `ROWS` of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock_api.lag_result import LagState, SubscriptionLag
from penstock_page.trouble import counts_by_trouble, sorted_by_trouble

__all__ = ["ROWS", "Listing", "Wanted", "listing", "number_in", "wanted"]

ROWS: Final = 50
SEARCH_LENGTH: Final = 255
"""Characters of a search that are used."""
PAGES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the reader asked for."""

    search: str = ""
    """Part of the name, case does not matter; empty: every name."""
    state: LagState | None = None
    """Only this state; None: every state."""
    page: int = 1
    is_refreshing: bool = True
    """The page loads itself again."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of subscriptions, and how it stands among all."""

    wanted: Wanted
    rows: tuple[SubscriptionLag, ...]
    found: int
    """Subscriptions that fit search and state."""
    total: int
    page: int
    """The page that is shown: the last one if a later one was asked for."""
    pages: int
    counts: Mapping[LagState, int]
    """How many of all subscriptions are in each state, the worst first, without those that no subscription has."""


def wanted(query: Mapping[str, str]) -> Wanted:
    """What the parameters of the address ask for. What cannot be understood is taken as absent: addresses are typed."""
    states = {state.value: state for state in LagState}
    return Wanted(
        search=query.get("q", "").strip()[:SEARCH_LENGTH],
        state=states.get(query.get("state", "")),
        page=number_in(query, "page", 1, PAGES),
        is_refreshing=query.get("refresh") != "off",
    )


def number_in(query: Mapping[str, str], name: str, least: int, most: int) -> int:
    """A number in the address, within the limits; the least if there is none."""
    given = query.get(name, "")
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else least
    return max(min(number, most), least)


def listing(lags: Iterable[SubscriptionLag], asked: Wanted) -> Listing:
    """The page that was asked for."""
    known = tuple(lags)
    search = asked.search.casefold()
    fitting = [
        lag
        for lag in known
        if (asked.state is None or lag.state is asked.state) and (not search or search in _names(lag).casefold())
    ]
    pages = max(-(-len(fitting) // ROWS), 1)
    page = min(asked.page, pages)
    return Listing(
        wanted=asked,
        rows=tuple(sorted_by_trouble(fitting)[(page - 1) * ROWS : page * ROWS]),
        found=len(fitting),
        total=len(known),
        page=page,
        pages=pages,
        counts=counts_by_trouble(known),
    )


def _names(lag: SubscriptionLag) -> str:
    return f"{lag.owner_namespace}/{lag.owner_name} {lag.queue_name}" if lag.owner_name else lag.queue_name
