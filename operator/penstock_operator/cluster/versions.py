"""Which of two states of an object is the newer one.

Watch events arrive late, twice or after a list that was newer, and the reply to an own write may come after the event
of a later one. The API server numbers what happens to an object in two ways: `generation` counts the changes of its
spec, and `resourceVersion` every change of all objects of its kind, so that it also orders an object and its successor
of the same name. Pure. Source: Kubernetes API concepts, "Resource versions" (they may be compared as numbers);
docs/decisions/057-lists-are-the-truth.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_operator.manifest import Manifest, dig, text_at

__all__ = ["Version", "is_older", "version_of"]


@dataclass(frozen=True, slots=True)
class Version:
    """The state of an object, as the API server numbers it."""

    uid: str = ""
    generation: int | None = None
    resource_version: str = ""

    @property
    def number(self) -> int | None:
        """The resource version as a number; None if this API server has other ones, which can't be compared."""
        return int(self.resource_version) if self.resource_version.isdecimal() else None


def version_of(manifest: Manifest) -> Version:
    """The version of an object."""
    generation = dig(manifest, "metadata", "generation")
    return Version(
        uid=text_at(manifest, "metadata", "uid") or "",
        generation=generation if isinstance(generation, int) else None,
        resource_version=text_at(manifest, "metadata", "resourceVersion") or "",
    )


def is_older(found: Version, known: Version) -> bool:
    """Whether `found` is a state from before `known`, of the same object or of a predecessor of the same name."""
    if found.uid == known.uid and None not in (found.generation, known.generation):
        assert found.generation is not None
        assert known.generation is not None
        if found.generation != known.generation:
            return found.generation < known.generation
    if found.number is None or known.number is None:
        return False
    return found.number < known.number
