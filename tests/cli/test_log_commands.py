"""`penstock log verify`, `dump` and `repair`, as a user types them, on logs with known contents and known damage."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import pytest

from penstock_broker.log import Log, LogOptions, SyncChoice
from penstock_broker.log.format.blocks import SegmentHeader, encode_segment_header
from penstock_cli import main
from penstock_cli.progress import ProgressLine

SMALL = LogOptions(segment_bytes=16384, sync=SyncChoice.INLINE)
LOG_ID = b"\7" * 16


class Site:
    """A data folder whose log has queues `bills` and `parcels`; five messages of 3000 bytes are in `bills`, three to a
    segment, the second of which is acknowledged, and one of them is in `parcels` too.
    """

    def __init__(self, data: Path) -> None:
        self.data, self.log = data, data / "log"
        log = self.opened()
        bills, parcels = log.next_incarnation(), log.next_incarnation()
        log.topology("queue", "bills", b"{}", bills)
        log.topology("subscription", "parcels", b"{}", parcels)
        log.write()
        only_bills, both = log.route_set((bills,)), log.route_set((bills, parcels))
        self.messages: list[int] = []
        for number in range(5):
            self.messages.append(log.put(both if number == 4 else only_bills, bytes([65 + number]) * 3000, 0))
            log.write()
            log.sync()
        log.ack(bills, self.messages[1])
        log.close()

    def opened(self) -> Log:
        return Log.open(self.log, options=SMALL, clock=lambda: 1, entropy=lambda size: LOG_ID)[0]

    def segment(self, number: int) -> Path:
        return self.log / f"segment-{number:016x}.log"

    def spoil(self, number: int, of: bytes) -> None:
        """Flip the last bit of the first place in the segment that has these bytes."""
        content = bytearray(self.segment(number).read_bytes())
        content[content.index(of)] ^= 1
        self.segment(number).write_bytes(content)

    def contents(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.data.rglob("*") if path.is_file()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "data")


def penstock(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.run(["log", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_sound_log_is_told_with_what_its_queues_hold(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    before = site.contents()
    code, out, _ = penstock(capsys, "verify", str(site.data))
    assert code == 0, out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "segments 2 of 32768 bytes in all, numbers 1 to 2" in lines
    assert f"log id {'07' * 16}" in lines
    assert "epochs 1 to 1, closed in order" in lines
    assert "queue bills 4 12000" in lines
    assert "subscription parcels 1 3000" in lines
    assert lines[-1] == "The log is sound."
    assert site.contents() == before


def test_damage_is_told_with_its_place_and_what_is_lost(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.spoil(2, b"E" * 3000)
    before = site.contents()
    code, out, _ = penstock(capsys, "verify", str(site.log), "--json")
    found = json.loads(out)
    assert (code, found["sound"]) == (1, False)
    [damage] = found["damage"]
    assert (damage["file"], damage["segment"], damage["copy"]) == ("segment-0000000000000002.log", 2, None)
    assert found["lost"] == {"bills": 1, "parcels": 1}
    assert {each["name"]: each["messages"] for each in found["queues"]} == {"bills": 3, "parcels": 0}
    code, out, _ = penstock(capsys, "verify", str(site.log))
    assert "LOST         1 message of parcels" in out
    assert out.endswith("The log is damaged. See what `penstock log repair` would do about it.\n")
    assert site.contents() == before


def test_a_missing_segment_is_told_and_a_repair_takes_note_of_it(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.segment(1).unlink()
    code, out, _ = penstock(capsys, "verify", str(site.log))
    assert code == 1
    named = (
        f"DAMAGED      {site.segment(1)}: there is no such file, although it was not recycled; it held messages 1 to 3"
    )
    assert f"{named} (not noted yet)\n" in out
    assert "LOST         2 messages of bills" in out
    code, out, _ = penstock(capsys, "repair", str(site.data), "--yes")
    assert code == 0, out
    assert "write in damaged/ that the segment is missing" in out
    note = site.log / "damaged" / "segment-0000000000000001.missing"
    assert note.read_text().startswith("segment-0000000000000001.log: there is no such file")
    code, out, _ = penstock(capsys, "verify", str(site.log))
    assert code == 0
    assert f"(noted before, as {note})\n" in out


def test_a_repair_is_announced_done_once_and_then_has_nothing_to_do(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.spoil(2, b"E" * 3000)
    before = site.contents()
    code, out, _ = penstock(capsys, "repair", str(site.data))
    assert code == 1
    assert "would copy the damaged bytes to damaged/" in out
    assert out.endswith("Nothing was changed. Give --yes to do it.\n")
    assert site.contents() == before
    code, out, _ = penstock(capsys, "repair", str(site.data), "--yes")
    assert code == 0, out
    assert "LOST         1 message of bills" in out
    [copy] = (site.log / "damaged").iterdir()
    assert b"E" * 2999 in copy.read_bytes()
    code, out, _ = penstock(capsys, "verify", str(site.data))
    assert (code, out.splitlines()[-1]) == (0, "What is damaged was set aside. The rest of the log is sound.")
    after = site.contents()
    code, out, _ = penstock(capsys, "repair", str(site.data), "--yes")
    assert (code, out.splitlines()[-1]) == (0, "Nothing is to be done.")
    assert site.contents() == after


def test_a_message_that_was_taken_is_not_told_as_lost(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.spoil(1, b"B" * 3000)
    _, out, _ = penstock(capsys, "verify", str(site.data), "--json")
    assert json.loads(out)["lost"] == {}


def test_a_lost_header_is_written_anew_and_nothing_else_changes(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    page = site.segment(1).read_bytes()[:4096]
    content = site.segment(1).read_bytes()
    site.segment(1).write_bytes(b"\xee" * 4096 + content[4096:])
    assert penstock(capsys, "verify", str(site.data))[0] == 1
    assert penstock(capsys, "repair", str(site.data), "--yes")[0] == 0
    mended = site.segment(1).read_bytes()
    assert mended[4096:] == content[4096:]
    assert mended[:48] == page[:48], "all but the time and the checksum over it"
    code, out, _ = penstock(capsys, "verify", str(site.data))
    assert (code, out.splitlines()[-1]) == (0, "The log is sound.")


def test_a_foreign_segment_is_moved_away_whole(site: Site, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other, _ = Log.open(tmp_path / "other", options=SMALL, entropy=lambda size: b"\x08" * 16)
    other.close()
    content = (tmp_path / "other" / "segment-0000000000000001.log").read_bytes()
    site.segment(3).write_bytes(content)
    code, out, _ = penstock(capsys, "verify", str(site.data))
    assert (code, "it is a segment of another log" in out) == (1, True)
    assert penstock(capsys, "repair", str(site.data), "--yes")[0] == 0
    assert not site.segment(3).exists()
    assert (site.log / "damaged" / site.segment(3).name).read_bytes() == content
    assert penstock(capsys, "verify", str(site.data))[0] == 0


def test_records_are_listed_and_can_be_chosen(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = penstock(capsys, "dump", str(site.data), "--json")
    assert code == 0
    records = [json.loads(line) for line in out.splitlines()]
    assert [each["type"] for each in records if each["segment"] == 1] == [
        *("start", "document", "document", "route", "put", "put", "put")
    ]
    first = next(each for each in records if each["type"] == "put")
    assert (first["message"], first["queues"], first["bytes"]) == (site.messages[0], ["bills"], 3000)
    assert "payload" not in first
    assert records[-1]["type"] == "closed"
    _, out, _ = penstock(capsys, "dump", str(site.data), "--queue", "parcels", "--messages")
    assert [line.split()[3] for line in out.splitlines() if " put " in line] == ["put"]
    assert "EEEE" in out and "AAAA" not in out
    _, out, _ = penstock(capsys, "dump", str(site.data), "--segment", "2")
    assert {line.partition(":")[0] for line in out.splitlines()} == {"2"}
    code, _, err = penstock(capsys, "dump", str(site.data), "--queue", "nowhere")
    assert (code, "no queue or subscription of this log has the name 'nowhere'" in err) == (2, True)
    code, out, err = penstock(capsys, "dump", str(site.data), "--segment", "99")
    assert (code, out, "this log has no segment 99, but has 1 to 2." in err) == (2, "", True)


@pytest.mark.parametrize("verb", [["verify"], ["dump"], ["repair"], ["repair", "--yes"]])
def test_a_log_that_a_broker_uses_is_left_alone(
    site: Site, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    log = site.opened()
    code, _, err = penstock(capsys, verb[0], str(site.data), *verb[1:])
    log.close()
    assert (code, "is in use by process" in err) == (3, True)


@pytest.mark.parametrize("verb", ["verify", "dump", "repair"])
def test_a_folder_without_log_is_wrong_usage(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = penstock(capsys, verb, str(tmp_path))
    assert (code, "holds no log" in err) == (2, True)
    assert list(tmp_path.iterdir()) == []
    assert penstock(capsys, verb, str(tmp_path / "absent"))[0] == 2


@pytest.mark.parametrize("verb", ["verify", "dump", "repair"])
def test_a_folder_that_the_system_does_not_let_one_see_is_told(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here by its name; most often it belongs to somebody else, or the disk is failing."""
    code, out, err = penstock(capsys, verb, str(tmp_path / ("n" * 300)))
    assert (code, out, "can't be used: [Errno" in err, "Check its volume and owner." in err) == (3, "", True, True)


def test_a_log_of_a_newer_release_is_neither_sound_nor_damaged(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    page = bytearray(encode_segment_header(SegmentHeader(1, 16384, LOG_ID, 0)))
    page[8] = 2
    page[56:60] = bytes(4)
    page[56:60] = crc32(page[:64]).to_bytes(4, "little")
    site.segment(1).write_bytes(bytes(page) + site.segment(1).read_bytes()[4096:])
    code, _, err = penstock(capsys, "verify", str(site.data))
    assert (code, "format version 2" in err, "Use the Penstock that wrote it." in err) == (3, True, True)


def test_a_long_reading_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 1.9, 2.0, 3.9, 4.1])
    line = ProgressLine("reading the log", lambda: next(now))
    for done in (10, 20, 30, 40):
        line(done, 80)
    assert capsys.readouterr().err == "reading the log: 25 %\nreading the log: 50 %\n"
