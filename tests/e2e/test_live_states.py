"""Every state of lag against real brokers and JMS clients, by `/v1/lag/live` and by `penstock lag`."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e import live_states, local_demo
from e2e.state_scenarios import SCENARIOS
from e2e.state_watch import Seen
from e2e.states_page import PAGE, rows, table, with_table

from penstock_api.lag_result import LagState


@pytest.mark.jms
def test_each_state_is_seen_within_two_periods(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)  # noqa: T201  # minutes long; and it is progress to hack/test

    local_demo.build_clients(tmp_path / "maven.log")
    seen = live_states.play(tmp_path, say)
    page = PAGE.read_text(encoding="utf-8")
    assert rows(with_table(page, seen)) == rows(page), "run hack/states: the page is of other scenarios"


def test_the_page_has_the_state_that_each_scenario_expects() -> None:
    written = rows(PAGE.read_text(encoding="utf-8"))
    assert written[: len(SCENARIOS)] == [(each.injected, each.state.value) for each in SCENARIOS]


def test_every_state_but_the_broker_s_own_fault_is_on_the_page() -> None:
    written = {state for _, state in rows(PAGE.read_text(encoding="utf-8"))}
    assert written == {state.value for state in LagState if state is not LagState.BROKER_STUCK} | {"none"}


def test_a_table_replaces_that_of_the_page_and_nothing_else() -> None:
    seen = [Seen("this", LagState.OK, 7, "all is well"), Seen("that", None, 3, "nobody answers")]
    assert table(seen).splitlines()[2:] == [
        "| this | OK | 7 s | `all is well` |",
        "| that | none | 3 s | `nobody answers` |",
    ]
    old = "Before.\n\n| injected | state |\n| --- | --- |\n| old | Idle |\n"
    for after in ("", "\nAfter.\n"):
        page = with_table(old + after, seen)
        assert page == f"Before.\n\n{table(seen)}\n{after}"
        assert rows(page) == [("this", "OK"), ("that", "none")]
