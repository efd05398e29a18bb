"""The demo's verdict: each way in which a run can be bad is found, and a good run is not blamed."""

from __future__ import annotations

from e2e.tally import Receipt, Tally


def good() -> Tally:
    """Four accepted, one doubtful that came, one message delivered twice and marked so."""
    return Tally(
        accepted={"m-0.1", "m-1.1", "m-2.2", "m-3.1"},
        doubtful={"m-2.1"},
        receipts=[
            Receipt("a", "m-0.1", 0),
            Receipt("b", "m-1.1", 0),
            Receipt("b", "m-2.1", 0),
            Receipt("b", "m-2.2", 0),
            Receipt("a", "m-3.1", 0),
            Receipt("b", "m-3.1", 1),
        ],
        settled={"m-0.1", "m-1.1", "m-2.1"},
    )


def test_a_good_run_has_no_findings() -> None:
    tally = good()
    assert tally.findings(["a", "b"]) == []
    assert tally.repeated == 1
    assert tally.share() == {"a": 2, "b": 4}


def test_lag_is_what_is_known_to_be_there_minus_what_was_settled() -> None:
    assert good().lag == 2  # m-2.2 and m-3.1


def test_a_loss_is_found() -> None:
    tally = good()
    tally.accepted.add("m-4.1")
    assert tally.findings([]) == ["1 accepted messages were never received, such as m-4.1"]


def test_a_repeat_that_claims_to_be_new_is_found() -> None:
    tally = good()
    tally.receipts.append(Receipt("a", "m-0.1", 0))
    assert tally.findings([]) == [
        "1 messages came twice without a delivery-count that says so, such as m-0.1",
    ]


def test_a_message_that_nobody_sent_is_found() -> None:
    tally = good()
    tally.receipts.append(Receipt("a", "x-0.1", 0))
    assert tally.findings([]) == ["1 messages were received that nobody sent, such as x-0.1"]


def test_an_unfair_share_is_found() -> None:
    assert good().findings(["a", "b"], at_least=0.75) == [
        "consumer a got 2 messages; 3 were to be expected at least",
    ]
    assert good().findings(["c"]) == ["consumer c got 0 messages; 1 were to be expected at least"]


def test_a_share_is_that_of_the_messages_that_all_could_get() -> None:
    tally = good()
    assert tally.share({"m-2.2", "m-3.1"}) == {"a": 1, "b": 2}
    assert tally.findings(["a", "b"], shared={"m-2.2", "m-3.1"}) == []
    assert tally.findings(["a", "b"], shared={"m-1.1", "m-2.2", "m-3.1", "m-0.1"}, at_least=0.75) == [
        "consumer a got 2 messages; 3 were to be expected at least",
    ]
    assert tally.findings(["a"], shared={"m-1.1", "m-2.1", "m-2.2", "x"}) == [
        "consumer a got 0 messages; 1 were to be expected at least",
    ]
