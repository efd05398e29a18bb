"""Asks the rules whether a connection may do something, by the grants that hold now, and remembers their answers.

Grants come from the settings and from a file that is read again when it changes; links that have lost their permission
are then closed (`attach.permission_review`). What a node or subscription was declared with comes with each question.
Connections of the management listener may do everything; a temporary node belongs to the connection that made it.
Source: docs/decisions/016-owner-user.md, docs/decisions/110-rights-given-by-resources.md; docs/reference/security.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from pydantic import ValidationError

from penstock_api.failure import Misuse
from penstock_api.settings.permissions import Grants, Permission
from penstock_api.validation_messages import validation_messages
from penstock_api.yaml_documents import NotYaml, yaml_document
from penstock_broker.access.connection import Connection
from penstock_broker.access.connection_client import ConnectionLogin
from penstock_broker.settings.settings import BrokerSettings, Role
from penstock_core.address import CreateNode
from penstock_core.identity import Identity
from penstock_core.permissions import EVERYTHING, Action, Allowed, Need, Permissions, Principal, TargetKind
from penstock_core.reason import Refuse
from penstock_core.terms import NodeKind

__all__ = ["Node", "PermissionCheck"]

logger = logging.getLogger(__name__)

_Stamp: TypeAlias = tuple[int, int, int] | None
MAX_REMEMBERED: Final = 256
"""Answers kept per connection."""


class Node(Protocol):
    """A queue or an exchange of the topology, as far as permissions know it."""

    @property
    def name(self) -> str:
        """The name that permissions use for it."""
        ...

    @property
    def permission_kind(self) -> TargetKind:
        """Its kind, as permissions know it."""
        ...

    @property
    def temporary(self) -> object:
        """None unless it is a temporary node."""
        ...

    def declared_users(self, action: Action) -> tuple[str, ...]:
        """Who may do it because the declaration says so."""
        ...


class PermissionCheck:
    """The grants of one broker."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Raises `Misuse` if the file of permissions can't be used."""
        self._path = settings.permissions_file
        self._given = settings.permissions
        self._groups = settings.authentication.groups
        self._stamp = _stamp(self._path)
        self._refused: tuple[_Stamp] | None = None
        """The stamp of a file that could not be used, which is told once."""
        self.permissions = self._load()
        self.version = 0
        """Grows with each change."""
        self.is_review_due = False
        """The links are about to be looked at again."""

    def reload(self) -> bool:
        """Read the file again if it changed; True if other grants hold now. One that can't be used changes nothing; one
        that can't even be read is read again at the next call.
        """
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return False
        try:
            permissions = self._load()
        except Misuse as error:
            if self._refused != (stamp,):
                logger.error("The permissions stay as they were: %s", error.cause)
            self._refused = (stamp,)
            if stamp is None or not isinstance(error.__cause__, OSError):
                self._stamp = stamp
            return False
        self._stamp, self._refused = stamp, None
        if permissions == self.permissions:
            return False
        self.permissions = permissions
        self.version += 1
        logger.info("%d permissions hold now", len(permissions.grants))
        return True

    def _load(self) -> Permissions:
        if self._path is None and self._given is None:
            return EVERYTHING
        given = (*(self._given or ()), *(_read(self._path) if self._path is not None else ()))
        # An empty list allows nothing, which is another thing than no list.
        return Permissions(tuple(permission.grant() for permission in given), is_open=False)

    def check(self, connection: Connection, action: Action, kind: TargetKind, name: str) -> Refuse | None:
        """None if the connection's user may do it."""
        return self.check_need(connection, Need(action, kind, name))

    def check_need(self, connection: Connection, need: Need) -> Refuse | None:
        """None if the connection's user may do what is needed."""
        if self.permissions.is_open or connection.listener.role is Role.MANAGEMENT:
            return None
        login = connection.login
        if login.granted_version != self.version or len(login.granted) > MAX_REMEMBERED:
            login.granted.clear()
            login.granted_version = self.version
        try:
            return login.granted[need]
        except KeyError:
            answer = self.permissions.decide(self._who(login), need.action, need.kind, need.name, need.declared_users)
        refused = login.granted[need] = None if isinstance(answer, Allowed) else answer
        return refused

    def check_all(self, connection: Connection, needs: Iterable[Need]) -> Refuse | None:
        """The first refusal, if any."""
        return next((no for each in needs if (no := self.check_need(connection, each))), None)

    def check_node(self, connection: Connection, action: Action, node: Node) -> Refuse | None:
        """None if the connection may publish to, or consume from, a node that exists."""
        if node.temporary is not None:
            return None
        need = Need(action, node.permission_kind, node.name, node.declared_users(action))
        return self.check_need(connection, need)

    def check_creation(self, connection: Connection, action: Action, wanted: CreateNode) -> Refuse | None:
        """None if the connection may make a node by naming it, and then do `action` to it."""
        kind = TargetKind.QUEUE if wanted.kind is NodeKind.QUEUE else TargetKind.EXCHANGE
        needs = (Need(Action.CREATE, kind, wanted.name), Need(action, kind, wanted.name))
        return self.check_all(connection, needs)

    def may_manage(self, connection: Connection, kind: TargetKind, name: str) -> bool:
        """True if a permission says so, or the connection came by the management listener."""
        if connection.listener.role is Role.MANAGEMENT:
            return True
        return self.permissions.allows(self._who(connection.login), Action.MANAGE, kind, name)

    def may_use_others(self, connection: Connection, *identities: Identity) -> bool:
        """Whether the connection may use and end these subscriptions, whichever user made them."""
        return all(self.may_manage(connection, TargetKind.SUBSCRIPTION, each.name) for each in identities)

    def _who(self, login: ConnectionLogin) -> Principal:
        own = {group for group, users in self._groups.items() if login.user in users}
        return Principal(login.user, login.groups | own)


def _stamp(path: Path | None) -> _Stamp:
    if path is None:
        return None
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _read(path: Path) -> tuple[Permission, ...]:
    cure = "Write `permissions:` with a list, as docs/reference/security.md shows."
    try:
        content = yaml_document(path.read_text(encoding="utf-8"))
        return Grants.model_validate({} if content is None else content).permissions
    except OSError as error:
        raise Misuse(f"The permissions {path} can't be read: {error.strerror}.", "Check the path.") from error
    except (NotYaml, UnicodeDecodeError) as error:
        raise Misuse(f"The permissions {path} are not valid YAML: {error}.", cure) from error
    except ValidationError as error:
        raise Misuse(
            f"The permissions {path} are wrong: {'; '.join(validation_messages(error, whole='the file'))}.", cure
        ) from error
