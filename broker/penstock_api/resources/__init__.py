"""The resources `penstock.dev/v1alpha1`: a module for each kind, for large parts of a spec, and for manifests."""

from __future__ import annotations

from penstock_api.quantity import quantity_bytes
from penstock_api.resources.base import API_VERSION, GROUP, VERSION, Condition, ObjectMeta
from penstock_api.resources.broker import Broker, BrokerSpec, BrokerStatus, LagAnalysis
from penstock_api.resources.exchange import Exchange, ExchangeSpec, ExchangeStatus
from penstock_api.resources.manifest import AnyResource, Declaring, Holding, InvalidManifest, load, parse
from penstock_api.resources.queue import Queue, QueueSpec, QueueStatus
from penstock_api.resources.subscription import (
    Lag,
    Losses,
    RepeatedMessage,
    Subscription,
    SubscriptionSpec,
    SubscriptionStatus,
)

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "AnyResource",
    "Broker",
    "BrokerSpec",
    "BrokerStatus",
    "Condition",
    "Declaring",
    "Exchange",
    "ExchangeSpec",
    "ExchangeStatus",
    "Holding",
    "InvalidManifest",
    "Lag",
    "LagAnalysis",
    "Losses",
    "ObjectMeta",
    "Queue",
    "QueueSpec",
    "QueueStatus",
    "RepeatedMessage",
    "Subscription",
    "SubscriptionSpec",
    "SubscriptionStatus",
    "load",
    "parse",
    "quantity_bytes",
]
