"""The CA of one Broker, and its way to a successor without a client that is turned away.

At a rotation the new CA gets a bridge: its key in a certificate of the old one. The server's certificate is signed by
the new CA and sent with the bridge, so clients that trust the old CA accept it, and those that trust the new one, and
those that trust both. Clients are told to trust both until the bridge ends. Source:
docs/decisions/101-reach.md; RFC 4210, section 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from penstock_operator.children import certificates
from penstock_operator.children.certificates import Pair
from penstock_operator.children.secret_data import bytes_at
from penstock_operator.manifest import Manifest

__all__ = ["Authority", "renewed"]

_PREVIOUS: Final = "previous.crt"
_BRIDGE: Final = "bridge.crt"
_ROTATION: Final = "rotation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA, and the one before it while clients may still trust that one alone."""

    current: Pair
    """The CA that signs."""
    previous: bytes | None = None
    """The certificate of the CA before, PEM; None if there is none, or its time is over."""
    bridge: bytes | None = None
    """The key of the current CA, signed by the one before, PEM."""
    rotation: str = ""
    """The value of the annotation that asked for the last rotation."""

    @property
    def trusted(self) -> bytes:
        """What clients are to trust, PEM: the current CA first, for clients that read one certificate only."""
        return self.current.certificate + (self.previous or b"")

    def chain(self, server: bytes) -> bytes:
        """A server's certificate with what leads from the CA before to it, PEM."""
        return server + (self.bridge or b"")

    def secret_data(self) -> Mapping[str, bytes]:
        """The Secret, for the operator alone, from which `renewed` reads it again."""
        optional = {_PREVIOUS: self.previous, _BRIDGE: self.bridge, _ROTATION: self.rotation.encode() or None}
        kept = {key: value for key, value in optional.items() if value is not None}
        return {"ca.crt": self.current.certificate, "ca.key": self.current.key, **kept}


def renewed(secret: Manifest | None, name: str, wanted_rotation: str, now: datetime) -> Authority:
    """The CA to use now: that of the Secret, or a successor if it is due or `wanted_rotation` is new.

    `name`: the common name of a new one. It has to stay the same, or the bridge would not be self-issued.
    """
    certificate, key = bytes_at(secret, "ca.crt"), bytes_at(secret, "ca.key")
    found = None if certificate is None or key is None else Pair(certificates.bare(certificate), key)
    if found is None or not certificates.is_readable(found):
        return Authority(current=certificates.make_ca(name, now), rotation=wanted_rotation)
    handled = (bytes_at(secret, _ROTATION) or b"").decode(errors="replace")
    if certificates.ca_is_due(found, now) or (wanted_rotation and wanted_rotation != handled):
        return _successor(found, name, wanted_rotation, now)
    previous, bridge = bytes_at(secret, _PREVIOUS), bytes_at(secret, _BRIDGE)
    end = None if bridge is None else certificates.end_of(bridge)
    if previous is None or end is None or end <= now:
        return Authority(current=found, rotation=handled)
    return Authority(current=found, previous=certificates.bare(previous), bridge=bridge, rotation=handled)


def _successor(old: Pair, name: str, rotation: str, now: datetime) -> Authority:
    current = certificates.make_ca(name, now)
    end = certificates.end_of(old.certificate)
    if end is None or end <= now:
        return Authority(current=current, rotation=rotation)
    return Authority(
        current=current,
        previous=old.certificate,
        bridge=certificates.bridge(old, current, now),
        rotation=rotation,
    )
