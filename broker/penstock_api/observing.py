"""Paths and names of the observer's HTTP interface (docs/observer.md); observer, lag job, operator and CLI share them.

Every path but `HEALTH` wants `Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

HEALTH = "/healthz"
METRICS = "/metrics"
SUBSCRIPTIONS = "/v1/subscriptions"  # live states, JSON list of management.SubscriptionState
SCALE = "/v1/subscriptions/{queue_name}/scale"  # one JSON object for KEDA's metrics-api scaler
SEGMENTS = (
    "/v1/ledger/segments"  # JSON: {"broker", "epoch", "segments": [{"name", "bytes", "rows", "firstMs", "lastMs"}]}
)
SEGMENT = "/v1/ledger/segments/{name}"  # the Parquet file
RESULTS = "/v1/lag/results/{run_name}"  # PUT a result.LagResult, GET it back
LATEST = "/v1/lag/results/latest"  # GET the newest by window end

PORT = 8080
"""Default TCP port of the observer."""
