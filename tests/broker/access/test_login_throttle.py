"""Who guesses passwords is slowed down; who does not guess is not, and nothing grows without bound."""

from __future__ import annotations

from penstock_broker.access.login_throttle import LoginThrottle


def failing(guessing: LoginThrottle, times: int, *, peer: str = "10.0.0.1", user: str = "ann", now_ms: int = 0) -> None:
    for _ in range(times):
        guessing.failed(peer, user, now_ms)


def test_three_mistakes_cost_nothing() -> None:
    guessing = LoginThrottle()
    failing(guessing, 3)
    assert guessing.wait_ms("10.0.0.1", "ann", 0) == 0


def test_each_further_one_doubles_the_wait_up_to_ten_seconds() -> None:
    guessing = LoginThrottle()
    failing(guessing, 3)
    waits: list[int] = []
    for _ in range(8):
        failing(guessing, 1)
        waits.append(guessing.wait_ms("10.0.0.1", "ann", 0))
    assert waits == [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]


def test_the_wait_runs_from_the_last_failure() -> None:
    guessing = LoginThrottle()
    failing(guessing, 5, now_ms=1000)
    assert guessing.wait_ms("10.0.0.1", "ann", 1400) == 100
    assert guessing.wait_ms("10.0.0.1", "ann", 1500) == 0


def test_another_user_of_the_same_address_waits_only_if_many_names_were_tried() -> None:
    guessing = LoginThrottle()
    failing(guessing, 30)
    assert guessing.wait_ms("10.0.0.1", "bob", 0) == 0
    failing(guessing, 100)
    assert guessing.wait_ms("10.0.0.1", "bob", 0) == 2000


def test_a_user_is_never_kept_out_for_more_than_a_second_by_others() -> None:
    guessing = LoginThrottle()
    for number in range(200):
        failing(guessing, 1, peer=f"10.0.1.{number}")
    assert guessing.wait_ms("10.0.0.1", "ann", 0) == 1000


def test_a_right_secret_ends_the_suspicion_of_that_user_there() -> None:
    guessing = LoginThrottle()
    failing(guessing, 10)
    guessing.succeeded("10.0.0.1", "ann")
    assert guessing.wait_ms("10.0.0.1", "ann", 0) == 0


def test_ten_minutes_are_forgotten() -> None:
    guessing = LoginThrottle()
    failing(guessing, 20)
    assert guessing.wait_ms("10.0.0.1", "ann", 600_000) == 0
    failing(guessing, 1, now_ms=600_000)
    assert guessing.wait_ms("10.0.0.1", "ann", 600_000) == 0


def test_what_is_remembered_is_bounded_and_the_last_ones_stay() -> None:
    guessing = LoginThrottle(capacity=30)
    failing(guessing, 20, peer="10.0.0.9", user="bob")
    for number in range(100):
        failing(guessing, 1, peer=f"10.0.1.{number}", user=f"user{number}")
    assert guessing.wait_ms("10.0.0.9", "bob", 0) == 0
    failing(guessing, 5, peer="10.0.0.9", user="bob")
    assert guessing.wait_ms("10.0.0.9", "bob", 0) == 500
