"""The twelve rows of the attach table: what an attach asks for, by its capabilities and its durability.

Eight rows with a source, keyed (shared, global, durable); four with a null source, where durability is N/A, keyed
(shared, global). The order is the document's. This module must not know what exists already: ``attach`` decides that.

Two readings that the document leaves open: a not-shared volatile subscription has a random name, so its third row ("the
same as for GLOBAL=NO") is scoped to the container; and the name of a not-shared one is the whole link name.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from penstock_core.terms import Exclusivity

__all__ = [
    "NULL_SOURCE",
    "SHARED_SUBS",
    "TABLE",
    "AttachKey",
    "NameScope",
    "Naming",
    "NullSourceKey",
    "NullSourceRow",
    "Row",
]

SHARED_SUBS: Final = "SHARED-SUBS"
"""The capability that every topic link is offered; the page also spells it SHARED-SUB and SHARED_SUB, clients know this
one.
"""


class Naming(enum.Enum):
    """Where the subscription's name comes from."""

    RANDOM = "random"
    LINK = "link name"
    PREFIX = "link name up to `|`"


class NameScope(enum.Enum):
    """Which name space the subscription is in."""

    CONTAINER = "container-id"
    GLOBAL = "global"


class AttachKey(NamedTuple):
    """The three columns that choose a row with a source."""

    shared: bool
    global_: bool
    durable: bool


class NullSourceKey(NamedTuple):
    """The two columns that choose a row with a null source."""

    shared: bool
    global_: bool


class Row(NamedTuple):
    """The outcome of a row with a source."""

    naming: Naming
    scope: NameScope
    exclusivity: Exclusivity
    durable: bool
    capabilities: tuple[str, ...]
    """Source capabilities of the reply, in order."""


class NullSourceRow(NamedTuple):
    """The durable subscription that a row with a null source looks for."""

    naming: Naming
    scope: NameScope


# fmt: off
YES: Final = True
NO: Final = False
#   SHARED GLOBAL DURABLE
TABLE: Final[dict[AttachKey, Row]] = {
    AttachKey(NO,  NO,  NO):  Row(Naming.RANDOM, NameScope.CONTAINER, Exclusivity.LINK,   NO,  ("topic",)),
    AttachKey(NO,  NO,  YES): Row(Naming.LINK,   NameScope.CONTAINER, Exclusivity.LINK,   YES, ("topic",)),
    AttachKey(NO,  YES, NO):  Row(Naming.RANDOM, NameScope.CONTAINER, Exclusivity.LINK,   NO,  ("topic",)),
    AttachKey(NO,  YES, YES): Row(Naming.LINK,   NameScope.GLOBAL,    Exclusivity.LINK,   YES, ("topic", "global")),
    AttachKey(YES, NO,  NO):  Row(Naming.PREFIX, NameScope.CONTAINER, Exclusivity.SHARED, NO,  ("topic", "shared")),
    AttachKey(YES, NO,  YES): Row(Naming.PREFIX, NameScope.CONTAINER, Exclusivity.SHARED, YES, ("topic", "shared")),
    AttachKey(YES, YES, NO):  Row(Naming.PREFIX, NameScope.GLOBAL,    Exclusivity.SHARED, NO,  ("topic", "shared", "global")),  # noqa: E501
    AttachKey(YES, YES, YES): Row(Naming.PREFIX, NameScope.GLOBAL,    Exclusivity.SHARED, YES, ("topic", "shared", "global")),  # noqa: E501
}

#       SHARED GLOBAL
NULL_SOURCE: Final[dict[NullSourceKey, NullSourceRow]] = {
    NullSourceKey(NO,  NO):  NullSourceRow(Naming.LINK,   NameScope.CONTAINER),
    NullSourceKey(NO,  YES): NullSourceRow(Naming.LINK,   NameScope.GLOBAL),
    NullSourceKey(YES, NO):  NullSourceRow(Naming.PREFIX, NameScope.CONTAINER),
    NullSourceKey(YES, YES): NullSourceRow(Naming.PREFIX, NameScope.GLOBAL),
}
# fmt: on
