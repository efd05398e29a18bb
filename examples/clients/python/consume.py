"""Consumes from the shared durable subscription `billing` of the exchange `orders`, as a JMS client without ClientID does.

Usage: python3 consume.py amqp://USER:PASSWORD@HOST:PORT [HOW_MANY]
"""

import sys

from proton import Event
from subscription import EXCHANGE, Command, SharedDurable, arguments

SUBSCRIPTION = "billing"


class Consumer(Command):
    """Accepts each message after it has been handled, so that a crash means another consumer gets it."""

    def __init__(self, url: str, limit: int) -> None:
        super().__init__(auto_accept=False, prefetch=10)
        self.url, self.left = url, limit or sys.maxsize

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self.url, allow_insecure_mechs=True)
        event.container.create_receiver(connection, EXCHANGE, name=f"{SUBSCRIPTION}|1", options=SharedDurable())

    def on_message(self, event: Event) -> None:
        if self.left == 0:
            return  # came while we were leaving; without an outcome it goes to another consumer
        again = " (again)" if event.message.delivery_count else ""
        print(f"{event.message.body}{again}", flush=True)
        self.accept(event.delivery)
        self.left -= 1
        if self.left == 0:
            event.receiver.detach()  # not close(): closing would end the subscription
            event.connection.close()


if __name__ == "__main__":
    url, *how_many = arguments(__doc__, 1)
    Consumer(url, int(how_many[0]) if how_many else 0).run()
