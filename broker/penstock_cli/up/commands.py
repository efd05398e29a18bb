"""The broker's configuration and the command line of each child process, made from the manifests. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from penstock_api.resources import Broker, quantity_bytes
from penstock_api.resources.delivery import client_settings
from penstock_api.resources.listeners import listener_settings
from penstock_api.settings.announcements import announcement_settings
from penstock_api.settings.auto_creation import AutoCreateSpec, creation_settings
from penstock_api.settings.memory import memory_settings
from penstock_api.settings.transaction_limits import transaction_settings
from penstock_cli.up.children import ChildProcess
from penstock_cli.up.layout import Layout
from penstock_cli.up.security import is_open, security_settings
from penstock_cli.up.tls_listener import encrypted_listener

__all__ = ["Endpoints", "Pace", "broker_child", "broker_settings", "lag_child", "observer_child", "serves_plain"]

PENSTOCK = (sys.executable, "-m", "penstock_cli")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """HOST:PORT of each listener; a port 0 has been replaced by a free port."""

    amqp: str
    observer: str
    amqps: str | None = None
    """With TLS; None if the Broker asks for none."""

    @property
    def observer_url(self) -> str:
        """Base URL of the observer."""
        return f"http://{self.observer}"


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between two snapshots of the observer, and age at which a ledger segment is finished."""

    snapshot_seconds: float
    segment_seconds: float


def broker_settings(broker: Broker, endpoints: Endpoints, layout: Layout, folder: Path) -> dict[str, object]:
    """The broker's configuration: the settings of the Broker resource, with listeners on this machine.

    `folder` holds the manifests. Raises `Misuse` if they ask for something that needs a cluster.
    """
    spec = broker.spec
    of_listener, security = security_settings(broker, folder, layout)
    further = {
        "announce": announcement_settings(spec.announce),
        "memory": memory_settings(spec.memory),
        "transactions": transaction_settings(spec.transactions),
    }
    listeners: list[dict[str, object]] = []
    if serves_plain(broker):
        plain = {"name": "amqp", "address": endpoints.amqp}
        listeners.append({**plain, **of_listener, **listener_settings(spec.listeners, "amqp")})
    if endpoints.amqps is not None:
        listeners.append(encrypted_listener(broker, folder, layout, endpoints.amqps))
    return {
        # Without spec.autoCreate every queue and topic that a client names is made, unlike on Kubernetes.
        "autoCreate": True if spec.auto_create == AutoCreateSpec() else creation_settings(spec.auto_create),
        **security,
        **{key: value for key, value in further.items() if value},
        "listeners": listeners,
        "management": {"address": f"unix:{layout.management}"},
        "observerSocket": str(layout.observer),
        "maxMessageBytes": quantity_bytes(spec.max_message_size),
        "idleTimeoutSeconds": spec.idle_timeout_seconds,
        "delivery": client_settings(spec.delivery),
    }


def serves_plain(broker: Broker) -> bool:
    """Whether any client can log in without TLS; with certificates alone none can."""
    given = broker.spec.authentication
    return given.anonymous or given.users_secret_ref is not None or bool(given.tokens)


def broker_child(broker: Broker, layout: Layout) -> ChildProcess:
    """The broker, in development mode (ANONYMOUS, guest/guest) if its manifest lets everybody do everything."""
    mode = ("--dev",) if is_open(broker) else ()
    command = (*PENSTOCK, "broker", "--data", str(layout.data), "--config", str(layout.broker_config), *mode)
    return ChildProcess("broker", (*command, *_log_options(broker)), layout.log("broker"))


def observer_child(broker: Broker, endpoints: Endpoints, layout: Layout, pace: Pace) -> ChildProcess:
    """The observer, as the second container of a pod would run."""
    options = {
        "--broker-socket": layout.observer,
        "--ledger": layout.ledger,
        "--listen": endpoints.observer,
        "--token-file": layout.token,
        "--broker": broker.metadata.name,
        "--namespace": broker.metadata.namespace,
        "--interval": pace.snapshot_seconds,
        "--segment-seconds": pace.segment_seconds,
    }
    words = (str(word) for option in options.items() for word in option)
    return ChildProcess("observer", (*PENSTOCK, "observer", *words, *_log_options(broker)), layout.log("observer"))


def _log_options(broker: Broker) -> tuple[str, ...]:
    return tuple(f"--{name}={word}" for name, word in broker.spec.logging.options().items())


def showing_messages(observer: ChildProcess, layout: Layout) -> ChildProcess:
    """The same observer, whose page shows messages to the holder of its token."""
    return replace(observer, command=(*observer.command, "--messages-token-file", str(layout.token)))


def lag_child(broker: Broker, endpoints: Endpoints, layout: Layout, run_name: str) -> ChildProcess:
    """One run of the lag job; its result goes to the observer."""
    options = {
        "--observer": endpoints.observer_url,
        "--token-file": layout.token,
        "--broker": broker.metadata.name,
        "--namespace": broker.metadata.namespace,
        "--window": broker.spec.lag_analysis.window_minutes * 60,
        "--run-name": run_name,
    }
    words = (str(word) for option in options.items() for word in option)
    # As where the operator schedules it: two minutes before, the run ends itself (penstock_lag.deadline).
    seconds = 60 * broker.spec.lag_analysis.deadline_minutes + 120
    environment = {"PENSTOCK_LAG_DEADLINE_SECONDS": str(seconds)}
    return ChildProcess("lag", (*PENSTOCK, "lag", *words), layout.log("lag"), environment)
