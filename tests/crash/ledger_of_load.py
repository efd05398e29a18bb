"""What the clients themselves know: which messages were accepted, which came, how often; and what must never be seen.

No sockets.
"""

from collections.abc import Sequence
from struct import Struct

from penstock_amqp.types.decoder import decode

BODY = Struct(">IQ")  # producer, sequence
_HEADER = b"\x00\x53\x70"


def delivery_count(message: bytes) -> int:
    """The header's delivery-count; 0 if there is none."""
    if not message.startswith(_HEADER):
        return 0
    fields, _ = decode(message, 3)
    assert isinstance(fields, list)
    count = fields[4] if len(fields) > 4 else 0
    return count if isinstance(count, int) else 0


def identity(message: bytes) -> tuple[int, int]:
    """Producer and sequence, which end the body."""
    producer, sequence = BODY.unpack_from(message, len(message) - BODY.size)
    return int(producer), int(sequence)


class Producer:
    """One producer's record. Sequences count from 0 and are never sent twice."""

    def __init__(self) -> None:
        self.sent = 0
        self.accepted = bytearray()
        self.accepted_up_to = 0  # every sequence below is accepted or was lost with a connection
        self.accepts = 0

    def send(self, count: int) -> range:
        first, self.sent = self.sent, self.sent + count
        self.accepted.extend(bytes(count))
        return range(first, self.sent)

    def accept(self, sequences: Sequence[int]) -> None:
        for sequence in sequences:
            self.accepted[sequence] = 1
        self.accepts += len(sequences)
        self.accepted_up_to = max(self.accepted_up_to, sequences[-1] + 1)


class Ledger:
    """All producers, the subscriptions that must get everything, and the violations found."""

    def __init__(self, producers: int, subscriptions: Sequence[str]) -> None:
        self.producers = [Producer() for _ in range(producers)]
        self.seen: dict[str, list[bytearray]] = {
            name: [bytearray() for _ in range(producers)] for name in subscriptions
        }
        self.left: dict[str, set[tuple[int, int]]] = {name: set() for name in subscriptions}
        """Messages, by producer and sequence, that came and were not settled: if they were accepted, they have to come
        again. Others may have been delivered before they were synced, so a power cut may take them."""
        self.receipts = 0
        self.repeated = 0
        self.violations: list[str] = []

    @property
    def accepts(self) -> int:
        return sum(producer.accepts for producer in self.producers)

    def received(self, subscription: str, message: bytes, *, one_in: int = 0) -> bool:
        """A message of one of the subscriptions came; whether to settle it. `one_in`: one of so many is left."""
        producer, sequence = identity(message)
        seen = self.seen[subscription][producer]
        self.receipts += 1
        if len(seen) <= sequence:
            seen.extend(bytes(self.producers[producer].sent - len(seen)))
        if seen[sequence]:
            self.repeated += 1
            if not delivery_count(message):
                self.violate(f"{subscription}: message {producer}/{sequence} came again with delivery-count 0")
        seen[sequence] = 1
        if one_in and not sequence % one_in:
            self.left[subscription].add((producer, sequence))
            return False
        self.left[subscription].discard((producer, sequence))
        return True

    def violate(self, what: str) -> None:
        if len(self.violations) < 20:
            self.violations.append(what)

    def lacking(self) -> dict[str, int]:
        """Per subscription, how many accepted messages have not come, or not again if they had been left."""
        return {name: sum(self._lacking_of(seen)) + self._not_again(name) for name, seen in self.seen.items()}

    def _not_again(self, subscription: str) -> int:
        left = self.left[subscription]
        return sum(self.producers[producer].accepted[sequence] for producer, sequence in left)

    @property
    def outstanding(self) -> int:
        """How many accepted messages have not come yet, counted per subscription."""
        return sum(sum(self._lacking_of(seen)) for seen in self.seen.values())

    def _lacking_of(self, seen: Sequence[bytearray]) -> list[int]:
        counts: list[int] = []
        for producer, came in zip(self.producers, seen, strict=True):
            accepted = int.from_bytes(producer.accepted, "little")
            arrived = int.from_bytes(came, "little")
            counts.append((accepted & ~arrived).bit_count())
        return counts
