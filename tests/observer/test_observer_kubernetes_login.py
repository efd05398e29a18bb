"""Who sees the page by a Kubernetes token, for how long an answer is good, and what a flood of tokens costs."""

from __future__ import annotations

import asyncio
import base64

import pytest
from observer.kubernetes_tokens import AUDIENCE, KnownReaders, token_for
from observer.page_site import Clock

from penstock_observer.access_reviews import PageOf
from penstock_observer.kubernetes_login import Access, KubernetesLogin, Refusal

ANN, BOB, EVE = (token_for(AUDIENCE, name=name) for name in ("ann", "bob", "eve"))


def known() -> KnownReaders:
    """ann sees the page, bob messages too, eve nothing."""
    return KnownReaders(
        {ANN: "ann", BOB: "bob", EVE: "eve"},
        {("ann", "page"), ("bob", "page"), ("bob", "messages"), ("eve", "messages")},
    )


def login(reviews: KnownReaders, clock: Clock, *, shows_messages: bool = True) -> KubernetesLogin:
    return KubernetesLogin(reviews, PageOf("shop", "main"), shows_messages=shows_messages, clock=clock)


async def test_roles_say_who_sees_what() -> None:
    found = login(known(), Clock())
    assert await found.access(ANN) == Access(sees_messages=False)
    assert await found.access(BOB) == Access(sees_messages=True)
    refused = await found.access(EVE)
    assert refused == Refusal(
        403,
        "eve may not see this page. It needs a role with the verb get for brokers/page (API group penstock.dev) of the "
        "Broker main in the namespace shop.",
    ), "messages alone are not the page"


async def test_a_page_without_messages_shows_none_whatever_a_role_allows() -> None:
    assert await login(known(), Clock(), shows_messages=False).access(BOB) == Access(sees_messages=False)


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="nothing"),
        pytest.param("s3cret", id="a token of the observer"),
        pytest.param("a.b.c", id="three parts"),
        pytest.param("a.é.c", id="no ASCII"),
        pytest.param(f"a.{base64.b64encode(b'[1]').decode()}.c", id="no map of claims"),
        pytest.param(f"a.{base64.b64encode(b'[' * 5000).decode()}.c", id="nested without end"),
        pytest.param(token_for(AUDIENCE, name="x" * 9000), id="too long"),
    ],
)
async def test_what_is_no_kubernetes_token_costs_the_api_server_nothing(token: str) -> None:
    reviews = known()
    assert await login(reviews, Clock()).access(token) is None
    assert reviews.asked == []


@pytest.mark.parametrize(
    "audiences", [(), ("https://kubernetes.default.svc",), ("penstock.dev/shop/other",), (AUDIENCE.upper(),)]
)
async def test_a_token_for_something_else_is_not_even_shown_to_the_api_server(audiences: tuple[str, ...]) -> None:
    reviews = known()
    refused = await login(reviews, Clock()).access(token_for(*audiences))
    assert isinstance(refused, Refusal)
    assert (refused.status, "kubectl create token NAME --audience" in refused.sentence) == (401, True)
    assert reviews.asked == []


async def test_an_answer_is_good_for_half_a_minute_and_then_asked_for_again() -> None:
    reviews, clock = known(), Clock()
    found = login(reviews, clock)
    await found.access(ANN)
    clock.seconds += 29.9
    assert await found.access(ANN) == Access(sees_messages=False)
    assert len(reviews.asked) == 1
    clock.seconds += 0.1
    reviews.may.remove(("ann", "page"))
    refused = await found.access(ANN)
    assert isinstance(refused, Refusal)
    assert (refused.status, len(reviews.asked)) == (403, 2)
    reviews.may.add(("ann", "page"))
    clock.seconds += 9.9
    assert await found.access(ANN) == refused
    clock.seconds += 0.1
    assert await found.access(ANN) == Access(sees_messages=False)


async def test_the_owner_of_a_deleted_account_is_a_stranger() -> None:
    reviews = known()
    del reviews.users[ANN]
    refused = await login(reviews, Clock()).access(ANN)
    assert isinstance(refused, Refusal)
    assert (refused.status, refused.is_final) == (401, True)


async def test_while_the_api_server_is_away_nobody_comes_in_and_nothing_is_remembered() -> None:
    reviews, clock = known(), Clock()
    found = login(reviews, clock)
    await found.access(ANN)
    reviews.problem, clock.seconds = "it did not answer within 5 seconds", clock.seconds + 30
    refused = await found.access(ANN)
    assert refused == Refusal(503, "The API server could not be asked who you are: it did not answer within 5 seconds.")
    assert isinstance(refused, Refusal)
    assert not refused.is_final
    reviews.problem = None
    assert await found.access(ANN) == Access(sees_messages=False)


async def test_a_flood_of_tokens_costs_two_questions_a_second_and_locks_nobody_out() -> None:
    """Ten at once, then two a second; one more per half minute for each who is logged in."""
    reviews, clock = known(), Clock()
    found = login(reviews, clock)
    await found.access(ANN)
    told: list[object] = []
    for number in range(1000):
        told.append(await found.access(token_for(AUDIENCE, name=f"flood-{number}")))
        clock.seconds += 0.06
        assert await found.access(ANN) == Access(sees_messages=False)
    # 59.94 s at two a second, nine that were left of ten.
    flooded = [token for token in reviews.asked if token != ANN]
    assert len(flooded) == 9 + 119
    assert len(reviews.asked) - len(flooded) == 2
    statuses = [each.status for each in told if isinstance(each, Refusal)]
    assert (statuses[:9], statuses.count(401), statuses.count(429)) == ([401] * 9, 128, 872)


async def test_one_question_is_enough_for_many_requests_at_once() -> None:
    reviews = known()
    found = login(reviews, Clock())
    assert await asyncio.gather(*(found.access(ANN) for _ in range(50))) == [Access(sees_messages=False)] * 50
    assert len(reviews.asked) == 1


async def test_a_thousand_are_remembered_and_the_oldest_is_forgotten_first() -> None:
    names = [f"user-{number}" for number in range(1100)]
    reviews = KnownReaders({token_for(AUDIENCE, name=name): name for name in names}, {(name, "page") for name in names})
    clock = Clock()
    found = login(reviews, clock)
    for token in reviews.users:
        clock.seconds += 0.5
        await found.access(token)
    for number in range(20):  # from now on nobody is asked for who is not remembered
        await found.access(token_for(AUDIENCE, name=f"flood-{number}"))
    told = [await found.access(token) for token in reviews.users]
    assert [each == Access(sees_messages=False) for each in told] == [False] * 100 + [True] * 1000
