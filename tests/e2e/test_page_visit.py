"""What the demo says about the page, and how the wait ends."""

from __future__ import annotations

import pytest
from e2e.page_visit import PageVisit, invite, stay

VISIT = PageVisit("https://10.0.0.7:8080", "abc", "The browser warns.")


def test_the_address_and_the_token_are_said() -> None:
    said: list[str] = []
    invite(VISIT, said.append)
    assert said == ["the page on lag: https://10.0.0.7:8080/page/ (log in with the token abc)", "The browser warns."]


def test_the_wait_ends_at_ctrl_c_as_a_success() -> None:
    said: list[str] = []

    def wait() -> None:
        assert said[-1] == "everything stays up until you press Ctrl-C"
        raise KeyboardInterrupt

    stay(VISIT, said.append, wait)
    assert said[0] == "the page on lag: https://10.0.0.7:8080/page/ (log in with the token abc)"
    assert said[-1] == "ending"


def test_another_end_of_the_wait_is_no_success() -> None:
    def wait() -> None:
        raise SystemExit(1)  # SIGTERM

    with pytest.raises(SystemExit):
        stay(VISIT, lambda _: None, wait)
