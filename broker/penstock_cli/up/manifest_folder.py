"""A folder of manifests: read as one Broker with its Exchanges, Subscriptions and Queues, or refused with a list of
all problems.

The same files work with `kubectl apply`; objects of other groups are skipped. It reports what the API server would
refuse, and what the operator would show as a condition (a missing reference, two resources for one subscription), all
at once, because there are no conditions to watch here. This module must not know processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, cast

import yaml

from penstock_api import declaration
from penstock_api.failure import Misuse
from penstock_api.resources import (
    GROUP,
    AnyResource,
    Broker,
    Declaring,
    Exchange,
    InvalidManifest,
    Queue,
    Subscription,
    parse,
)
from penstock_api.yaml_documents import NOT_YAML, StrictLoader
from penstock_core.reason import Refuse
from penstock_core.selector import compile_selector

__all__ = ["ManifestPlace", "Manifests", "read"]

SUFFIXES: Final = frozenset({".yaml", ".yml"})


@dataclass(frozen=True, slots=True)
class ManifestPlace:
    """Where a manifest stands: file, number of the document in it (from 1), line."""

    file: Path
    document: int
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} (document {self.document})"


@dataclass(frozen=True, slots=True)
class Manifests:
    """One Broker and what belongs to it, references resolved."""

    broker: Broker
    exchanges: tuple[Exchange, ...]
    subscriptions: tuple[tuple[Subscription, Exchange], ...]
    """Each with the Exchange that its `exchangeRef` names."""
    queues: tuple[Queue, ...] = ()


@dataclass(frozen=True, slots=True)
class _Placed:
    place: ManifestPlace
    resource: AnyResource


def read(folder: Path) -> Manifests:
    """The manifests of a folder, its sub-folders included, files in name order.

    Raises:
        Misuse: anything is wrong; the cause has a line for each problem, with file, line, document and field.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise Misuse(f"{folder} holds no manifest.", "Put *.yaml files there; examples/local has some to start from.")
    problems: list[str] = []
    placed = [found for file in files for found in _read_file(file, problems)]
    manifests = _assemble(placed, problems, folder, all_read=not problems)
    if problems or manifests is None:
        count = len(problems)
        raise Misuse(
            "\n".join(
                [f"{count} problem{'s' if count > 1 else ''} in the manifests:", *(f"  {line}" for line in problems)]
            ),
            "Nothing was started.",
        )
    return manifests


def _read_file(file: Path, problems: list[str]) -> Iterator[_Placed]:
    try:
        loader = StrictLoader(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.reader.ReaderError) as error:
        problems.append(f"{file}: can't be read: {error}")
        return
    construct = cast("Callable[[yaml.Node], object]", getattr(loader, "construct_document"))  # noqa: B009  # untyped in its stubs
    number = 0
    try:
        while loader.check_node():
            number += 1
            node = loader.get_node()
            assert node is not None  # check_node said so
            place = ManifestPlace(file, number, node.start_mark.line + 1)
            resource = _parse(construct(node), place, problems)
            if resource is not None:
                yield _Placed(place, resource)
    except NOT_YAML as error:
        problems.append(f"{file} (document {max(number, 1)}): not YAML: {' '.join(str(error).split())}")


def _parse(document: object, place: ManifestPlace, problems: list[str]) -> AnyResource | None:
    if document is None:
        return None
    if not isinstance(document, Mapping):
        problems.append(f"{place}: a manifest is a map with `apiVersion`, `kind`, `metadata` and `spec`")
        return None
    manifest = cast("Mapping[str, object]", document)
    group, _, _ = str(manifest.get("apiVersion", "")).partition("/")
    if group != GROUP:
        if get_close_matches(group, (GROUP,), cutoff=0.8):
            problems.append(f"{place}: apiVersion: {group!r} looks like {GROUP!r} and is another group")
        return None
    try:
        return parse(manifest)
    except InvalidManifest as error:
        problems.extend(f"{place}: {line}" for line in str(error).splitlines())
        return None


def _assemble(placed: Sequence[_Placed], problems: list[str], folder: Path, *, all_read: bool) -> Manifests | None:
    """`all_read`: every manifest could be read. If not, a missing one is not reported: it may be in an unreadable
    file.
    """
    _report_repeated(placed, problems)
    brokers = [entry for entry in placed if isinstance(entry.resource, Broker)]
    if not brokers and not all_read:
        return None
    if len(brokers) != 1:
        found = ", ".join(str(entry.place) for entry in brokers) or "none"
        problems.append(f"{folder}: exactly one Broker is needed, found: {found}")
        return None
    broker = cast("Broker", brokers[0].resource)
    exchanges: dict[tuple[str, str], Exchange] = {}
    subscriptions: list[tuple[Subscription, Exchange]] = []
    for entry in placed:
        if isinstance(entry.resource, Exchange) and _names_broker(entry.place, entry.resource, broker, problems):
            exchanges[entry.resource.metadata.namespace, entry.resource.metadata.name] = entry.resource
    for entry in placed:
        if isinstance(entry.resource, Subscription) and _names_broker(entry.place, entry.resource, broker, problems):
            namespace, name = declaration.exchange_key(entry.resource)
            exchange = exchanges.get((namespace, name))
            if exchange is not None:
                subscriptions.append((entry.resource, exchange))
            elif all_read:
                problems.append(
                    f"{entry.place}: {_title(entry)}: spec.exchangeRef: no Exchange {namespace}/{name} is declared"
                )
    queues = tuple(
        entry.resource
        for entry in placed
        if isinstance(entry.resource, Queue) and _names_broker(entry.place, entry.resource, broker, problems)
    )
    _report_same_on_broker(placed, problems)
    _report_selectors(placed, problems)
    return Manifests(broker, tuple(exchanges.values()), tuple(subscriptions), queues)


def _names_broker(place: ManifestPlace, resource: Declaring, broker: Broker, problems: list[str]) -> bool:
    key = declaration.broker_key(resource)
    if key == (broker.metadata.namespace, broker.metadata.name):
        return True
    told = f"spec.brokerRef: names {'/'.join(key)}, but the Broker here is {broker.key}"
    problems.append(f"{place}: {resource.kind} {resource.key}: {told}")
    return False


def _report_repeated(placed: Sequence[_Placed], problems: list[str]) -> None:
    first: dict[tuple[str, str], ManifestPlace] = {}
    for entry in placed:
        key = (entry.resource.kind, entry.resource.key)
        if key in first:
            problems.append(f"{entry.place}: {_title(entry)}: metadata.name: already declared at {first[key]}")
        first.setdefault(key, entry.place)


def _report_same_on_broker(placed: Sequence[_Placed], problems: list[str]) -> None:
    """Report two resources for one entity: on a cluster the older one wins, but files have no age."""
    first: dict[str, _Placed] = {}
    for entry in placed:
        match entry.resource:
            case Exchange() as exchange:
                name = f"the exchange {declaration.exchange_name(exchange)!r}"
            case Subscription() as subscription:
                name = f"the {declaration.subscription_identity(subscription)}"
            case Queue() as queue:
                name = f"the queue {declaration.queue_name(queue)!r}"
            case Broker():
                continue
        other = first.setdefault(name, entry)
        if other.resource.key != entry.resource.key:
            problems.append(
                f"{entry.place}: {_title(entry)}: is {name}, which {_title(other)} at {other.place} declares"
            )


def _report_selectors(placed: Sequence[_Placed], problems: list[str]) -> None:
    for entry in placed:
        if isinstance(entry.resource, Subscription) and entry.resource.spec.filter.selector is not None:
            compiled = compile_selector(entry.resource.spec.filter.selector)
            if isinstance(compiled, Refuse):
                problems.append(f"{entry.place}: {_title(entry)}: spec.filter.selector: {compiled.description}")


def _title(entry: _Placed) -> str:
    return f"{entry.resource.kind} {entry.resource.key}"
