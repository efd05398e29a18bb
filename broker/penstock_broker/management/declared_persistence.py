"""The word of a declaration for `persistence` as the broker holds it."""

from __future__ import annotations

from penstock_core.terms import Persistence

__all__ = ["declared_persistence"]


def declared_persistence(word: str | None) -> Persistence | None:
    """None if the declaration does not say. In: a word that the declaration's model has checked."""
    return None if word is None else Persistence(word)
