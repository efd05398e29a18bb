"""What a broker of one release can be asked for, so that an operator of another needn't find out by refusals.

A broker announces the terms of its declarations in `BrokerState.understands`; whoever declares looks there for those
that his declaration needs. A term is `exchange.`, `subscription.` or `queue.` with the path of a key, such as
`subscription.delivery.deadLetter`, or of one of its words, `subscription.scope=Container`. All are read off the
models of `penstock_api.management`: no list of features is kept by hand. Pure. Source: docs/management.md, "Other
releases".
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from types import UnionType
from typing import Final, Literal, Union, cast, get_args, get_origin

from penstock_api.management import (
    Document,
    ExchangeDeclaration,
    QueueDeclaration,
    SubscriptionDeclaration,
)

__all__ = ["missing", "needs", "vocabulary"]

_ENTITIES: Final[dict[type[Document], str]] = {
    ExchangeDeclaration: "exchange",
    SubscriptionDeclaration: "subscription",
    QueueDeclaration: "queue",
}


def vocabulary() -> tuple[str, ...]:
    """Every term that this release knows, sorted."""
    return tuple(sorted(term for model, entity in _ENTITIES.items() for term in _terms(model, entity)))


def needs(declaration: Document) -> frozenset[str]:
    """The terms that a declaration uses: what is at its default needs nothing."""
    return frozenset(_used(declaration, _ENTITIES[type(declaration)]))


def missing(declaration: Document, understood: Set[str] | None) -> tuple[str, ...]:
    """The terms of a declaration that a broker doesn't know, sorted; none if it doesn't say what it knows."""
    return () if understood is None else tuple(sorted(needs(declaration) - understood))


def _terms(model: type[Document], path: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        here = f"{path}.{field.alias or name}"
        yield here
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, Document):
                yield from _terms(part, here)
            elif get_origin(part) is Literal:
                yield from (f"{here}={word}" for word in get_args(part))


def _used(document: Document, path: str) -> Iterator[str]:
    for name, field in type(document).model_fields.items():
        value: object = getattr(document, name)
        if not field.is_required() and value == field.get_default(call_default_factory=True):
            continue
        here = f"{path}.{field.alias or name}"
        yield here
        for part in cast(tuple[object, ...], value) if isinstance(value, tuple) else (value,):
            if isinstance(part, Document):
                yield from _used(part, here)
        if any(get_origin(part) is Literal for part in _parts(field.annotation)):
            yield f"{here}={value}"


def _parts(annotation: object) -> Iterator[object]:
    """The types that an annotation is put together from; a map's keys and values are the sender's own."""
    origin = get_origin(annotation)
    if origin in (tuple, Union, UnionType):
        for argument in get_args(annotation):
            yield from _parts(argument)
    else:
        yield annotation
