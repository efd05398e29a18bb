"""The settings of an observer, checked once when it starts, so that the rest can rely on them.

Source: docs/reference/observer.md. The command line builds them; nothing else in this package reads arguments or the
environment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock_api.setting_checks import SettingChecks

__all__ = ["ObserverSettings"]

HOUR: Final = 3600
MIB: Final = 1024 * 1024
LONGEST: Final = 365 * 24 * HOUR
"""Seconds; nobody waits for longer, and no timer takes more than some years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverSettings:
    """Settings of one observer. Raises Misuse when made with values that can't work."""

    broker_socket: Path
    """Unix socket of the broker in the same pod."""
    ledger: Path
    """Folder of the segments and, below ``results/`` and ``rollups/``, of the lag job's work; made if absent."""
    host: str
    port: int
    """TCP port; 0: the system chooses one, and `announce` of `main.run` gets it in the URL."""
    token_file: Path
    """File with the bearer token that every request but ``/healthz`` must show; read again when it changes."""
    broker: str
    """Name of the Broker resource."""
    namespace: str
    messages_token_file: Path | None = None
    """File with a token whose holder also sees messages on the page; None: nobody sees them."""
    account: Path | None = None
    """Folder with token and authority of a ServiceAccount that may ask the API server whose a Kubernetes token is;
    None: nobody logs in to the page with one.
    """
    api_server: str = ""
    """URL of that API server."""
    ordinal: int = 0
    """Ordinal of the broker's pod; results are kept by ordinal 0."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    interval_seconds: float = 10.0
    """Time between two snapshots."""
    segment_seconds: float = 60.0
    """A segment is sealed when its first row is this old: the most that a crash can lose, and the freshness of lag."""
    segment_rows: int = 250_000
    segment_bytes: int = 128 * MIB
    """Estimated size in memory at which a segment is sealed."""
    retain_seconds: float = 48 * HOUR
    retain_bytes: int = 1024 * MIB
    """The ledger takes less if its volume offers less."""
    results_kept: int = 20
    results_bytes: int = 128 * MIB
    """Results take less if this is more than a quarter of the volume; the newest is always kept."""

    rollups_bytes: int = 256 * MIB
    """Rollups take less if this is more than an eighth of the volume."""
    audit_bytes: int = 256 * MIB
    """Records of audits take less if this is more than a quarter of the volume."""

    def __post_init__(self) -> None:
        """Check the values; raises Misuse with the name of each setting that is wrong."""
        checks = SettingChecks("observer")
        check = checks.check
        check(1 <= self.interval_seconds <= LONGEST, "interval", "from 1 second to a year")
        check(1 <= self.segment_seconds <= LONGEST, "segment-seconds", "from 1 second to a year")
        check(self.segment_rows >= 1, "segment-rows", "at least 1")
        check(self.segment_bytes >= 1, "segment-bytes", "at least 1")
        check(1 <= self.retain_seconds < math.inf, "retain-seconds", "at least 1 second")
        check(self.retain_bytes >= 1, "retain-bytes", "at least 1 byte")
        check(self.results_kept >= 1, "results-kept", "at least 1")
        check(self.results_bytes >= 1, "results-bytes", "at least 1 byte")
        check(self.rollups_bytes >= 1, "rollups-bytes", "at least 1 byte")
        check(self.audit_bytes >= 1, "audit-bytes", "at least 1 byte")
        check(0 <= self.ordinal < 1000, "ordinal", "0 to 999")
        check(0 <= self.port < 65536, "listen", "HOST:PORT with a port from 0 to 65535")
        check(bool(self.broker) and bool(self.namespace), "broker and namespace", "a name, not empty")
        is_asked = self.account is None or self.api_server.startswith("https://")
        check(is_asked, "api-server", "an https:// URL, if there is an account; a pod of a cluster knows it")
        check((self.tls_cert is None) == (self.tls_key is None), "tls-cert and tls-key", "both set, or neither")
        checks.end()

    @property
    def results(self) -> Path:
        """Folder of the lag results."""
        return self.ledger / "results"

    @property
    def rollups(self) -> Path:
        """Folder of the rollups."""
        return self.ledger / "rollups"

    @property
    def audits(self) -> Path:
        """Folder of the records of audits."""
        return self.ledger / "audit"
