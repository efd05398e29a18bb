"""The entities of one kind in the order of their names, and what changed since a revision."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock_broker.topology import entity_list
from penstock_broker.topology.entity_list import EntityList

NAMES = st.sampled_from([f"{letter}{number}" for letter in "ab" for number in range(6)])


@dataclass(eq=False)
class Entity:
    name: str
    revision: int = 0


def names(entities: list[Entity] | None) -> list[str] | None:
    return None if entities is None else [each.name for each in entities]


class EntityListMachine(RuleBasedStateMachine):
    """Compared with a dict that is gone through and sorted each time."""

    def __init__(self) -> None:
        super().__init__()
        self.list = EntityList[Entity]()
        self.there: dict[str, Entity] = {}
        self.removed: list[tuple[int, str]] = []
        self.revision = 0

    @rule(name=NAMES)
    def revise(self, name: str) -> None:
        self.revision += 1
        entity = self.there.setdefault(name, Entity(name))
        self.list.revise(name, entity, self.revision)
        assert entity.revision == self.revision

    @rule(name=NAMES)
    def make_anew_under_the_same_name(self, name: str) -> None:
        self.revision += 1
        entity = self.there[name] = Entity(name)
        self.list.revise(name, entity, self.revision)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.revision += 1
        name = data.draw(st.sampled_from(sorted(self.there)))
        del self.there[name]
        self.removed = [each for each in self.removed if each[1] != name] + [(self.revision, name)]
        self.list.remove(name, self.revision)

    @rule()
    def something_else_changes(self) -> None:
        self.revision += 1

    @rule(begin=st.integers(0, 14), count=st.integers(0, 14), after=NAMES | st.just(""))
    def page(self, begin: int, count: int, after: str) -> None:
        behind = [self.there[name] for name in sorted(self.there) if name > after]
        assert self.list.page(begin, begin + count, after) == behind[begin : begin + count]

    @rule(data=st.data(), after=NAMES | st.just(""))
    def ask(self, data: st.DataObject, after: str) -> None:
        since = data.draw(st.integers(0, self.revision))
        changed = sorted(name for name, entity in self.there.items() if entity.revision > since and name > after)
        assert names(self.list.changed_after(since, after)) == changed
        assert self.list.names(after) == sorted(name for name in self.there if name > after)
        assert self.list.removed_after(since) == [name for at, name in reversed(self.removed) if at > since]

    @invariant()
    def it_has_what_is_there(self) -> None:
        assert len(self.list) == len(self.there)
        assert self.list.names() == sorted(self.there)
        assert all(self.list.get(name) is entity for name, entity in self.there.items())
        assert self.list.get("z") is None


TestEntityList = EntityListMachine.TestCase


def test_so_many_that_to_sort_them_takes_long_are_not_put_in_order() -> None:
    assert entity_list.SORTED_AT_ONCE == 500
    entities = EntityList[Entity]()
    for number in range(1, 602):
        entities.revise(f"s{number:03}", Entity(f"s{number:03}"), number)
    changed = names(entities.changed_after(101))
    assert changed is not None
    assert (len(changed), changed[0], changed[-1]) == (500, "s102", "s601")
    assert entities.changed_after(100) is None
    assert entities.changed_after(100, "s600") is None, "to find the one that is asked for, all would be gone through"
