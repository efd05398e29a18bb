"""Whether a user may use a subscription that somebody else made (decision 16: a container-id is only a claim)."""

from __future__ import annotations

from penstock_core.existing import Existing
from penstock_core.reason import Reason, Refuse

__all__ = ["check"]


def check(existing: Existing, user: str, may_use_others: bool) -> Refuse | None:
    """None if ``user`` may attach to, steal from, look up or end ``existing``; what a resource declared is nobody's
    own.
    """
    if existing.user is None or existing.user == user or may_use_others:
        return None
    return Refuse(
        Reason.OTHER_USER,
        f"The {existing.identity} was made by another user; use another name, or ask for the permission to manage it.",
    )
