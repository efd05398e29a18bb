"""What a broker of one release can be asked for, so that an operator of another needn't find out by refusals.

A broker announces what its declarations and its configuration file may say in `BrokerState.understands`; whoever writes
one looks there for the terms that it needs. A term is `exchange.`, `subscription.`, `queue.` or `settings.` with the
path of a key, such as `subscription.delivery.deadLetter`, or of a word, `subscription.scope=Container`. All are read
off the models: no list of features is kept by hand. Pure. Source: docs/management.md, "Other releases".
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from types import UnionType
from typing import Final, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel

from penstock_api.management import (
    ExchangeDeclaration,
    ManagementDocument,
    QueueDeclaration,
    SubscriptionDeclaration,
)

__all__ = ["missing", "missing_settings", "needs", "settings_terms", "settings_vocabulary", "vocabulary"]

_ENTITIES: Final[dict[type[ManagementDocument], str]] = {
    ExchangeDeclaration: "exchange",
    SubscriptionDeclaration: "subscription",
    QueueDeclaration: "queue",
}


_SETTINGS: Final = "settings"


def vocabulary() -> tuple[str, ...]:
    """Every term that this release knows, sorted."""
    return tuple(sorted(term for model, entity in _ENTITIES.items() for term in _terms(model, entity)))


def settings_vocabulary(model: type[BaseModel]) -> tuple[str, ...]:
    """The same for the broker's configuration file, whose model only the broker knows: `settings.` and the path of a
    key, sorted.
    """
    return tuple(sorted({term for term in _terms(model, _SETTINGS) if "=" not in term}))


def missing_settings(settings: object, understood: Set[str] | None) -> tuple[str, ...]:
    """The keys of a configuration that a broker doesn't know, sorted; none if it doesn't say what it knows. Below a key
    whose value the broker doesn't describe, such as a map by user, anything goes.
    """
    if understood is None or not any(term.startswith(f"{_SETTINGS}.") for term in understood):
        return ()
    described = {term.rpartition(".")[0] for term in understood}
    return tuple(sorted(set(_unknown(settings, _SETTINGS, understood, described))))


def settings_terms(settings: object) -> frozenset[str]:
    """The terms of the keys that a configuration has, with those of maps whose keys are its own."""
    return frozenset(_keys(settings, _SETTINGS))


def needs(declaration: ManagementDocument) -> frozenset[str]:
    """The terms that a declaration uses: what is at its default needs nothing."""
    return frozenset(_used(declaration, _ENTITIES[type(declaration)]))


def missing(declaration: ManagementDocument, understood: Set[str] | None) -> tuple[str, ...]:
    """The terms of a declaration that a broker doesn't know, sorted; none if it doesn't say what it knows."""
    return () if understood is None else tuple(sorted(needs(declaration) - understood))


def _terms(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        here = f"{path}.{field.alias or name}"
        yield here
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _terms(part, here)
            elif get_origin(part) is Literal:
                yield from (f"{here}={word}" for word in get_args(part))


def _keys(node: object, path: str) -> Iterator[str]:
    if isinstance(node, list):
        for item in cast(list[object], node):
            yield from _keys(item, path)
    elif isinstance(node, dict):
        for key, value in cast(dict[str, object], node).items():
            yield f"{path}.{key}"
            yield from _keys(value, f"{path}.{key}")


def _unknown(node: object, path: str, understood: Set[str], described: Set[str]) -> Iterator[str]:
    if isinstance(node, list):
        for item in cast(list[object], node):
            yield from _unknown(item, path, understood, described)
    elif isinstance(node, dict) and path in described:
        for key, value in cast(dict[str, object], node).items():
            here = f"{path}.{key}"
            if here not in understood:
                yield here
            else:
                yield from _unknown(value, here, understood, described)


def _used(document: ManagementDocument, path: str) -> Iterator[str]:
    for name, field in type(document).model_fields.items():
        value: object = getattr(document, name)
        if not field.is_required() and value == field.get_default(call_default_factory=True):
            continue
        here = f"{path}.{field.alias or name}"
        yield here
        for part in cast(tuple[object, ...], value) if isinstance(value, tuple) else (value,):
            if isinstance(part, ManagementDocument):
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
