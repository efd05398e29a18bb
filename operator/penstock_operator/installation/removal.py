"""Whether the operator's release may be uninstalled, and what would become of the resources. Pure.

Source: docs/decisions/112-uninstall-guard.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock_api.failure import Failure

__all__ = ["Release", "refusal_of_removal"]

_NAMED: Final = 3
_PAGE: Final = "docs/how-to/upgrade.md#uninstall"


@dataclass(frozen=True, slots=True)
class Release:
    """A release of the operator's chart."""

    name: str
    namespace: str
    keeps_crds: bool
    """Whether the CRDs stay when it is uninstalled (the value `crds.keep`, or CRDs that it did not install)."""
    namespaces: tuple[str, ...] = ()
    """The namespaces that its operator watches; empty: all."""

    @property
    def concerned(self) -> tuple[str, ...]:
        """The namespaces whose resources the removal concerns; empty: all, because their CRDs would go."""
        return self.namespaces if self.keeps_crds else ()


def refusal_of_removal(release: Release, found: Mapping[str, Sequence[str]]) -> Failure | None:
    """Why the release must not be uninstalled; None if it may.

    `found`: by kind, the resources in the namespaces that are concerned, as `namespace/name`.
    """
    there = {kind: names for kind, names in found.items() if names}
    if not there:
        return None
    counts = _listed([f"{len(names)} {kind}{'' if len(names) == 1 else 's'}" for kind, names in there.items()])
    kind, names = next(iter(there.items()))
    examples = ", ".join(sorted(names)[:_NAMED])
    cause = (
        f"Release {release.name} is not uninstalled, because there are still {counts} "
        f"({kind} {examples}{', ...' if len(names) > _NAMED else ''})."
    )
    uninstall = f"helm uninstall {release.name} --namespace {release.namespace} --no-hooks"
    if release.keeps_crds:
        return Failure(
            f"{cause} Without the operator they would stay and brokers would go on, but no deletion of an Exchange, "
            "a Subscription or a Queue would ever end, and a Broker's pod that is lost with its settings would not be "
            "made again.",
            f"Delete them while the operator still runs ({_PAGE}), and uninstall again. "
            f"If they are to stay, for example for another release of the operator, run: {uninstall}",
        )
    return Failure(
        f"{cause} Its value crds.keep is false: the CRDs would be removed, and with them all of these. Every broker "
        "would stop, and the messages of those whose storage.whenDeleted is Delete would be gone.",
        f"To keep them, run `helm upgrade` with crds.keep=true, and then: {uninstall}. To remove them, delete them "
        f"while the operator still runs ({_PAGE}), and uninstall again.",
    )


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
