"""The peer of `hack/bench flow`: a broker as proton's own Python API suggests it, the stock reactor and one queue per
address.

usage: stock_broker.py ADDRESS_FILE

In memory only, no subscriptions, credit 1000; it prints nothing and writes HOST:PORT once it listens.
"""

from __future__ import annotations

import collections
import sys
from pathlib import Path

from proton import Endpoint
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Queue:
    def __init__(self) -> None:
        self.messages: collections.deque[object] = collections.deque()
        self.consumers: list[object] = []

    def dispatch(self) -> None:
        for consumer in self.consumers:
            while consumer.credit > 0 and self.messages:
                consumer.send(self.messages.popleft())


class StockBroker(MessagingHandler):
    def __init__(self, ready: Path) -> None:
        super().__init__(prefetch=1000, auto_accept=True)
        self._ready = ready
        self._queues: dict[str, Queue] = collections.defaultdict(Queue)

    def on_start(self, event: object) -> None:
        self._acceptor = event.container.listen("127.0.0.1:0")
        host, port = self._acceptor._selectable._delegate.getsockname()[:2]
        self._ready.write_text(f"{host}:{port}")

    def on_link_opening(self, event: object) -> None:
        link = event.link
        if link.is_sender:
            link.source.address = link.remote_source.address
            self._queues[link.source.address].consumers.append(link)
        else:
            link.target.address = link.remote_target.address

    def on_link_closing(self, event: object) -> None:
        self._leave(event.link)

    def on_connection_closing(self, event: object) -> None:
        self._leave_all(event)

    def on_disconnected(self, event: object) -> None:
        self._leave_all(event)

    def _leave_all(self, event: object) -> None:
        link = event.connection.link_head(Endpoint.REMOTE_ACTIVE)
        while link:
            self._leave(link)
            link = link.next(Endpoint.REMOTE_ACTIVE)

    def _leave(self, link: object) -> None:
        if link.is_sender and link in self._queues[link.source.address].consumers:
            self._queues[link.source.address].consumers.remove(link)

    def on_sendable(self, event: object) -> None:
        self._queues[event.link.source.address].dispatch()

    def on_message(self, event: object) -> None:
        queue = self._queues[event.link.target.address]
        queue.messages.append(event.message)
        queue.dispatch()


if __name__ == "__main__":
    Container(StockBroker(Path(sys.argv[1]))).run()
