"""Bodies in parts: where they lie, how they are read, what keeps their segments and what lets them go."""

import errno
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.log.log_steps import SMALL, a_queue, opened, settle
from broker.log.simulated_files import SimulatedFiles
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log import CommitPut, EndReason, LargePayload, Log, NoRoom


def move_on(log: Log) -> None:
    """Leave the segments written so far behind: fill one more with what nobody needs."""
    incarnation, route = a_queue(log, "filler")
    for _ in range(6):
        log.ack(incarnation, log.put(route, bytes(1800), 0))
        log.write()
        log.ack(incarnation, log.put(route, bytes(1800), 0))
        log.write()
    settle(log)


def pattern(size: int) -> bytes:
    """Bytes of which no two stretches are the same."""
    return b"".join(index.to_bytes(4, "big") for index in range(-(-size // 4)))[:size]


def test_a_body_larger_than_many_segments_reads_as_it_was_sent(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    text = pattern(100_000)
    body = log.stage()
    for start in range(0, len(text), 7001):
        log.append(body, text[start : start + 7001])
    payload = log.payload_of(body, b"head", 10)
    assert isinstance(payload, LargePayload)
    assert len(payload) == 4 + len(text) - 10
    number = log.put(route, payload, 5, 9)
    log.close()
    log, recovered = opened(tmp_path, files)
    [message] = recovered.messages[incarnation]
    assert (message.number, message.arrival, message.flags) == (number, 5, 9)
    assert isinstance(message.payload, LargePayload) and message.payload.head == b"head"
    assert message.payload.read(0, 1 << 20) == b"head" + text[10:]
    assert message.payload.read(3, 3) == b"d" + text[10:12]
    assert message.payload.read(50_000, 20) == text[50_006:50_026]
    assert message.payload.read(len(payload) - 2, 10) == text[-2:]
    log.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_flipped_bit_in_a_part_is_seen_before_its_bytes_are_given_out(tmp_path: Path, restarted: bool) -> None:
    """Parts of other blocks can still be read. After a restart the first 64 KiB are in memory."""
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    text = pattern(100_000)
    body = log.stage()
    log.append(body, text)
    payload = log.payload_of(body, b"", 0)
    log.put(route, payload, 0)
    log.write()
    log.sync()
    if restarted:
        log.close()
        log, recovered = opened(tmp_path, files)
        payload = recovered.messages[incarnation][0].payload
    assert isinstance(payload, LargePayload)
    path = next(path for path in files.paths() if text[80_000:80_010] in files.content(path))
    content = files.content(path)
    flipped = content.index(text[80_000:80_010])
    content[flipped] ^= 1
    with pytest.raises(OSError, match=r"segment-[0-9a-f]{16}\.log, byte \d+: no sound block") as raised:
        payload.read(80_000, 10)
    assert raised.value.errno == errno.EBADMSG
    assert payload.read(0, 1000) == text[:1000]
    content[flipped] ^= 1
    assert payload.read(80_000, 10) == text[80_000:80_010]
    files.unreadable[path] = (4096, 16384)
    with pytest.raises(OSError, match="the disk can't read this") as unreadable:
        payload.read(82_000, 10)  # in a block that was not read yet
    assert unreadable.value.errno == errno.EIO, "it may be read later, so this is not taken for damage"
    log.close()


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LargePayload, bytes]]:
    """A payload in many parts over two segments, and what it is as a whole."""
    log, _ = opened(tmp_path_factory.mktemp("log"), SimulatedFiles())
    body, text = log.stage(), pattern(14_000)
    for start in range(0, len(text), 900):
        log.append(body, text[start : start + 900])
        log.payload_of(body, b"", 0)  # writes what waits
    payload = log.payload_of(body, b"head", 100)
    assert isinstance(payload, LargePayload)
    yield payload, b"head" + text[100:]
    log.close()


@given(offset=st.integers(0, 15_000), length=st.integers(0, 15_000))
def test_any_slice_is_the_slice(sliced: tuple[LargePayload, bytes], offset: int, length: int) -> None:
    payload, whole = sliced
    assert payload.read(offset, length) == whole[offset : offset + length]


def test_as_bytes_it_is_its_head_and_another_head_keeps_the_rest(sliced: tuple[LargePayload, bytes]) -> None:
    payload, whole = sliced
    assert payload[1:] == b"ead" and payload.startswith(b"he") and bytes(payload[:]) == b"head"
    other = payload.with_head(b"longer head")
    assert len(other) == len(payload) + 7
    assert other.read(0, 1 << 20) == b"longer head" + whole[4:]


def test_recovery_tells_of_each_body_that_it_fetches(tmp_path: Path) -> None:
    """Each is a read of the disk, and there may be very many of them."""
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    _, route = a_queue(log)
    for _ in range(30):
        log.put(route, staged(log, 9_000), 0)
        log.write()
    log.close()
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    clock = itertools.count(1).__next__
    log, recovered = Log.open(tmp_path, files=files, options=SMALL, clock=clock, progress=tell)
    assert [len(queue) for queue in recovered.messages.values()] == [30]
    segments = sum(path.name.startswith("segment-") for path in files.paths())
    size = told[segments][1]
    beside = [total - size for _, total in told[segments:]]
    assert beside[-1] == segments + 30, "each is made durable, and each body is fetched"
    assert max(after - before for before, after in itertools.pairwise(beside)) == 1
    log.close()


def test_a_short_body_becomes_plain_bytes(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, SimulatedFiles())
    body = log.stage()
    log.append(body, b"abc")
    log.append(body, b"defg")
    payload = log.payload_of(body, b"head ", 1)
    assert type(payload) is bytes and payload == b"head bcdefg"
    log.close()


def test_a_plain_payload_above_half_a_segment_is_put_in_parts(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    text = pattern(40_000)
    number = log.put(route, text, 0)
    log.close()
    log, recovered = opened(tmp_path, files)
    [message] = recovered.messages[incarnation]
    assert isinstance(message.payload, LargePayload)
    assert (message.number, message.payload.read(0, 50_000)) == (number, text)
    assert text.startswith(message.payload.head) and len(message.payload.head) > 1000
    log.close()


def staged(log: Log, size: int = 30_000) -> bytes:
    body = log.stage()
    log.append(body, bytes(size))
    return log.payload_of(body, b"head", 0)


def test_a_body_that_nobody_has_any_more_gives_its_segments_back(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, SimulatedFiles())
    payload = staged(log)
    move_on(log)
    assert log.segments >= 3, "it is still in hand"
    del payload
    settle(log)
    assert log.segments <= 2
    log.close()


def test_a_discarded_body_gives_its_segments_back_and_cannot_be_read(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, SimulatedFiles())
    body = log.stage()
    log.append(body, bytes(30_000))
    payload = log.payload_of(body, b"head", 0)
    move_on(log)
    held = log.segments
    log.discard(body)
    settle(log)
    assert log.segments < held
    assert isinstance(payload, LargePayload)
    with pytest.raises(OSError, match="was discarded"):
        payload.read(0, 100)
    log.close()


def test_a_body_stays_until_its_message_has_left_all_queues(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    first, _ = a_queue(log, "a")
    second, _ = a_queue(log, "b")
    number = log.put(log.route_set((first, second)), staged(log), 0)
    move_on(log)
    log.ack(first, number)
    settle(log)
    assert log.segments >= 3
    log.close()
    log, recovered = opened(tmp_path, files)
    assert recovered.messages[first] == []
    [message] = recovered.messages[second]
    assert len(message.payload) == 30_004
    del recovered, message  # nobody has it in hand now, but it lives in a queue
    move_on(log)
    log.close()
    log, recovered = opened(tmp_path, files)
    [message] = recovered.messages[second]
    assert message.payload.startswith(b"head") and len(message.payload) == 30_004
    del recovered, message
    log.ack(second, number)
    settle(log)
    assert log.segments <= 2
    log.close()


@pytest.mark.parametrize("way", ["put", "commit", "commit of plain bytes", "unit", "unit of plain bytes"])
def test_whatever_names_a_body_keeps_it(tmp_path: Path, way: str) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    text = bytes(20_000) if "plain" in way else staged(log)
    length = len(text)
    if way == "put":
        log.put(route, text, 0)
    elif way.startswith("commit"):
        log.commit([CommitPut(log.next_message(), route, text, 0)], [])
    else:
        log.begin_unit()
        log.put(route, text, 0)
        log.end_unit()
    del text
    move_on(log)
    log.close()
    log, recovered = opened(tmp_path, files)
    assert [len(message.payload) for message in recovered.messages[incarnation]] == [length]
    log.close()


def test_two_messages_share_one_body(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, SimulatedFiles())
    first, first_route = a_queue(log, "a")
    second, second_route = a_queue(log, "dead letters")
    payload = staged(log)
    assert isinstance(payload, LargePayload)
    numbers = log.put(first_route, payload, 0), log.put(second_route, payload.with_head(b"other"), 0)
    del payload
    log.ack(first, numbers[0])
    move_on(log)
    assert log.segments >= 3
    log.ack(second, numbers[1])
    settle(log)
    assert log.segments <= 2
    log.close()


def test_a_queue_that_ends_lets_its_bodies_go(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, SimulatedFiles())
    _, route = a_queue(log)
    log.put(route, staged(log), 0)
    move_on(log)
    assert log.segments >= 3
    log.delete("queue", "q")
    settle(log)
    assert log.segments <= 2
    log.close()


@pytest.mark.parametrize("how", ["discarded", "dropped", "acknowledged"])
def test_a_body_let_go_keeps_its_segments_until_that_is_synced(tmp_path: Path, how: str) -> None:
    """Else a crash could find the record that names it, and other bytes in its place."""
    log, _ = opened(tmp_path, SimulatedFiles())
    incarnation, route = a_queue(log)
    bodies = [log.stage()]
    log.append(bodies[0], pattern(30_000))
    in_hand = [log.payload_of(bodies[0], b"head", 0)]
    number = 0
    if how == "acknowledged":
        number = log.put(route, in_hand.pop(), 0)
    if how != "discarded":
        bodies.clear()
    move_on(log)
    log.put(route, b"not synced", 0)
    if number:
        log.ack(incarnation, number)
    log.write()
    held = log.segments
    assert held >= 3
    for body in bodies:
        log.discard(body)
    in_hand.clear()
    while log.wants_maintenance:
        log.maintain(1000)
    assert log.segments == held
    settle(log)
    assert log.segments < held
    log.close()


def test_what_nothing_names_is_gone_after_a_restart(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    payload = staged(log)
    log.write()
    log.close()
    assert len(payload) == 30_004
    log, recovered = opened(tmp_path, files)
    assert recovered.damage == () and recovered.lost == {}
    move_on(log)
    assert log.segments <= 2
    log.close()


def test_a_part_that_cannot_be_read_costs_its_message_and_is_said_once(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    number = log.put(route, staged(log), 0)
    settle(log)
    kept = log.put(route, b"kept", 0)
    log.close()
    content = files.content(tmp_path / f"segment-{2:016x}.log")
    content[8000] ^= 1
    log, recovered = opened(tmp_path, files)
    assert recovered.damage != ()
    assert recovered.lost == {incarnation: 1}
    assert [message.number for message in recovered.messages[incarnation]] == [kept] != [number]
    log.close()
    log, recovered = opened(tmp_path, files)
    assert recovered.lost == {}, "it was acknowledged as dropped"
    log.close()


def test_a_lost_body_is_said_once_although_the_segment_that_says_so_was_recycled(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    incarnation, route = a_queue(log)
    log.put(route, staged(log), 0)
    kept = log.put(route, b"kept", 0)
    log.write()
    move_on(log)
    log.close()
    content = files.content(tmp_path / f"segment-{2:016x}.log")
    content[8000] ^= 1
    log, recovered = opened(tmp_path, files)
    assert recovered.lost == {incarnation: 1}
    for _ in range(4):
        move_on(log)
    log.close()
    log, recovered = opened(tmp_path, files)
    assert [message.number for message in recovered.messages[incarnation]] == [kept]
    assert recovered.lost == {}, "it was acknowledged as dropped, and its put is still there"
    log.ack(incarnation, kept)
    for _ in range(4):
        move_on(log)
    assert log.segments <= 2
    log.close()


def test_a_full_disk_takes_no_bodies(tmp_path: Path) -> None:
    files = SimulatedFiles()
    files.space = 8 * 16384
    log, _ = opened(tmp_path, files)
    body = log.stage()
    with pytest.raises(NoRoom, match="the disk is full"):
        for _ in range(1000):
            log.append(body, bytes(1000))
            settle(log)
    assert log.failed is None, "what was kept back is still there"
    incarnation, route = a_queue(log)
    log.discard(body)
    settle(log)
    assert log.accepts_publishing()
    log.ack(incarnation, log.put(route, b"x", 0), EndReason.ACCEPTED)
    log.close()


def test_a_failed_write_of_parts_ends_durable_work(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    _, route = a_queue(log)
    sequence = log.write()
    log.sync()
    body = log.stage()
    log.append(body, bytes(5000))
    files.broken.add("pwrite")
    with pytest.raises(NoRoom, match="writing failed"):
        log.payload_of(body, b"", 0)
    files.broken.clear()
    with pytest.raises(NoRoom):
        log.append(body, b"x")
    log.put(route, b"x", 0)
    assert log.write() > log.synced == sequence
    log.close()
