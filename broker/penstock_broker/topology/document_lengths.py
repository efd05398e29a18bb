"""Whether the log can hold the document of an exchange, a subscription or a queue, asked before anything is changed.

A document is one record of the log, of half a segment at most. Where segments are small, a subscription with hundreds
of binding keys may be longer. Source: docs/reference/log-format.md; docs/decisions/010-refusals-change-nothing.md.
"""

from __future__ import annotations

from typing import Final

from penstock_broker.log import Log, document_bytes
from penstock_broker.topology import documents
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription
from penstock_core.reason import Reason, Refuse

__all__ = ["GROWTH_BYTES", "check_document"]

GROWTH_BYTES: Final = 64
"""By so much a document may grow later: two numbers, since when it is unused and what was lost at a restart."""


def check_document(log: Log, record: Exchange | Subscription | PointToPointQueue) -> Refuse | None:
    """None if the log can hold the document of the record, as it is and as it may become without another request."""
    match record:
        case Exchange(name=name):
            kind, told = documents.EXCHANGE, f"exchange {name!r}"
        case Subscription(name=name):
            kind, told = documents.SUBSCRIPTION, f"{record.identity}"
        case PointToPointQueue(name=name):
            kind, told = documents.QUEUE, f"queue {name!r}"
    length = document_bytes(kind, name, documents.dump(record)) + GROWTH_BYTES
    if length <= log.longest_document:
        return None
    return Refuse(
        Reason.LIMIT_EXCEEDED,
        f"What the log has to keep of the {told[:200]} takes {length} bytes, and {log.longest_document} is the most, "
        "half a segment: use fewer or shorter names, binding keys and users, a shorter selector, or ask those who run "
        "this broker to raise log.segmentBytes.",
    )
