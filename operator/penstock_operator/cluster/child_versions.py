"""Which version of each child is the one that the operator applied: what is in force need not be read or applied again.

Of each child two things are kept, and no object: a digest of the manifest that the operator applied, and of what the
API server made of it, which includes the server's defaults. So no form in which the server writes a value can look like
somebody else's change. Lists and watches show the versions of StatefulSets, Services and ConfigMaps. If one is not the
version that was applied, its owner is to look at it. The operator may not list other kinds, in particular Secrets;
these are read again after a while. Synchronous. Source: docs/decisions/099-unchanged-costs-nothing.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, cast

from penstock_operator import names
from penstock_operator.cluster.cache import KIND_NAMES, ResourceKey
from penstock_operator.manifest import Manifest, dig, items_of, text_at

__all__ = ["LISTED", "ChildVersions"]

LISTED: Final = ("StatefulSet", "Service", "ConfigMap")
"""The kinds of children that the operator may list and watch."""

UNLISTED_SECONDS: Final = 3600.0
"""After between half of this and one and a half, a child of another kind is read again. The name decides when, so that
thousands that were applied at the same time are not read at the same time.
"""

_NOT_CONTENT: Final = frozenset({"resourceVersion", "managedFields", "generation"})


class _Name(NamedTuple):
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class _Applied:
    owner: ResourceKey
    wanted: str
    """Digest of the manifest that was applied."""
    content: str
    """Digest of the object as the API server has kept it."""
    version: str
    """Its resourceVersion then."""
    at: float
    """When it was applied, or was last seen to be the same."""


@dataclass(slots=True)
class ChildVersions:
    """The versions of all children, as seen and as applied."""

    _seen: dict[_Name, tuple[str, ResourceKey]] = field(default_factory=dict[_Name, tuple[str, ResourceKey]])
    """The newest version that was shown of each, and its owner."""
    _applied: dict[_Name, _Applied] = field(default_factory=dict[_Name, _Applied])
    _of: dict[ResourceKey, set[_Name]] = field(default_factory=dict[ResourceKey, set[_Name]])
    _changed: set[ResourceKey] = field(default_factory=set[ResourceKey])
    """Brokers that were told of a change, and have not read their children since."""
    _kept: dict[_Name, str] = field(default_factory=dict[_Name, str])
    """Why the API server did not let the operator delete a child that is not wanted any more."""

    def see(self, manifest: Manifest) -> ResourceKey | None:
        """A list or a watch shows this child: the owner that is to look at it, None if it is known."""
        owner, name = self._owner(manifest), _name(manifest)
        if owner is None:
            return None
        version, before = _version(manifest), self._seen.get(name)
        if before is not None and before == (version, owner):
            return None
        self._seen[name] = version, owner
        applied = self._applied.get(name)
        return None if applied is not None and applied.version == version else self._told(owner)

    def see_gone(self, manifest: Manifest) -> ResourceKey | None:
        """A watch shows that this child was deleted: the owner that is to look."""
        self._seen.pop(_name(manifest), None)
        owner = self._owner(manifest)
        return None if owner is None else self._told(owner)

    def end_list(self, kind: str, namespace: str | None, listed: Iterable[Manifest]) -> set[ResourceKey]:
        """All children of a kind in a namespace (None: all): the owners of those that are not there any more."""
        there = {_name(manifest) for manifest in listed}
        gone = [
            name
            for name in self._seen
            if name.kind == kind and namespace in (None, name.namespace) and name not in there
        ]
        return {self._told(self._seen.pop(name)[1]) for name in gone}

    def _owner(self, manifest: Manifest) -> ResourceKey | None:
        """Whom a child concerns. If somebody has taken its owner away, the one for which the operator has applied it:
        the label names the Broker, also on the Service of an Exchange.
        """
        applied = self._applied.get(_name(manifest))
        return _controller(manifest) or (_broker(manifest) if applied is None else applied.owner)

    def has_changed(self, broker: ResourceKey) -> bool:
        """Whether a Broker has not read its children since it was told of a change."""
        return broker in self._changed

    def begin_read(self, broker: ResourceKey) -> None:
        """A Broker reads its children from now on; what changes after this is told again."""
        self._changed.discard(broker)

    def _told(self, owner: ResourceKey) -> ResourceKey:
        if owner.kind == "Broker":
            self._changed.add(owner)
        return owner

    def note_applied(self, wanted: Manifest, result: Manifest, now: float) -> None:
        """The operator has applied `wanted`, and the API server has made `result` of it. `now` in seconds."""
        owner, name = _owner(wanted), _name(wanted)
        if owner is None:
            return
        self._applied[name] = _Applied(owner, _digest(wanted), _digest(_content(result)), _version(result), now)
        self._seen[name] = _version(result), owner
        self._of.setdefault(owner, set()).add(name)

    def is_in_force(self, wanted: Manifest, now: float) -> bool:
        """Whether the newest version that was seen is that which the operator applied for just this manifest."""
        name = _name(wanted)
        applied, seen = self._applied.get(name), self._seen.get(name)
        if applied is None or seen is None or applied.wanted != _digest(wanted):
            return False
        if name.kind not in LISTED:
            # A clock that was set back tells nothing.
            return 0 <= now - applied.at < UNLISTED_SECONDS * (0.5 + int(applied.wanted[:4], 16) / 0x10000)
        return seen[0] == applied.version

    def is_known(self, wanted: Manifest) -> bool:
        """Whether the operator has applied this child since it started, for this manifest or another."""
        return _name(wanted) in self._applied

    def confirm(self, wanted: Manifest, observed: Manifest, now: float) -> bool:
        """Whether the object is as it was after the operator applied just this manifest; its status does not count."""
        name = _name(wanted)
        applied, owner = self._applied.get(name), _owner(wanted)
        if applied is None or owner is None or applied.wanted != _digest(wanted):
            return False
        if applied.content != _digest(_content(observed)):
            return False
        self._applied[name] = replace(applied, version=_version(observed), at=now)
        self._seen[name] = _version(observed), owner
        return True

    def note_kept(self, unwanted: Manifest, why: str) -> bool:
        """A child that is not wanted stays, because the API server refuses to delete it: whether that is news."""
        owner, name = _owner(unwanted), _name(unwanted)
        if owner is None or self._kept.get(name) == why:
            return False
        self._kept[name] = why
        self._of.setdefault(owner, set()).add(name)
        return True

    def note_deleted(self, unwanted: Manifest) -> None:
        """A child that was not wanted any more is deleted."""
        self._kept.pop(_name(unwanted), None)

    def forget(self, owner: ResourceKey) -> None:
        """The owner does not exist any more."""
        self._changed.discard(owner)
        for name in self._of.pop(owner, ()):
            self._applied.pop(name, None)
            self._kept.pop(name, None)
            if name.kind not in LISTED:  # The others go when a list or a watch shows it.
                self._seen.pop(name, None)


def _name(manifest: Manifest) -> _Name:
    about = ("namespace", "name")
    namespace, name = (text_at(manifest, "metadata", each) or "" for each in about)
    return _Name(str(manifest["kind"]), namespace, name)


def _version(manifest: Manifest) -> str:
    return text_at(manifest, "metadata", "resourceVersion") or ""


def _owner(manifest: Manifest) -> ResourceKey | None:
    """The resource that the child belongs to: its controller, or else the Broker of its label."""
    return _controller(manifest) or _broker(manifest)


def _controller(manifest: Manifest) -> ResourceKey | None:
    namespace = text_at(manifest, "metadata", "namespace") or ""
    for owner in items_of(manifest, "metadata", "ownerReferences"):
        kind = text_at(owner, "kind")
        if owner.get("controller") is True and kind in KIND_NAMES:
            return ResourceKey(kind, namespace, text_at(owner, "name") or "")
    return None


def _broker(manifest: Manifest) -> ResourceKey | None:
    namespace = text_at(manifest, "metadata", "namespace") or ""
    broker = text_at(manifest, "metadata", "labels", names.BROKER_LABEL)
    home = text_at(manifest, "metadata", "labels", names.BROKER_NAMESPACE_LABEL) or namespace
    return None if broker is None else ResourceKey("Broker", home, broker)


def _content(manifest: Manifest) -> Manifest:
    about = cast(Mapping[str, object], dig(manifest, "metadata") or {})
    kept = {key: value for key, value in about.items() if key not in _NOT_CONTENT}
    return {**{key: value for key, value in manifest.items() if key != "status"}, "metadata": kept}


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
