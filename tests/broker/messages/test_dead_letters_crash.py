"""Dead letters of a broker process that is killed while a consumer rejects: every message is in one place."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from support.broker_process import BrokerProcess
from support.proton_client import connected, publish, take

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import DeliveryPolicy, EntityType, QueueDeclaration

COUNT = 60


async def test_every_message_is_in_its_queue_or_buried(broker_process: BrokerProcess) -> None:
    client = await ManagementClient.connect(broker_process.management)
    await client.create(QueueDeclaration(delivery=DeliveryPolicy(dead_letter="dead", max_deliveries=1)), "jobs")
    await client.close()
    for killed_after in (5, 10, 15):
        with connected(broker_process.url) as connection:
            if killed_after == 5:
                publish(connection.create_sender("jobs"), list(range(COUNT)))
            receiver = connection.create_receiver("jobs", credit=100)
            for _ in range(killed_after):
                receiver.receive(timeout=60)
                receiver.reject()
            # Not seen by the broker yet, perhaps, or half of them: that is the point.
            broker_process.kill()
            connection.timeout = 0.1  # nobody will answer the Close
        broker_process.start()
    with connected(broker_process.url) as connection:
        client = await ManagementClient.connect(broker_process.management)
        states = await client.query_all(EntityType.QUEUE)
        await client.close()
        depths = {str(each["name"]): each["depth"] for each in states}
        bodies: list[object] = []
        for queue in ("jobs", "dead"):
            depth = depths[queue]
            assert isinstance(depth, int)
            bodies += [body for body, _ in take(connection.create_receiver(queue, credit=COUNT), depth)]
    assert sorted(map(str, bodies)) == sorted(map(str, range(COUNT)))
