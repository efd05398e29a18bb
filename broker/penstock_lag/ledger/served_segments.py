"""The segments of every observer. An observer that does not answer, or that belongs to another broker, counts as
absent, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from penstock_api.ledger_format import SegmentName
from penstock_api.observer_api import SEGMENTS, SegmentList
from penstock_api.validation_messages import validation_messages
from penstock_lag.ledger.windows import AbsentBroker, PresentBroker
from penstock_lag.observer_client import Observer, ObserverError

__all__ = ["list_segments", "parse_listing"]


def list_segments(observers: Sequence[Observer], broker: str, namespace: str) -> list[PresentBroker | AbsentBroker]:
    """One entry per observer, in their order, which is that of the ordinals."""
    return [_ask_one(ordinal, observer, broker, namespace) for ordinal, observer in enumerate(observers)]


def _ask_one(ordinal: int, observer: Observer, broker: str, namespace: str) -> PresentBroker | AbsentBroker:
    try:
        body = observer.get(SEGMENTS)
    except ObserverError as error:
        return AbsentBroker(ordinal, f"the observer did not answer: {error}")
    return parse_listing(body, ordinal, broker, namespace)


def parse_listing(body: bytes, ordinal: int, broker: str, namespace: str) -> PresentBroker | AbsentBroker:
    """The listing in a reply. It is not trusted: names become parts of URLs, so only names of segments are accepted."""
    try:
        listing = SegmentList.model_validate_json(body)
    except ValidationError as error:
        reason = validation_messages(error)[0]
        return AbsentBroker(ordinal, f"the observer's list of segments was not understood: {reason}")
    asked, answers = (namespace, broker, ordinal), (listing.namespace, listing.broker, listing.ordinal)
    if asked != answers:
        return AbsentBroker(
            ordinal, f"the observer belongs to {_name(*answers)}, not to {_name(*asked)}; check the order of --observer"
        )
    strange = [segment.name for segment in listing.segments if SegmentName.parse(segment.name) is None]
    if strange:
        return AbsentBroker(ordinal, f"the observer lists {strange[0]!r}, which is not the name of a segment")
    return PresentBroker(ordinal, listing)


def _name(namespace: str, broker: str, ordinal: int) -> str:
    return f"{namespace}/{broker}-{ordinal}"
