"""The twelve rows of seed 000: what an attach asks for, by its capabilities and its durability.

Eight rows with a source, keyed (shared, global, durable); four with a null source, where durability is N/A, keyed
(shared, global). The order is the document's. This module must not know what exists already: ``attach`` decides that.

Two readings that the document leaves open: a not-shared volatile subscription has a random name, so its third row ("the
same as for GLOBAL=NO") is scoped to the container; and the name of a not-shared one is the whole link name.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from penstock_core.terms import Exclusivity

__all__ = ["NULL_SOURCE", "SHARED_SUBS", "TABLE", "Key", "Lookup", "Naming", "NullKey", "Row", "Space"]

SHARED_SUBS: Final = "SHARED-SUBS"
"""The capability that every topic link is offered; the page also spells it SHARED-SUB and SHARED_SUB, clients know this
one.
"""


class Naming(enum.Enum):
    """Where the subscription's name comes from."""

    RANDOM = "random"
    LINK = "link name"
    PREFIX = "link name up to `|`"


class Space(enum.Enum):
    """Which name space the subscription is in."""

    CONTAINER = "container-id"
    GLOBAL = "global"


class Key(NamedTuple):
    """The three columns that choose a row with a source."""

    shared: bool
    global_: bool
    durable: bool


class NullKey(NamedTuple):
    """The two columns that choose a row with a null source."""

    shared: bool
    global_: bool


class Row(NamedTuple):
    """The outcome of a row with a source."""

    naming: Naming
    scope: Space
    exclusivity: Exclusivity
    durable: bool
    capabilities: tuple[str, ...]
    """Source capabilities of the reply, in order."""


class Lookup(NamedTuple):
    """The durable subscription that a row with a null source looks for."""

    naming: Naming
    scope: Space


# fmt: off
YES: Final = True
NO: Final = False
#   SHARED GLOBAL DURABLE
TABLE: Final[dict[Key, Row]] = {
    Key(NO,  NO,  NO):  Row(Naming.RANDOM, Space.CONTAINER, Exclusivity.LINK,   NO,  ("topic",)),
    Key(NO,  NO,  YES): Row(Naming.LINK,   Space.CONTAINER, Exclusivity.LINK,   YES, ("topic",)),
    Key(NO,  YES, NO):  Row(Naming.RANDOM, Space.CONTAINER, Exclusivity.LINK,   NO,  ("topic",)),
    Key(NO,  YES, YES): Row(Naming.LINK,   Space.GLOBAL,    Exclusivity.LINK,   YES, ("topic", "global")),
    Key(YES, NO,  NO):  Row(Naming.PREFIX, Space.CONTAINER, Exclusivity.SHARED, NO,  ("topic", "shared")),
    Key(YES, NO,  YES): Row(Naming.PREFIX, Space.CONTAINER, Exclusivity.SHARED, YES, ("topic", "shared")),
    Key(YES, YES, NO):  Row(Naming.PREFIX, Space.GLOBAL,    Exclusivity.SHARED, NO,  ("topic", "shared", "global")),
    Key(YES, YES, YES): Row(Naming.PREFIX, Space.GLOBAL,    Exclusivity.SHARED, YES, ("topic", "shared", "global")),
}

#       SHARED GLOBAL
NULL_SOURCE: Final[dict[NullKey, Lookup]] = {
    NullKey(NO,  NO):  Lookup(Naming.LINK,   Space.CONTAINER),
    NullKey(NO,  YES): Lookup(Naming.LINK,   Space.GLOBAL),
    NullKey(YES, NO):  Lookup(Naming.PREFIX, Space.CONTAINER),
    NullKey(YES, YES): Lookup(Naming.PREFIX, Space.GLOBAL),
}
# fmt: on
