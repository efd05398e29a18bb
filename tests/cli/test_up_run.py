"""`penstock up` whole: real broker and observer from examples/local, a kill -9, a second start on the same folder."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from e2e.local_site import START_SECONDS, LocalSite
from pydantic import TypeAdapter
from support.waiting import found

from penstock_api import observer_api
from penstock_api.state_documents import SubscriptionState

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "local"
STATES = TypeAdapter(list[SubscriptionState])


def subscriptions(site: LocalSite) -> dict[str, SubscriptionState]:
    """The live state of each subscription, by name, once the observer has polled after the declaration."""

    def polled() -> dict[str, SubscriptionState] | None:
        states = STATES.validate_python(site.get(observer_api.SUBSCRIPTIONS))
        return {state.subscription_name: state for state in states} or None

    return found(polled, "the observer to have seen what was declared", START_SECONDS)


def penstock(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "penstock_cli", *arguments], stdout=subprocess.PIPE, text=True, timeout=300, check=True
    ).stdout


def page(site: LocalSite, address: str) -> str:
    """A page of the observer."""
    token = (site.data / "observer.token").read_text(encoding="ascii").strip()
    url = f"{site.state()['observer']}{observer_api.PAGE}/{address}"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})) as answer:
        text: str = answer.read().decode()
    return text


def is_alive(pid: int | None) -> bool:
    """Whether a process with this id exists."""
    assert pid is not None
    return Path(f"/proc/{pid}").exists()


def test_up_serves_what_the_manifests_declare_through_a_crash_and_leaves_nothing(tmp_path: Path) -> None:
    with LocalSite(EXAMPLES, tmp_path / "data", "--show-messages") as site:
        site.wait_until_serving()
        before = subscriptions(site)
        assert set(before) == {"billing", "shipping-eu", "fraud"}
        assert before["shipping-eu"].binding_keys == ("eu.#",)
        assert before["billing"].owner is not None
        assert (before["billing"].owner.cluster_id, before["billing"].owner.name) == ("local", "billing")
        listed = penstock("subscriptions", "list", "--json", "--broker", str(site.state()["management"]))
        assert {json.loads(line)["subscriptionName"] for line in listed.splitlines()} == set(before)
        assert "default/billing" in page(site, "")
        assert "No message waits here" in page(site, "messages?queue=psub:durable:global:billing")
        address = f"{site.state()['observer']}{observer_api.PAGE}/"
        site.kill()
        after = subscriptions(site)
        assert after["billing"].incarnation == before["billing"].incarnation, "declared again, not made again"
        pids = [site.pid("broker"), site.pid("observer")]
        assert all(is_alive(pid) for pid in pids)
    assert not any(is_alive(pid) for pid in pids)
    assert not (tmp_path / "data" / "up.json").exists()
    assert f"the page on lag: {address} (log in with the token in " in (tmp_path / "up.log").read_text()


def test_a_second_up_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with LocalSite(EXAMPLES, tmp_path / "data") as first:
        first.wait_until_serving()
        second = LocalSite(EXAMPLES, tmp_path / "data")
        assert second.process.wait(timeout=300) == 3
        assert "another `penstock up` uses" in (tmp_path / "up.log").read_text()
        with second:
            assert is_alive(first.pid("up"))
