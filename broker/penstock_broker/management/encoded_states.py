"""The rows of a reply that tells the states of subscriptions, encoded: what `encode` makes of their documents, at a
fraction of the processor time.

Thousands of subscriptions may change between two polls, and the broker has one thread. What a subscription was declared
with changes seldom, so its part of the row is kept; histograms are kept until they count another duration; small
numbers are looked up. Source: docs/reference/performance.md, "What a poll costs".
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from penstock_amqp.types.encoder import encode
from penstock_api import state_documents
from penstock_broker.management import entity_states
from penstock_broker.management.in_flight import InFlight
from penstock_broker.queue.totals import Histogram
from penstock_broker.topology.records import KeptEncoding, Subscription

__all__ = ["ATTRIBUTES", "encoded_declaration", "encoded_histogram", "encoded_state", "places_of"]

ATTRIBUTES: Final = [field.alias or name for name, field in state_documents.SubscriptionState.model_fields.items()]
"""All, in the order of a row."""
_COUNTERS: Final = ATTRIBUTES[ATTRIBUTES.index("depth") :]
"""Those before them change only by a declaration or a rebind."""
_LONG: Final = struct.Struct(">Bq").pack
_SMALL: Final = [encode(number) for number in range(128)]
_NULL: Final = encode(None)
_INDEXES, _COUNTS, _SUM = encode("indexes"), encode("counts"), encode("sumMs")
_EMPTY: Final = encode({"indexes": [], "counts": [], "sumMs": 0})


def encoded_state(subscription: Subscription, held: InFlight) -> bytes:
    """The attributes of `penstock_api.state_documents.SubscriptionState` in their order, as an encoded list."""
    counters = entity_states.counters(subscription.queue, held, encoded_histogram)
    return _list([_declared(subscription).data, *[_encoded(counters[name]) for name in _COUNTERS]], len(ATTRIBUTES))


def places_of(attributes: Sequence[str]) -> list[int]:
    """Where in a row these attributes are, which a declaration sets, for `encoded_declaration`."""
    return [ATTRIBUTES.index(each) for each in attributes]


def encoded_declaration(subscription: Subscription, places: Sequence[int]) -> bytes:
    """Some of the attributes that only a declaration changes, as an encoded list."""
    kept = _declared(subscription)
    data, begins = kept.data, kept.begins
    return _list([data[begins[each] : begins[each + 1]] for each in places], len(places))


def _list(parts: list[bytes], count: int) -> bytes:
    body = b"".join(parts)
    return b"\xd0" + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body


def _declared(subscription: Subscription) -> KeptEncoding:
    """What comes before the counters. It is made anew when one of the values is another one."""
    queue = subscription.queue
    made_of = (
        subscription.identity,
        subscription.exclusivity,
        subscription.lifetime,
        subscription.binding,
        queue.policy.dead_letter,
        subscription.owner,
        subscription.user,
        queue.incarnation,
        subscription.revision,
    )
    kept = subscription.encoding
    if kept is None or kept.made_of != made_of:
        parts = [encode(value) for value in entity_states.declared(subscription).values()]
        begins = array("I", accumulate(map(len, parts), initial=0))
        kept = subscription.encoding = KeptEncoding(made_of, b"".join(parts), begins)
    return kept


def _encoded(value: object) -> bytes:
    if type(value) is int:
        return _SMALL[value] if 0 <= value < 128 else _LONG(0x81, value)
    if value is None:
        return _NULL
    if type(value) is bytes:  # a histogram: no attribute is binary
        return value
    return encode(value)


def encoded_histogram(histogram: Histogram) -> bytes:
    """As `entity_states` makes a map of it. What it counts only grows, so an equal number is an equal histogram."""
    count = histogram.count
    if count == 0:
        return _EMPTY
    kept = histogram.told
    if kept is None or kept[0] != count:
        indexes, counts = zip(*histogram.buckets(), strict=True)
        pairs = (_INDEXES, _numbers(indexes), _COUNTS, _numbers(counts), _SUM, _encoded(histogram.sum_ms))
        body = b"".join(pairs)
        data = b"\xd1" + (len(body) + 4).to_bytes(4, "big") + len(pairs).to_bytes(4, "big") + body
        kept = histogram.told = (count, data)
    return kept[1]


def _numbers(numbers: tuple[int, ...]) -> bytes:
    body = b"".join([_SMALL[each] if 0 <= each < 128 else _LONG(0x81, each) for each in numbers])
    return b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(numbers).to_bytes(4, "big") + body
