"""The two sources that a shared durable subscription needs, as options for proton's `create_receiver`."""

from proton import Data, Link, Terminus
from proton.reactor import LinkOption

EXCHANGE = "orders"


class SharedDurable(LinkOption):
    """The source of a shared, durable, global subscription; the subscription's name is the link's name up to `|`."""

    def apply(self, link: Link) -> None:
        link.source.durability = Terminus.DELIVERIES
        link.source.expiry_policy = Terminus.EXPIRE_NEVER
        link.source.capabilities.put_array(False, Data.SYMBOL)
        link.source.capabilities.enter()
        for capability in ("topic", "shared", "global"):
            link.source.capabilities.put_symbol(capability)
        link.source.capabilities.exit()


class NullSource(LinkOption):
    """No source: looks up a subscription that exists, by the link's name, and never receives from it."""

    def apply(self, link: Link) -> None:
        link.source.type = Terminus.UNSPECIFIED
