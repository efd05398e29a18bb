"""Refusals of the rules as AMQP errors."""

from __future__ import annotations

from penstock_amqp.endpoint_events import AmqpError
from penstock_core.reason import Refuse

__all__ = ["amqp_error"]


def amqp_error(refuse: Refuse) -> AmqpError:
    """The error to send: condition, description, and the reason in its info map."""
    return AmqpError(refuse.condition.value, refuse.description, dict(refuse.error_info()))
