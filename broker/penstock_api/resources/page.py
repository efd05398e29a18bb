"""`spec.page` of a Broker: what the page on lag shows."""

from __future__ import annotations

from penstock_api import schema

__all__ = ["PageSpec"]


class PageSpec(schema.Spec):
    """The page on lag that the observer serves."""

    show_messages: bool = False
    """The page shows messages, with headers and bodies, to those who log in with the token of the Secret
    `<broker>-observer-messages`. A change restarts the pod.
    """
