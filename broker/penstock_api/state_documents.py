"""The documents that tell how the entities of a broker stand: what READ and QUERY of ``$management`` answer.

Keys, units and what other releases may do are as in `penstock_api.management`. Source: docs/reference/management.md,
"States".
"""

from __future__ import annotations

from pydantic import Field

from penstock_api.management import (
    HeaderBindingDocument,
    ManagementDocument,
    Owner,
)


class DurationHistogram(ManagementDocument):
    """Cumulative log2 histogram of durations, 8 buckets per octave (Prometheus native histogram schema 3).

    Bucket i holds durations d in milliseconds with 2**(i/8) < d <= 2**((i+1)/8); durations of at most 1 ms are in
    bucket -1. Sparse: `counts[k]` belongs to bucket `indexes[k]`; both ascend by index. `sum_ms` is the sum of the
    durations.
    """

    indexes: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    sum_ms: int = 0


class RepeatedMessage(ManagementDocument):
    """An unsettled message whose delivery has failed at least twice."""

    id: str
    """The message-id property as text, its first 255 characters; `#<number>`, the number that the queue gave the
    message, if it has none. Characters that cannot be printed are replaced by U+FFFD, because the sender chose it.
    """
    delivery_count: int
    """Failed deliveries in this queue. Those of a durable message that the log holds outlive a restart."""
    available_ms: int
    """Since when it could be delivered."""
    state: str
    """Ready, InFlight or Scheduled, as the counts of the same names in `SubscriptionState`."""


class ConsumerTotal(ManagementDocument):
    """What one container got of a subscription, over its links that consume now."""

    container: str  # its first 255 characters
    links: int
    delivered: int
    """Deliveries that were sent since these links attached, repeated ones included. It falls if one of them goes."""
    since_ms: int
    """When the oldest of their connections was opened."""


class SubscriptionState(ManagementDocument):
    """Attributes of a `penstock.subscription` in READ and QUERY.

    depth = ready + in_flight + scheduled. A *life* is one (`instance_id`, `epoch`, `incarnation`); the first two are in
    `BrokerState`. Within a life no total falls, and at every moment of it

        depth = enqueued - acked - expired - dead_lettered - moved - purged - dropped

    so the same holds for the changes between two readings. All totals of a life begin at 0, with these exceptions:
    after a restart of the broker `enqueued` and `enqueued_bytes` count the messages that were recovered, as `recovered`
    and `recovered_bytes` do, and `max_delivery_count` is that of these; `lost_at_restart` goes on from the lives
    before. It is no part of the sum: what was lost at a restart is in no total of the new life, and in `enqueued` of
    the one before.

    Stranded messages stay in the depth, as `scheduled`, and are counted in `expired` or `dead_lettered` once their
    destination has taken them. A rebind that drops the backlog begins a new incarnation: what it drops is in no total.
    A subscription that ends takes its totals along.
    """

    queue_name: str
    subscription_name: str
    scope: str  # Global or Container; a later release may have more words here and in the other states
    client_id: str | None = None
    sharing: str  # Shared or Exclusive
    durable: bool
    expiry_policy: str  # as in SubscriptionDeclaration
    exchange: str
    binding_keys: tuple[str, ...]
    header_bindings: tuple[HeaderBindingDocument, ...] = ()
    selector: str | None = None
    no_local: bool = False
    dead_letter: str | None = None  # address of what was rejected, or failed too often
    owner: Owner | None = None
    user: str | None = None  # who made it, if a client did
    incarnation: int
    revision: int
    depth: int
    depth_bytes: int
    ready: int
    in_flight: int
    scheduled: int = 0  # wait for their delivery time; includes the stranded ones
    stranded: int = 0  # should go to a dead-letter or expiry destination, which does not accept them now
    oldest_available_ms: int | None = None  # when the oldest unsettled message became available
    oldest_hold_ms: int | None = None  # when the longest-held delivery was sent
    first_expires_ms: int | None = None  # when the ready message expires that is handed out first; never: absent
    last_expires_ms: int | None = None  # of the one that is handed out last; both absent with priorities or groups
    consumers: int
    credit: int  # of all consuming links together, whether they may get a message or not
    usable_consumers: int = 0  # links that could take the first ready message if they gave credit
    usable_credit: int = 0  # of the links that could take the first ready message now; 0 if none is ready
    containers: tuple[str, ...] = ()  # of the consuming links, at most 20
    consumer_totals: tuple[ConsumerTotal, ...] = ()  # of at most 8 containers, those with most deliveries first
    unused_since_ms: int | None = None  # set while no link consumes
    enqueued: int  # published, moved or redriven into it; after a restart also what was recovered
    enqueued_bytes: int
    recovered: int = 0  # of those enqueued: came back at the start of the broker, the same for the whole life
    recovered_bytes: int = 0
    delivered: int  # deliveries that were sent; a message may have several
    redelivered: int
    acked: int  # accepted, or sent as settled
    returned: int  # deliveries after which the message is back in the queue; it never left the depth
    expired: int = 0  # dropped, or taken by the expiry destination
    dead_lettered: int = 0  # taken by the dead-letter destination
    moved: int = 0  # to another queue, by MOVE or REDRIVE
    purged: int = 0  # by PURGE; an old release counts them as dropped
    dropped: int = 0  # by overflow, or rejected without a dead-letter destination
    lost_at_restart: int = 0  # not durable at an orderly stop, or of unreadable parts; unknown after a crash
    max_delivery_count: int = 0  # most failed deliveries that a message had, also one that has left
    sojourn: DurationHistogram = DurationHistogram()  # available -> accepted
    wait: DurationHistogram = DurationHistogram()  # available -> first delivery
    hold: DurationHistogram = DurationHistogram()  # last delivery -> settled
    repeated: tuple[RepeatedMessage, ...] = ()  # the worst unsettled ones, most failed deliveries first, at most 5

    @property
    def is_queue(self) -> bool:
        """It is no subscription, but a point-to-point queue that a resource has declared: it has no exchange."""
        return not self.exchange


class ExchangeState(ManagementDocument):
    """Attributes of a `penstock.exchange` in READ and QUERY."""

    name: str
    exchange_type: str  # as in ExchangeDeclaration
    durable: bool
    unroutable: str
    owner: Owner | None = None
    revision: int
    bound_subscriptions: int
    received: int
    received_bytes: int
    unroutable_messages: int
    unselected_messages: int = 0  # every selector refused them; a broker before 0.2 does not count them


class ContestedContainer(ManagementDocument):
    """A container-id whose connections keep closing each other, or stealing each other's links."""

    container_id: str  # at most 255 characters of it
    takeovers: int  # since the contest began
    last_ms: int


class LargeQueue(ManagementDocument):
    """A queue that is among the three largest, while the volume is more than 70 % full. Only queues that last count."""

    queue_name: str
    is_subscription: bool  # false: a point-to-point queue
    depth_bytes: int  # a body that several queues hold counts in each, though the volume holds it once
    consumers: int


class BrokerState(ManagementDocument):
    """Attributes of the one `penstock.broker`.

    `instance_id` is made with the data folder: another id than last time means an empty broker, so whoever declares
    topology declares it again at once.
    """

    instance_id: str
    epoch: int  # +1 at each start on this data folder
    version: str
    started_ms: int
    now_ms: int
    connections: int
    subscriptions: int
    client_subscriptions: int = 0  # permanent ones that clients made by attaching; also 0: an old release
    exchanges: int
    queues: int
    topology_revision: int | None = None  # grows with each change of a declaration; absent: an old release
    durable_work: str  # Ok, Full or Failed
    storage_level: str = "Ok"  # Ok, High (from 70 %), Critical (85 %), HeldBack (90 %, under 4 GiB left) or Full
    volume_bytes: int = 0  # size of the data folder's volume; 0: not known
    volume_used_bytes: int = 0  # of these, what messages can't have any more
    storage_refused: int = 0  # messages refused since `started_ms` because the volume was full
    memory_level: str = "Ok"  # Ok, HeldBack (from 70 %), Spilling (80 %) or Full (95 %)
    memory_bytes: int = 0  # what messages may take in memory; 0: an old release that does not say it
    memory_used_bytes: int = 0  # what they take
    memory_refused: int = 0  # messages refused since `started_ms` because memory was full
    largest_queues: tuple[LargeQueue, ...] = ()  # at most 3, the largest first; empty while the level is Ok
    log_bytes: int
    log_segments: int
    log_syncs: int
    turns: int
    contested_containers: tuple[ContestedContainer, ...] = ()  # the busiest first, at most 20
    open_transactions: int = 0  # declared and not discharged
    oldest_transaction_ms: int | None = None  # when the first work of the oldest of them came; absent: none has any
    transactions_committed: int = 0
    transactions_rolled_back: int = 0
    refusals: dict[str, int] = Field(
        default_factory=dict
    )  # connections refused before or at log-in since `started_ms`, by reason
    audits: tuple[str, ...] = ()  # queue names of the subscriptions of which READ_AUDIT may tell something
    understands: tuple[str, ...] | None = None  # penstock_api.release_terms; absent: an old release that lists none


class ConnectionState(ManagementDocument):
    """Attributes of a `penstock.connection`; `id` names it in UPDATE and DELETE (which closes it)."""

    id: str
    container_id: str
    user: str
    peer: str
    listener: str
    opened_ms: int
    links: int
    properties: dict[str, str] = Field(default_factory=dict)
    open_transactions: int = 0
    oldest_transaction_ms: int | None = None


class LinkState(ManagementDocument):
    """Attributes of a `penstock.link`."""

    id: str
    connection: str
    name: str
    role: str  # Sender or Receiver, as the client sees it
    address: str
    queue_name: str | None = None
    credit: int
    unsettled: int
    transfers: int
    selector: str | None = None  # of a receiver on a queue; a subscription has its own
    priority: int = 0  # a consumer's priority among those of its queue
