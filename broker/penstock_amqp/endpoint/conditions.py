"""What is wrong, as AMQP says it to a peer. Source: AMQP 1.0 part 2, 2.8.14."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock_amqp.types.values import Value

__all__ = ["AmqpError"]


@dataclass(frozen=True, slots=True)
class AmqpError:
    """An error of AMQP part 2, 2.8.14."""

    condition: str
    description: str = ""
    info: dict[str, Value] = field(default_factory=dict[str, Value])
