"""The books of the crash load: what they call lacking."""

from crash.crash_load import HEAD
from crash.ledger_of_load import BODY, Ledger


def test_a_message_that_was_left_has_to_come_again_if_it_was_accepted() -> None:
    ledger = Ledger(1, ("deep",))
    ledger.producers[0].send(8)
    ledger.producers[0].accept([0, 1, 2, 3])
    assert ledger.lacking() == {"deep": 4}
    settled = [ledger.received("deep", HEAD + BODY.pack(0, sequence), one_in=2) for sequence in range(6)]
    assert settled == [False, True, False, True, False, True]
    assert ledger.lacking() == {"deep": 2}, "0 and 2 were left; 4 was left, too, but never accepted"
    assert ledger.received("deep", b"\x00\x53\x70\xc0\x07\x05\x41\x40\x40\x40\x52\x01" + HEAD[7:] + BODY.pack(0, 0))
    assert ledger.lacking() == {"deep": 1}
