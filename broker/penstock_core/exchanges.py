"""What may be declared as an exchange, and when one may go.

Source: sections 3 ("Addresses") and 5 of the design.
"""

from __future__ import annotations

from penstock_core.address import PREDEFINED, check_exchange_name
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import ExchangeType

__all__ = ["decide_exchange_declaration", "decide_exchange_deletion"]


def decide_exchange_declaration(name: str, asked: ExchangeType, there: ExchangeType | None) -> Refuse | None:
    """None if the exchange may be made, or kept as it is; ``there`` is the type of the one that exists."""
    if there is None:
        return check_exchange_name(name)
    if there is asked:
        return check_exchange_name(name)  # one with a reserved name is nobody's to declare
    return Refuse(
        Reason.IMMUTABLE,
        f"The exchange {name!r} is of type {there.value} and a type never changes; choose another name than for "
        f"{asked.value}, or delete the exchange first.",
    )


def decide_exchange_deletion(name: str, bound: int, *, if_unused: bool) -> Refuse | None:
    """None if the exchange may go; ``bound`` subscriptions are bound to it."""
    if name in PREDEFINED:
        return Refuse(Reason.NOT_ALLOWED, f"The exchange {name!r} is predefined and always there; leave it.")
    if bound and if_unused:
        return Refuse(
            Reason.BINDINGS_EXIST,
            f"{bound} subscription(s) are bound to the exchange {name!r}; end them or bind them elsewhere first.",
        )
    return None
