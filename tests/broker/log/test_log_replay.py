"""What records add up to: sets, checkpoints, and what damage leaves open."""

from penstock_broker.log.format.records import (
    Ack,
    CheckpointBegin,
    CheckpointEnd,
    Closed,
    Count,
    Deleted,
    DeliveredUpTo,
    Document,
    Put,
    Record,
    RouteSet,
    Start,
)
from penstock_broker.log.recovery.live_messages import live_messages, lost_incarnations
from penstock_broker.log.recovery.replay import Replay

BOTH = RouteSet(1, (11, 12))
QUEUES = (Document("queue", "a", 11, b""), Document("queue", "b", 12, b""))


def replayed(*records: Record, segment: int = 1) -> Replay:
    replay = Replay()
    replay.apply(records, segment)
    return replay


def live(replay: Replay) -> dict[int, list[int]]:
    queues, _ = live_messages(replay, delivered_is_known=True)
    return {incarnation: [message.number for message in queue] for incarnation, queue in queues.items()}


def put(message: int, route_set: int = 1) -> Put:
    return Put(route_set, message, 0, b"", 0)


def test_a_message_lives_in_each_queue_until_that_queue_lets_go() -> None:
    replay = replayed(*QUEUES, BOTH, put(5), put(6), Ack(11, (5,), 0))
    assert live(replay) == {11: [6], 12: [5, 6]}
    replay.apply([Ack(12, (5,), 0)], 1)
    assert 5 not in replay.puts, "its payload is let go at once"


def test_repeated_puts_and_acks_change_nothing() -> None:
    replay = replayed(*QUEUES, BOTH, put(5), put(5), Ack(11, (5,), 0), Ack(11, (5,), 0))
    assert live(replay) == {11: [], 12: [5]}


def test_a_copy_counts_where_it_lies() -> None:
    replay = replayed(*QUEUES, BOTH, put(5))
    replay.apply([put(5)], 9)
    assert replay.puts[5].segment == 9


def test_acks_of_another_segment_name_the_puts_they_hold_down() -> None:
    replay = replayed(*QUEUES, BOTH, put(5))
    replay.apply([Ack(11, (5,), 0)], 3)
    assert replay.acks_into == {3: {1}}


def test_a_rebind_or_deletion_ends_the_incarnation() -> None:
    replay = replayed(*QUEUES, BOTH, put(5), Document("queue", "a", 13, b""), Deleted("queue", "b"))
    assert live(replay) == {13: []}
    assert replay.ended == {11, 12}


def test_a_complete_checkpoint_drops_what_it_leaves_out() -> None:
    replay = replayed(*QUEUES, CheckpointBegin(7), QUEUES[0], Document("x", "new", 0, b""), CheckpointEnd(7), segment=4)
    assert set(replay.documents) == {("queue", "a"), ("x", "new")}
    assert replay.checkpoint == 4


def test_an_incomplete_or_damaged_checkpoint_proves_nothing() -> None:
    assert len(replayed(*QUEUES, CheckpointBegin(7), QUEUES[0]).documents) == 2
    replay = replayed(*QUEUES, CheckpointBegin(7), QUEUES[0])
    replay.gap()
    replay.apply([CheckpointEnd(7)], 1)
    assert len(replay.documents) == 2 and replay.checkpoint == 0
    assert len(replayed(*QUEUES, CheckpointBegin(7), CheckpointEnd(8)).documents) == 2


def test_delivered_up_to_never_falls_and_counts_follow_the_last_record() -> None:
    replay = replayed(DeliveredUpTo(((11, 9),)), DeliveredUpTo(((11, 4),)), Count(((11, 5, 3),)), Count(((11, 5, 2),)))
    assert replay.delivered_up_to == {11: 9} and replay.counts == {(11, 5): 2}


def test_closed_counts_only_at_the_end() -> None:
    assert replayed(Closed()).closed
    assert not replayed(Closed(), Start(b"", 1, 1)).closed


def test_ceilings_are_the_highest_ever_written() -> None:
    replay = replayed(Start(b"a", 100, 50), Start(b"b", 90, 60))
    assert (replay.message_ceiling, replay.incarnation_ceiling, replay.boot_id) == (100, 60, b"b")


def test_messages_without_a_document_are_told_unless_their_queue_is_known_to_have_ended() -> None:
    replay = replayed(QUEUES[1], BOTH, put(5), put(6), Deleted("queue", "b"))
    _, without_document = live_messages(replay, delivered_is_known=True)
    assert without_document == {11: 2, 12: 2}
    assert lost_incarnations(without_document, replay) == {11: 2}


def test_queues_that_know_the_same_of_a_message_share_it() -> None:
    three = (*QUEUES, Document("queue", "c", 13, b""), RouteSet(2, (11, 12, 13)), RouteSet(3, (13,)))
    replay = replayed(*three, put(5, 2), put(6, 3), Count(((12, 5, 2),)))
    queues, _ = live_messages(replay, delivered_is_known=True)
    [first], [second], [third, alone] = queues[11], queues[12], queues[13]
    assert first is third and first.is_shared
    assert (second.deliveries, second.delivered, second.is_shared) == (2, True, True)
    assert (first.deliveries, first.delivered) == (0, False)
    assert not alone.is_shared


def test_queues_that_may_have_delivered_a_message_differ_from_those_that_have_not() -> None:
    replay = replayed(*QUEUES, BOTH, put(5), DeliveredUpTo(((12, 5),)))
    queues, _ = live_messages(replay, delivered_is_known=True)
    assert [queues[11][0].delivered, queues[12][0].delivered] == [False, True]


def test_a_message_dies_with_its_last_queue_also_if_it_reached_thousands() -> None:
    incarnations = tuple(range(100, 3100))
    replay = replayed(RouteSet(1, incarnations), put(5))
    replay.apply([Ack(each, (5, 5), 0) for each in incarnations[1:]], 2)
    assert list(replay.puts[5].waits_in) == [100]
    assert replay.is_live(100, 5) and not replay.is_live(3099, 5)
    replay.apply([Ack(99, (5,), 0)], 2)
    assert 5 in replay.puts, "that queue never had it"
    replay.apply([Ack(100, (5,), 0)], 2)
    assert not replay.puts
