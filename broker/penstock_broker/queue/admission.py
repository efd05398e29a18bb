"""Which subscriptions of a route take a message: all their selectors together, and no-local.

Written for speed; it runs for every message that reaches a queue with a selector. What selectors name is decoded once
per message, whatever their number. Selectors that say only `name = 'text'` are not evaluated: one dict lookup per name
finds the subscriptions that have them. A message whose fields can't be read is selected by none of them. Must not know
the type of the handles that it returns. Source: JMS 2.0, 3.8.1; docs/decisions/017-no-local.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.message_head import Head
from penstock_amqp.messages.selected_fields import SelectedFields
from penstock_broker.access.connection import Connection
from penstock_core.selector import Lookup, Selector

__all__ = ["Admission", "AdmissionSet", "IsForeign"]

H = TypeVar("H")

IsForeign: TypeAlias = "Callable[[Connection | None], bool]"
"""Whether no-local lets a message pass that comes on this connection; None: the broker itself publishes."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a message has to pass; at least one of the two is there."""

    selector: Selector | None
    is_foreign: IsForeign | None


class AdmissionSet(Generic[H]):
    """Handles that take some messages only, prepared for being asked together."""

    __slots__ = ("_equal", "_evaluated", "_fields", "_foreign")

    def __init__(self, admissions: Iterable[tuple[H, Admission]]) -> None:
        names: set[str] = set()
        equal: dict[str, dict[str, list[H]]] = {}
        self._evaluated: list[tuple[H, Callable[[Lookup], bool], IsForeign | None]] = []
        self._foreign: list[tuple[H, IsForeign]] = []
        for handle, asked in admissions:
            selector, is_foreign = asked.selector, asked.is_foreign
            if selector is None:
                assert is_foreign is not None
                self._foreign.append((handle, is_foreign))
                continue
            names.update(selector.names)
            if selector.equality is not None and is_foreign is None:
                name, value = selector.equality
                equal.setdefault(name, {}).setdefault(value, []).append(handle)
            else:
                self._evaluated.append((handle, selector.selects, is_foreign))
        self._equal = list(equal.items())
        self._fields = SelectedFields(names)

    def taking(self, data: bytes, head: Head, connection: Connection | None) -> list[H]:
        """Those that take a message, always in the same order; `connection` brought it, None: the broker."""
        found: list[H] = []
        for handle, foreign_to in self._foreign:
            if foreign_to(connection):
                found.append(handle)
        try:
            values = self._fields.read(data, head)
        except DecodeError:
            return found
        for name, by_value in self._equal:
            value = values.get(name)
            if isinstance(value, str):
                found += by_value.get(value, ())
        lookup = values.get
        for handle, selects, is_foreign in self._evaluated:
            if (is_foreign is None or is_foreign(connection)) and selects(lookup):
                found.append(handle)
        return found
