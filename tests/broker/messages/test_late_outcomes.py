"""What a client says of a delivery behind the detach of its link, in one write, does not count: the delivery goes back.

Source: docs/decisions/087-departures.md.
"""

from __future__ import annotations

import pytest
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream
from support.transaction_client import TransactionClient

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Accepted, Detach, Disposition, Modified, Rejected, Released
from penstock_amqp.messages.transaction_types import TransactionalState
from penstock_amqp.types.composites import Composite

OUTCOMES = [Accepted(), Rejected(), Released(), Modified(delivery_failed=True)]


def client(timed: SteppedBroker, name: str) -> TransactionClient:
    return TransactionClient(RawClient(0, name, stream=SteppedStream(timed)))


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
@pytest.mark.parametrize("settled", [True, None], ids=["settled", "unsettled"])
@pytest.mark.parametrize("closed", [True, None], ids=["closed", "detached"])
@pytest.mark.parametrize("transactional", [True, False], ids=["in a transaction", "outside"])
def test_a_delivery_whose_link_ends_before_its_outcome_goes_back(
    timed: SteppedBroker, outcome: Composite, settled: bool | None, closed: bool | None, transactional: bool
) -> None:
    timed.make_queue("jobs")
    leaving, other = client(timed, "leaves"), client(timed, "stays")
    leaving.state_of(leaving.post(leaving.sender("jobs"), "m", None))
    handle = leaving.receiver("jobs", credit=1)
    (got,) = leaving.get()
    txn_id = leaving.declare() if transactional else None
    state = outcome if txn_id is None else TransactionalState(txn_id=txn_id, outcome=outcome)
    late = Disposition(role=True, first=got.delivery_id, settled=settled, state=state)
    leaving.client.send_bytes(encode_frame(Detach(handle=handle, closed=closed)) + encode_frame(late))
    assert leaving.detached().error is None
    if txn_id is not None:
        leaving.commit(txn_id)
    other.receiver("jobs", credit=1)
    assert other.bodies(1) == [("m", 1)]
    assert timed.queue("jobs").in_flight == 1
    for each in (leaving, other):
        each.client.socket.close()
