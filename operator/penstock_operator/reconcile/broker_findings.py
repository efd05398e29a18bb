"""What tasks beside the reconcile of a Broker have found out about it, and what it lets them know.

Source: docs/decisions/054-owner-mark.md (orphans), docs/decisions/070-observer-tokens.md,
docs/decisions/097-outages.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock_operator.brokers.accepted_tokens import AcceptedTokens
from penstock_operator.brokers.observer_client import ObserverAccess
from penstock_operator.children.scale_secret import ScaleAccess
from penstock_operator.manifest import Manifest

__all__ = ["BrokerFindings"]


@dataclass(slots=True)
class BrokerFindings:
    """What the tasks for orphans and lag have found out about a Broker; its next report contains it."""

    orphans: tuple[Manifest, ...] = ()
    """`status.orphans`."""
    lag: Manifest | None = None
    """`status.lagAnalysis`."""
    observer: ObserverAccess | None = None
    """Where the lag results of this Broker can be read; None if it has no pods."""
    accepted: AcceptedTokens | None = None
    """What is known about the tokens that its observer accepts; None: it has not been asked."""
    scale_access: ScaleAccess | None = None
    """What the tokens of single subscriptions are made with; None: its Secrets have not been read yet."""
    trusted: bytes | None = None
    """What clients of the Broker are to trust, PEM; None: its Secrets have not been read yet."""
    is_out: bool = False
    """Whether the broker has not answered for so long that all its resources must say so."""
    pending_removals: set[str] = field(default_factory=set[str])
    """uids of deleted resources whose entities the broker could not be asked to remove."""

    @property
    def scale(self) -> ScaleAccess | None:
        """What the tokens of single subscriptions are made with; None if its observer may not know them."""
        return self.scale_access if self.accepted is not None and self.accepted.knows_scopes else None
