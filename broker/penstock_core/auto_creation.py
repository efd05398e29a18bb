"""What may be made because a client named it: auto-creation.

Queues and topics each have a rule: patterns of names, and how many there may be. It must not know what exists.
Source: docs/decisions/019-auto-creation.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

from penstock_core.patterns import matches
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import NodeKind

__all__ = ["ANYTHING", "NOTHING", "AutoCreation", "CreationRule", "check_limit"]


@dataclass(frozen=True, slots=True)
class CreationRule:
    """For one kind of node."""

    names: tuple[str, ...] = ()
    """Patterns of names that may be made; `*` stands for any characters. None: nothing is made."""
    limit: int = 10_000
    """So many are there at most that were made in this way."""


@dataclass(frozen=True, slots=True)
class AutoCreation:
    """The rules of a broker."""

    queues: CreationRule
    topics: CreationRule

    def rule(self, kind: NodeKind) -> CreationRule:
        """The rule for one kind."""
        match kind:
            case NodeKind.QUEUE:
                return self.queues
            case NodeKind.TOPIC:
                return self.topics
            case _:
                assert_never(kind)

    def allows(self, kind: NodeKind, name: str) -> bool:
        """True if a node of this kind may be made by this name."""
        return matches(name, self.rule(kind).names)


NOTHING: Final = AutoCreation(CreationRule(), CreationRule())
ANYTHING: Final = AutoCreation(CreationRule(("*",)), CreationRule(("*",)))


def check_limit(creation: AutoCreation, kind: NodeKind, name: str, made: int) -> Refuse | None:
    """None if one more may be made; ``made`` of this kind are there that clients made by naming them."""
    limit = creation.rule(kind).limit
    if made < limit:
        return None
    return Refuse(
        Reason.LIMIT_EXCEEDED,
        f"The {kind.value} {name!r} is not made: there are {made} made by their first use, and {limit} is the limit "
        f"(autoCreate.{kind.value}s.limit); declare it, or delete some.",
    )
