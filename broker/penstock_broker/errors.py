"""Makes AMQP errors of the refusals of `penstock_core`."""

from __future__ import annotations

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.types.values import Symbol, Value
from penstock_core.reason import Refuse

__all__ = ["amqp_error"]

_INVALID_FIELD = "invalid-field"


def amqp_error(refuse: Refuse) -> AmqpError:
    """The AMQP error of a refusal: condition, description, and the reason in its info map.

    The name of an invalid field is a symbol: Qpid JMS turns ``invalid-field: container-id`` into
    InvalidClientIDException, and compares by type.
    """
    info: dict[str, Value] = dict(refuse.error_info())
    if _INVALID_FIELD in info:
        info[_INVALID_FIELD] = Symbol(info[_INVALID_FIELD])
    return AmqpError(refuse.condition.value, refuse.description, info)
