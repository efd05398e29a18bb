"""What a broker of one release understands, so that an operator of another release doesn't have to try and be refused.

A broker lists what its declarations and its configuration file may say, in `BrokerState.understands`; whoever writes a
declaration or a configuration looks there for the terms that it uses. A term is `exchange.`, `subscription.`, `queue.`
or `settings.` with the path of a key, such as `subscription.delivery.deadLetter`, or with a key and a value,
`subscription.scope=Container`. All are read from the models: no list of features is kept by hand. Pure.
Source: docs/reference/management.md, "Other releases"; docs/decisions/061-different-releases.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import cache
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
    """The terms of the broker's configuration file, `settings.` and the path of a key, sorted.

    `model` is the broker's `BrokerSettings`, which this package can't import.
    """
    return tuple(sorted({term for term in _terms(model, _SETTINGS) if "=" not in term}))


def missing_settings(settings: object, understood: Set[str] | None) -> tuple[str, ...]:
    """The keys of a configuration that a broker doesn't know, sorted; none if it doesn't say what it knows.

    Some values have keys of their own, such as a map by user; the broker doesn't list these, and they are not checked.
    """
    if understood is None or not any(term.startswith(f"{_SETTINGS}.") for term in understood):
        return ()
    described = {term.rpartition(".")[0] for term in understood}
    return tuple(sorted(set(_unknown(settings, _SETTINGS, understood, described))))


def settings_terms(settings: object) -> frozenset[str]:
    """The terms of all keys in a configuration, keys of maps by user and the like included."""
    return frozenset(_keys(settings, _SETTINGS))


def needs(declaration: ManagementDocument) -> frozenset[str]:
    """The terms that a declaration uses. A value at its default needs none."""
    return frozenset(_used(declaration, _ENTITIES[type(declaration)]))


def missing(declaration: ManagementDocument, understood: Set[str] | None) -> tuple[str, ...]:
    """The terms of a declaration that a broker doesn't know, sorted; none if it doesn't say what it knows."""
    if understood is None or understood >= _whole_vocabulary():
        return ()
    return tuple(sorted(needs(declaration) - understood))


@cache
def _whole_vocabulary() -> frozenset[str]:
    return frozenset(vocabulary())


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
    """The types that an annotation consists of; those of a map's keys and values are left out."""
    origin = get_origin(annotation)
    if origin in (tuple, Union, UnionType):
        for argument in get_args(annotation):
            yield from _parts(argument)
    else:
        yield annotation
