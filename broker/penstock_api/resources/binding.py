"""The part `binding` of a Subscription's spec. Source: docs/decisions/111-binding-secrets.md."""

from __future__ import annotations

from penstock_api import references, schema

__all__ = ["BindingSpec"]


class BindingSpec(schema.Spec):
    """A Secret `<subscription>-binding` in the layout of the Service Binding Specification: type, provider, host, port,
    uri, ca.crt, and what the client attaches to.
    """

    credentials_secret_ref: references.LocalRef | None = None
    """A Secret of this namespace with `username` and `password`. The binding names it, as `credentials-secret`, and
    copies nothing from it; left out: the application logs in with the token of its ServiceAccount.
    """
