"""What each container got of a queue, as READ and QUERY return it: from counts that links have anyway.

Source: `penstock_api.state_documents.ConsumerTotal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock_amqp.types.values import Value
from penstock_broker.queue.consumer import ReceivingLink

__all__ = ["MAX_CONSUMERS", "consumer_totals"]

MAX_CONSUMERS: Final = 8
"""Containers that a document lists."""

MAX_CONTAINER: Final = 255
"""Characters of a container-id."""


def consumer_totals(consumers: Sequence[ReceivingLink]) -> list[Value]:
    """The containers with most deliveries, the one with most first."""
    found: dict[str, tuple[int, int, int]] = {}
    for each in consumers:
        connection = each.connection
        container, transfers, opened_us = connection.client.container_id, each.link.transfers, connection.opened_us
        links, delivered, since_us = found.get(container, (0, 0, opened_us))
        found[container] = links + 1, delivered + transfers, min(since_us, opened_us)
    most = sorted(found.items(), key=lambda item: -item[1][1])[:MAX_CONSUMERS]
    return [
        {"container": container[:MAX_CONTAINER], "links": links, "delivered": delivered, "sinceMs": since_us // 1000}
        for container, (links, delivered, since_us) in most
    ]
