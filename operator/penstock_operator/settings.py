"""The operator's settings, from environment variables (which the chart sets) or the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from penstock_api.log_lines import LEVELS, LogFormat
from penstock_api.setting_checks import SettingChecks, WrongSettings
from penstock_operator.lag_options import LagJobOptions, read_lag_job

__all__ = ["OperatorSettings"]

_PREFIX: Final = "PENSTOCK_OPERATOR_"
LONGEST: Final = 86_400
"""Seconds between two looks: a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """The settings of one operator."""

    broker_image: str
    """The image of new Brokers whose spec sets none. An existing Broker keeps the image with which it was created."""
    lag_image: str
    """The image of the lag job for Brokers whose spec sets none, and of the operator's own."""
    lag_job: LagJobOptions | None = None
    """The one lag job for all Brokers with the backend Auto; None: there is none."""
    namespaces: tuple[str, ...] = ()
    """The namespaces to watch; empty: all."""
    own_namespace: str = ""
    """The namespace in which the operator runs; empty: it runs outside the cluster, or nobody has said."""
    cluster_domain: str = "cluster.local"
    """The DNS domain of the cluster."""
    liveness_host: str = ""
    """The address at which /livez, /readyz and /metrics are served; empty: all addresses."""
    liveness_port: int = 8080
    """The port of /livez, /readyz and /metrics; 0: any free port."""
    resync_seconds: float = 120
    """The time between two complete lists; after each, all resources are reconciled."""
    poll_seconds: float = 5
    """The time between two readings of a broker's state; its lag is read every second time."""
    workers: int = 200
    """The number of resources that are reconciled at the same time. What so many workers declare on one broker at the
    same time travels in one request; on the way to the API server there are at most 64 requests at once.
    """
    pass_seconds: float = 120
    """A reconcile of one resource that takes longer is ended and repeated later."""
    lease: str = ""
    """The name of the Lease in `own_namespace` by which one operator of several leads; empty: this one always leads."""
    lease_seconds: int = 15
    """After so long without a renewal of the Lease another operator takes it."""
    identity: str = ""
    """Names this operator in the Lease, as the pod's name; empty: the host's name and something random."""
    has_ipv6: bool = False
    """Whether the cluster's Services, or the first of their two addresses, are of IPv6; pods then listen on all their
    addresses. In other clusters nothing is different, so that no pod of an existing Broker is replaced.
    """
    log_level: str = "INFO"
    log_format: LogFormat = LogFormat.TEXT

    def __post_init__(self) -> None:
        """Check the values; raises Misuse with the name of each setting that is wrong."""
        checks = SettingChecks("operator")
        checks.check(bool(self.broker_image), "broker-image", "the name of an image")
        checks.check(bool(self.lag_image), "lag-image", "the name of an image")
        checks.check(1 <= self.resync_seconds <= LONGEST, "resync-seconds", f"1 to {LONGEST}")
        checks.check(1 <= self.poll_seconds <= LONGEST, "poll-seconds", f"1 to {LONGEST}")
        checks.check(1 <= self.workers <= 1000, "workers", "1 to 1000")
        checks.check(30 <= self.pass_seconds <= 3600, "pass-seconds", "30 to 3600")
        checks.check(0 <= self.liveness_port < 65536, "liveness-port", "0 to 65535")
        checks.check(5 <= self.lease_seconds <= 3600, "lease-seconds", "5 to 3600")
        checks.check(bool(self.own_namespace) or not self.lease, "own-namespace", "the namespace of the Lease")
        checks.check(self.log_level.lower() in LEVELS, "log-level", f"one of {', '.join(LEVELS)}")
        checks.end()

    @property
    def lag_seconds(self) -> float:
        """The time between two readings of a Broker's lag: by default that between two polls of its observer."""
        return 2 * self.poll_seconds

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """The settings in environment variables such as `PENSTOCK_OPERATOR_BROKER_IMAGE`. An empty one, which is what a
        chart makes of a value that somebody has removed, counts as missing.

        Raises:
            Misuse: variables are missing or have an invalid value; all of them are named.
        """
        source = os.environ if environment is None else environment
        values = {
            key.removeprefix(_PREFIX).lower(): value
            for key, value in source.items()
            if key.startswith(_PREFIX) and value
        }
        checks = SettingChecks("operator")

        def whole(name: str, default: int) -> int:
            text = values.get(name, str(default))
            return checks.read(text, int, default, name.replace("_", "-"), "a whole number")

        def seconds(name: str, default: float) -> float:
            text = values.get(name, str(default))
            return checks.read(text, float, default, name.replace("_", "-"), "a number of seconds")

        try:
            made = cls(
                broker_image=values.get("broker_image", ""),
                lag_image=values.get("lag_image", ""),
                lag_job=read_lag_job(values.get("lag_job", "")),
                namespaces=tuple(name.strip() for name in values.get("namespaces", "").split(",") if name.strip()),
                own_namespace=values.get("own_namespace", ""),
                cluster_domain=values.get("cluster_domain", "cluster.local"),
                liveness_host=values.get("liveness_host", ""),
                liveness_port=whole("liveness_port", 8080),
                resync_seconds=seconds("resync_seconds", 120),
                poll_seconds=seconds("poll_seconds", 5),
                workers=whole("workers", 200),
                pass_seconds=seconds("pass_seconds", 120),
                lease=values.get("lease", ""),
                lease_seconds=whole("lease_seconds", 15),
                identity=values.get("identity", ""),
                # Kubernetes gives every pod the address of the API server's Service.
                has_ipv6=":" in source.get("KUBERNETES_SERVICE_HOST", ""),
                log_level=values.get("log_level", "INFO"),
                log_format=checks.read(
                    values.get("log_format", "text"), LogFormat, LogFormat.TEXT, "log-format", "text or json"
                ),
            )
        except WrongSettings as others:
            checks.add(others)
            made = None
        checks.end()
        assert made is not None, "it was made, or there were mistakes"
        return made
