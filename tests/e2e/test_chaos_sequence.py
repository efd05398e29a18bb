"""The sequence of chaos: decided by its seed, fair to every fault, and consistent in what it declares."""

from __future__ import annotations

from itertools import islice

from support.chaos_sequence import Step, steps

FAULTS = ("a", "b", "c", "d", "e")


def first(seed: int, count: int) -> list[Step]:
    return list(islice(steps(seed, FAULTS), count))


def test_a_seed_decides_everything() -> None:
    assert first(7, 50) == first(7, 50)
    assert [it.fault for it in first(7, 50)] != [it.fault for it in first(8, 50)]


def test_each_round_has_each_fault_once() -> None:
    faults = [it.fault for it in first(1, 50)]
    for start in range(0, 50, 5):
        assert sorted(faults[start : start + 5]) == ["a", "b", "c", "d", "e"]


def test_what_is_declared_is_what_was_applied_and_not_deleted_since() -> None:
    there: dict[str, str] = {}
    deleted = 0
    for step in first(3, 100):
        assert step.applied.keys().isdisjoint(step.deleted)
        assert step.applied or step.deleted
        assert set(step.deleted) <= there.keys()
        deleted += len(step.deleted)
        there = {name: key for name, key in {**there, **step.applied}.items() if name not in step.deleted}
        assert step.declared == there
    assert deleted > 20
