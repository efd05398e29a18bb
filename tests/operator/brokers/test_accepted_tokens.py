"""Which token the operator shows to observers of this release and of earlier ones, and what it learns from that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from support.served_observer import served_observer

from penstock_api.observer_api import LATEST
from penstock_operator.brokers.accepted_tokens import AcceptedTokens
from penstock_operator.brokers.observer_client import (
    LagResultUnavailable,
    NoNewResult,
    ObserverAccess,
    TokenRefused,
    fetch_latest,
)


@dataclass
class Stage:
    """An observer that accepts some tokens, and an operator that asks it, with a clock that the test moves."""

    http: aiohttp.ClientSession
    access: ObserverAccess
    accepts: set[str]
    shown: list[str]
    status: list[int]
    now: datetime = datetime(2026, 3, 1, tzinfo=UTC)
    changes: int = 0
    tokens: AcceptedTokens = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = AcceptedTokens(lambda: self.now, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def ask(self, minutes_later: int = 0, full: str = "full") -> object:
        """What the observer answers after so many minutes."""
        self.now += timedelta(minutes=minutes_later)
        access = replace(self.access, token="narrow", full_token=full, accepted=self.tokens)
        return await fetch_latest(self.http, access)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    accepts, shown, status = {"full", "narrow"}, list[str](), [404]

    async def latest(request: web.Request) -> web.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        shown.append(token)
        return web.Response(status=status[0] if token in accepts else 401)

    app = web.Application()
    app.router.add_get(LATEST, latest)
    async with served_observer(app, tmp_path) as access, aiohttp.ClientSession() as http:
        yield Stage(http, access, accepts, shown, status)


async def test_an_observer_that_accepts_the_narrow_token_is_shown_no_other(stage: Stage) -> None:
    """Also if it has no result yet."""
    assert await stage.ask() is NoNewResult.NONE_YET
    assert await stage.ask() is NoNewResult.NONE_YET
    assert stage.shown == ["narrow", "narrow"]
    assert (stage.tokens.knows_scopes, stage.changes) == (True, 1)


async def test_an_observer_of_an_earlier_release_is_read_with_the_token_for_everything(stage: Stage) -> None:
    """For ten minutes a refusal may be a rotation, then it is the release; an upgrade is seen at once."""
    stage.accepts.remove("narrow")
    assert await stage.ask() is NoNewResult.NONE_YET
    assert stage.shown == ["narrow", "full"]
    assert await stage.ask(9) is NoNewResult.NONE_YET
    assert (stage.tokens.knows_scopes, stage.changes) == (None, 0)
    await stage.ask(1)
    assert (stage.tokens.knows_scopes, stage.changes) == (False, 1)
    stage.accepts.add("narrow")
    await stage.ask()
    assert (stage.tokens.knows_scopes, stage.changes) == (True, 2)


async def test_a_clock_that_is_set_back_lets_the_ten_minutes_begin_anew(stage: Stage) -> None:
    stage.accepts.remove("narrow")
    await stage.ask()
    await stage.ask(-120)
    await stage.ask(9)
    assert stage.tokens.knows_scopes is None
    await stage.ask(1)
    assert stage.tokens.knows_scopes is False


async def test_a_rotation_does_not_widen_what_others_have(stage: Stage) -> None:
    """Each acceptance begins the ten minutes anew."""
    await stage.ask()
    stage.accepts.remove("narrow")
    await stage.ask()
    await stage.ask(9)
    stage.accepts.add("narrow")
    await stage.ask(1)
    stage.accepts.remove("narrow")
    await stage.ask()
    await stage.ask(9)
    assert (stage.tokens.knows_scopes, stage.changes) == (True, 1)
    await stage.ask(1)
    assert (stage.tokens.knows_scopes, stage.changes) == (False, 2)


async def test_an_observer_that_fails_says_nothing_about_its_release(stage: Stage) -> None:
    stage.status[0] = 503
    with pytest.raises(LagResultUnavailable, match="503"):
        await stage.ask()
    assert (stage.tokens.knows_scopes, stage.tokens.refused_since) == (None, None)


async def test_without_another_token_a_refusal_is_an_error(stage: Stage) -> None:
    stage.accepts.clear()
    with pytest.raises(TokenRefused, match="401"):
        await stage.ask(full="")
    with pytest.raises(TokenRefused, match="401"):
        await stage.ask()
