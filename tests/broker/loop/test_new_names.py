"""A client with new names comes each second, for weeks: of one that has gone, nothing stays but what is bounded.

Names of containers, links, subscriptions, nodes, addresses, routing keys, selectors, properties, groups. The collector
of cycles is off, as it is for all but young objects while a broker serves (`loop.garbage`).
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import cast

from support.garbage import without_collection
from support.raw_client import RawClient, symbols
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.performatives import Detach, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, Properties, encode_message
from penstock_amqp.types.values import Described, Symbol, ULong, Value
from penstock_api.management import QueueLimits

SHARED = symbols("topic", "shared", "global")
TOPIC, QUEUE, TEMPORARY = symbols("topic"), symbols("queue"), symbols("temporary-queue")
WARM_UP, ROUNDS = 15, 40
FEW = 10
"""Entries and objects that may be there at one time and not at the other."""

BOUNDED = {
    "Removals._revisions": "2,500 names",
    "StateChanges._ended": "10,000 names",
    "SegmentRoutes.numbers": "of one segment",
    "Segment.definitions": "of one segment",
    "_Stretch.offsets": "one for 16 KiB of a segment",
    "_Stretch.firsts": "one for 16 KiB of a segment",
    "penstock_core.selector.compiled.Selector": "a million characters of text",
}
"""What grows up to a bound, and to which."""


def selects(number: int) -> dict[Symbol, Value]:
    return {
        Symbol("s"): Described(ULong(0x468C_0000_0004), f"property{number} = 'x'"),
        Symbol("k"): Described(ULong(0x468C_0000_0001), [f"key{number}.*", f"key{number}.#"]),
    }


def one_client(stepped: SteppedBroker, number: int) -> None:
    client = RawClient(0, f"container{number}", stream=SteppedStream(stepped))
    client.begin()
    lasting = Source(
        address="amq.topic", durable=1, expiry_policy=Symbol("never"), capabilities=SHARED, filter=selects(number)
    )
    client.attach_receiver(f"lasting{number}|1", lasting, handle=100)
    client.attach_receiver(f"passing{number}", Source(address="amq.topic", capabilities=TOPIC, filter=selects(number)))
    match: dict[Value, Value] = {"x-match": "all", f"header{number}": f"value{number}"}
    header = {Symbol("h"): Described(ULong(0x468C_0000_0002), match)}
    client.attach_receiver(f"headers{number}", Source(address="amq.match", capabilities=TOPIC, filter=header))
    client.attach_receiver(f"direct{number}", Source(address=f"amq.direct/key{number}", capabilities=TOPIC))
    made = client.attach_receiver(f"dynamic{number}", Source(dynamic=True, capabilities=TEMPORARY)).source
    assert made is not None
    client.attach_receiver(f"topic{number}", Source(dynamic=True, capabilities=symbols("temporary-topic")))
    client.attach_receiver(f"nowhere{number}", Source(address=f"nowhere{number}"))
    client.expect(Detach)
    client.attach_receiver(f"selects{number}", Source(address="q", capabilities=QUEUE, filter=selects(number)))
    copy = Source(address="q", distribution_mode=Symbol("copy"), capabilities=QUEUE)
    client.attach_receiver(f"browses{number}", copy)
    targets = (f"amq.topic/key{number}.a", "amq.match", "amq.direct", "amq.topic", None, "q")
    for place, address in enumerate(targets):
        client.attach_sender(f"sends{number} to {address}", Target(address=address))
        properties = Properties(
            message_id=f"id{number}",
            to=made.address,
            subject=f"key{number}",
            group_id=f"group{number}",
            reply_to=made.address,
        )
        texts: dict[str, Value] = {f"property{number}": "x", f"header{number}": f"value{number}"}
        client.send(
            Transfer(handle=client.last_handle, delivery_id=place, delivery_tag=bytes((place,)), settled=True),
            payload=encode_message(Message(properties=properties, application_properties=texts, body="x")),
        )
    client.send(Detach(handle=100, closed=True))
    client.expect(Detach)
    if number % 2:
        client.close()
    client.socket.close()
    for _ in range(4):
        stepped.turn()
    stepped.pass_ms(1000)


def entries_of(root: object) -> Counter[str]:
    """What the fields of the broker's objects hold that have a length, by class and field."""
    found: Counter[str] = Counter()
    seen, waiting = {id(root)}, [root]
    while waiting:
        each = waiting.pop()
        values: list[object] = []
        if isinstance(each, dict):
            pairs = cast(Mapping[object, object], each)
            values += [*pairs.keys(), *pairs.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            values += cast(Iterable[object], each)
        elif type(each).__module__.startswith("penstock"):
            for name, value in fields_of(each):
                values.append(value)
                if isinstance(value, Sized) and not isinstance(value, str | bytes | type):
                    found[f"{type(each).__qualname__}.{name}"] += len(value)
        new = [value for value in values if id(value) not in seen]
        seen.update(map(id, new))
        waiting += new
    return found


def fields_of(each: object) -> Iterator[tuple[str, object]]:
    slots = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
    for name in (*slots, *getattr(each, "__dict__", ())):
        value = getattr(each, name, None)
        if value is not None:
            yield name, value


def objects() -> Counter[str]:
    """The broker's objects by class."""
    kinds = [type(cast(object, each)) for each in gc.get_objects()]
    ours = [kind for kind in kinds if str(kind.__module__).startswith("penstock")]
    return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in ours)


def test_a_client_with_new_names_leaves_nothing_behind() -> None:
    stepped = SteppedBroker(segment_bytes=1 << 20)
    stepped.make_queue("q", limits=QueueLimits(max_messages=5, overflow="DropOldest"))
    stepped.loop.time_outs.sweep()
    with without_collection():
        for number in range(WARM_UP):
            one_client(stepped, number)
        before = objects() + entries_of(stepped.loop)
        for number in range(WARM_UP, WARM_UP + ROUNDS):
            one_client(stepped, number)
        after = objects() + entries_of(stepped.loop)
    stepped.close()
    grown = {name: (before[name], count) for name, count in after.items() if count - before[name] > FEW}
    assert {name: sizes for name, sizes in grown.items() if name not in BOUNDED} == {}
    assert "Removals._revisions" in grown, "the names were new, and their fields were looked at"
