"""In whatever order lists, watch events and replies to own writes arrive, the cache keeps the newest state."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.examples import examples
from support.resources import manifest_of

from penstock_operator.cluster import cache as cache_module
from penstock_operator.cluster.cache import Cache, ResourceChange, ResourceKey
from penstock_operator.cluster.versions import Version, is_older, version_of

EXAMPLES = examples(300)
BILLING = ResourceKey("Subscription", "shop", "billing")


def state(version: int | str, generation: int = 3, uid: str = "a", name: str = "billing") -> Any:
    about = {"name": name, "resourceVersion": str(version), "generation": generation, "uid": uid}
    return manifest_of("Subscription", {}, None, about)


def shown(cache: Cache, key: ResourceKey = BILLING) -> Version | None:
    entry = cache.get(key)
    return None if entry is None else entry.version


@pytest.mark.parametrize(
    ("found", "known", "older"),
    [
        pytest.param(Version("a", 3, "7"), Version("a", 3, "8"), True, id="an-earlier-status"),
        pytest.param(Version("a", 3, "8"), Version("a", 3, "7"), False, id="a-later-status"),
        pytest.param(Version("a", 3, "9"), Version("a", 3, "10"), True, id="numbers-and-not-texts"),
        pytest.param(Version("a", 2, "x"), Version("a", 3, "y"), True, id="an-earlier-spec-by-generation-alone"),
        pytest.param(Version("a", 4, "x"), Version("a", 3, "y"), False, id="a-later-spec-by-generation-alone"),
        pytest.param(Version("a", 3, "x"), Version("a", 3, "y"), False, id="versions-that-are-no-numbers"),
        pytest.param(Version("a", 9, "7"), Version("b", 1, "8"), True, id="a-predecessor-of-the-same-name"),
        pytest.param(Version("b", 1, "8"), Version("a", 9, "7"), False, id="a-successor-of-the-same-name"),
        pytest.param(Version("a", 3, "7"), Version("a", 3, "7"), False, id="the-same"),
        pytest.param(Version(), Version("a", 3, "7"), False, id="nothing-known"),
    ],
)
def test_the_older_of_two_states(found: Version, known: Version, older: bool) -> None:
    assert is_older(found, known) is older


def test_an_older_event_changes_nothing() -> None:
    cache = Cache()
    cache.put(state(9, 4))
    assert cache.put(state(8, 3)) is ResourceChange.NOTHING
    assert cache.put(state(8, 4)) is ResourceChange.NOTHING
    assert shown(cache) == Version("a", 4, "9")


def test_a_resource_that_was_removed_does_not_come_back_by_an_event() -> None:
    cache = Cache()
    cache.put(state(5))
    cache.remove(BILLING)
    assert cache.put(state(6)) is ResourceChange.NOTHING
    assert shown(cache) is None
    assert cache.put(state(7, 1, "b")) is ResourceChange.SPEC


def test_one_that_was_never_seen_does_not_come_after_its_removal() -> None:
    cache = Cache()
    assert not cache.remove(BILLING, Version("a", 3, "6"))
    assert cache.put(state(5)) is ResourceChange.NOTHING
    assert cache.put(state(4, 9, "before-a")) is ResourceChange.NOTHING


def test_the_removal_of_a_predecessor_comes_too_late_and_that_of_a_successor_says_enough() -> None:
    cache = Cache()
    cache.put(state(8, 1, "b"))
    assert not cache.remove(BILLING, Version("a", 3, "7"))
    assert cache.remove(BILLING, Version("c", 1, "12"))


def test_what_a_list_lacked_does_not_come_back_by_an_older_event() -> None:
    cache = Cache()
    cache.end_list("Subscription", cache.begin_list(), [state(9, name="other", uid="o")], ())
    assert cache.put(state(8)) is ResourceChange.NOTHING
    assert cache.put(state(10)) is ResourceChange.SPEC


def test_a_list_wins_also_if_the_api_server_was_restored_from_a_backup() -> None:
    cache = Cache()
    cache.end_list("Subscription", cache.begin_list(), [state(90, 8)], ())
    cache.end_list("Subscription", cache.begin_list(), [state(20, 5)], ())
    assert shown(cache) == Version("a", 5, "20")
    assert cache.put(state(21, 5)) is ResourceChange.STATUS


def test_only_so_many_removals_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "REMEMBERED_REMOVALS", 3)
    cache = Cache()
    for number in range(5):
        cache.put(state(10 + number, uid=f"u{number}", name=f"n{number}"))
        cache.remove(ResourceKey("Subscription", "shop", f"n{number}"))
    back = [cache.put(state(20, uid=f"u{number}", name=f"n{number}")) for number in range(5)]
    assert back == [ResourceChange.SPEC] * 2 + [ResourceChange.NOTHING] * 3


@dataclass(slots=True)
class Server:
    """What an API server has, and everything that it ever told about it."""

    objects: dict[str, Any] = field(default_factory=dict[str, Any])
    told: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    number: int = 0

    def happen(self, verb: str, name: str) -> None:
        """Something happens to the resource of a name; nothing, if it can't."""
        there = self.objects.get(name)
        if (there is None) is not (verb == "create"):
            return
        self.number += 1
        if there is None:
            there = self.objects[name] = state(0, 1, f"uid-{self.number}", name)
        there["metadata"]["resourceVersion"] = str(self.number)
        there["metadata"]["generation"] += verb == "edit"
        if verb == "delete":
            del self.objects[name]
        self.told.append(("DELETED" if verb == "delete" else "MODIFIED", copy.deepcopy(there)))

    def list(self) -> list[Any]:
        return copy.deepcopy(list(self.objects.values()))


def deliver(cache: Cache, kind: str, manifest: Any) -> None:
    if kind == "DELETED":
        cache.remove(ResourceKey("Subscription", "shop", manifest["metadata"]["name"]), version_of(manifest))
    else:
        cache.put(manifest)


STEPS = st.one_of(
    st.tuples(st.sampled_from(["create", "edit", "touch", "delete"]), st.sampled_from(["a", "b"])),
    st.tuples(st.just("tell"), st.integers(0, 30)),
    st.tuples(st.sampled_from(["begin", "end"]), st.none()),
)


@hypothesis_settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=40), st.randoms(use_true_random=False))
def test_any_interleaving_ends_with_the_newest(steps: list[tuple[str, Any]], random: Random) -> None:
    """Events are told in any order, more than once, or never; an own write is told like an event of its result."""
    server, cache = Server(), Cache()
    lists: list[tuple[int, list[Any]]] = []
    newest: dict[ResourceKey, int] = {}
    for verb, argument in steps:
        match verb:
            case "tell":
                if server.told:
                    deliver(cache, *server.told[int(argument) % len(server.told)])
            case "begin":
                lists.append((cache.begin_list(), server.list()))
            case "end":
                if lists:
                    cache.end_list("Subscription", *lists.pop(0), ())
            case _:
                server.happen(verb, argument)
        for key in cache.all():
            number = int(shown(cache, key).resource_version)  # type: ignore[union-attr]  # it has every key of `all`
            assert number >= newest.get(key, 0), "an older state replaced a newer one"
            newest[key] = number
    cache.end_list("Subscription", cache.begin_list(), server.list(), ())
    late = list(range(len(server.told)))
    random.shuffle(late)
    for at in late:
        deliver(cache, *server.told[at])
    found = {key.name: shown(cache, key) for key in cache.all()}
    assert found == {name: version_of(manifest) for name, manifest in server.objects.items()}
