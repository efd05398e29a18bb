"""What a log means, written down as simply as possible: the oracle of the crash tests. Knows no bytes."""

from dataclasses import dataclass, field

DocumentKey = tuple[str, str]


@dataclass(frozen=True)
class NaiveMessage:
    number: int
    payload: bytes
    flags: int
    arrival: int
    is_volatile: bool = False
    """It ends with its epoch."""


@dataclass
class NaiveState:
    """Everything a reader must find again."""

    documents: dict[DocumentKey, tuple[int, bytes]] = field(default_factory=dict[DocumentKey, tuple[int, bytes]])
    queues: dict[int, dict[int, NaiveMessage]] = field(default_factory=dict[int, dict[int, NaiveMessage]])
    delivered_up_to: dict[int, int] = field(default_factory=dict[int, int])
    counts: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    remarks: dict[tuple[int, int], bytes] = field(default_factory=dict[tuple[int, int], bytes])

    def copy(self) -> "NaiveState":
        queues = {incarnation: dict(queue) for incarnation, queue in self.queues.items()}
        return NaiveState(
            dict(self.documents), queues, dict(self.delivered_up_to), dict(self.counts), dict(self.remarks)
        )

    def next_epoch(self) -> "NaiveState":
        """What of it a later start must find."""
        left = self.copy()
        left.queues = {
            incarnation: {number: each for number, each in queue.items() if not each.is_volatile}
            for incarnation, queue in self.queues.items()
        }
        return left

    def topology(self, key: DocumentKey, incarnation: int, payload: bytes) -> None:
        before = self.documents.get(key, (0, b""))[0]
        if before != incarnation:
            self.queues.pop(before, None)
        self.documents[key] = (incarnation, payload)
        if incarnation:
            self.queues.setdefault(incarnation, {})

    def delete(self, key: DocumentKey) -> None:
        incarnation, _ = self.documents.pop(key)
        self.queues.pop(incarnation, None)

    def put(self, incarnations: tuple[int, ...], message: NaiveMessage) -> None:
        for incarnation in incarnations:
            self.queues[incarnation][message.number] = message

    def ack(self, incarnation: int, message: int) -> None:
        del self.queues[incarnation][message]


@dataclass
class NaiveLog:
    """The state now, and the state after each block that was written."""

    now: NaiveState = field(default_factory=NaiveState)
    after: dict[int, NaiveState] = field(default_factory=dict[int, NaiveState])

    def written(self, sequence: int) -> None:
        self.after[sequence] = self.now.copy()

    def at(self, sequence: int) -> NaiveState:
        """The state that block `sequence` left behind; seals and checkpoints change nothing."""
        return self.after[max(known for known in self.after if known <= sequence)]
