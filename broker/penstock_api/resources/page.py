"""`spec.page` of a Broker: who may log in to the page on lag, and whether it shows messages."""

from __future__ import annotations

from penstock_api import schema

__all__ = ["PageSpec"]


class PageSpec(schema.Spec):
    """The page on lag that the observer serves."""

    show_messages: bool = False
    """The page shows messages, with headers and bodies, to those who log in with the token of the Secret
    `<broker>-observer-messages`. A change restarts the pod.
    """
    service_account_login: bool = False
    """People and programs may log in to the page with a Kubernetes token for the audience
    `penstock.dev/<namespace>/<broker>`. They need `get` of `brokers/page`, and of `brokers/messages` to see messages.
    The observer must be allowed to ask the API server: `pageLogin` in the values of the operator's chart. A change
    restarts the pod.
    """
