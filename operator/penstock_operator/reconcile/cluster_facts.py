"""What the cluster tells about itself and all Brokers need: read once for all of them, and kept for a minute.

Source: docs/decisions/060-client-tokens.md (the cluster as an issuer of tokens),
docs/decisions/099-unchanged-costs-nothing.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from penstock_operator.children import cluster_issuer
from penstock_operator.children.cluster_issuer import ClusterIssuer
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError

__all__ = ["ClusterFacts"]

logger = logging.getLogger(__name__)

_KEPT_SECONDS: Final = 60


@dataclass(slots=True)
class ClusterFacts:
    """Whether Spark's kinds are installed, and what ServiceAccount tokens are signed with. Methods raise KubeError."""

    kube: ApiServer
    clock: Callable[[], datetime]
    _spark: tuple[datetime, bool] | None = None
    _issuer: tuple[datetime, ClusterIssuer | None] | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def spark_installed(self) -> bool:
        """Whether the cluster has the kind ScheduledSparkApplication."""
        async with self._reading:
            if self._spark is None or self._is_old(self._spark[0]):
                self._spark = self.clock(), await self.kube.serves(API_RESOURCES["ScheduledSparkApplication"])
            return self._spark[1]

    async def issuer(self) -> ClusterIssuer | None:
        """What the API server publishes about itself as an issuer; None if it publishes nothing, or if the operator may
        not read it.
        """
        async with self._reading:
            # What was not there is asked for at once: somebody may be mending it.
            if self._issuer is None or self._issuer[1] is None or self._is_old(self._issuer[0]):
                self._issuer = self.clock(), await self._read_issuer()
            return self._issuer[1]

    async def changed(self, *, with_issuer: bool) -> bool:
        """Read what is old again; whether it differs from what was known."""
        spark, issuer = self._spark, self._issuer
        now_spark = await self.spark_installed()
        now_issuer = await self.issuer() if with_issuer else None
        is_new_issuer = with_issuer and (issuer is None or issuer[1] != now_issuer)
        return spark is None or spark[1] != now_spark or is_new_issuer

    def _is_old(self, read: datetime) -> bool:
        return not 0 <= (self.clock() - read).total_seconds() < _KEPT_SECONDS

    async def _read_issuer(self) -> ClusterIssuer | None:
        try:
            documents = [await self.kube.document(path) for path in (cluster_issuer.DISCOVERY, cluster_issuer.KEYS)]
        except KubeError as error:
            if error.status == 0 or error.status >= 500:
                raise  # A failure that may be over in a moment; the reconcile is repeated.
            logger.warning("the issuer of the cluster's ServiceAccount tokens can't be read: %s", error)
            return None
        return cluster_issuer.read(*documents)
