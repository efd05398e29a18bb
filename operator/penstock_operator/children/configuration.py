"""The settings file of a broker pod, and the paths at which the pod mounts files and volumes.

The keys of the file are those of `penstock_broker.settings`; a test compares the two. The rendered file belongs to a
*pod revision* (see `stateful_set`): a new operator may add a revision, but must not change what an existing one
renders, or it would replace the pods. Source: docs/decisions/051-broker-pods.md.
"""

from __future__ import annotations

import hashlib
from typing import Final

import yaml

from penstock_api.page_login import audience_of
from penstock_api.resources import Broker, BrokerSpec, quantity_bytes
from penstock_api.resources.delivery import ClientDeliverySpec, client_settings
from penstock_api.resources.listeners import listener_settings, tls_settings
from penstock_api.resources.security import mechanisms_without_tls
from penstock_api.settings.announcements import announcement_settings
from penstock_api.settings.auto_creation import AutoCreateSpec, creation_settings
from penstock_api.settings.memory import memory_settings
from penstock_api.settings.permissions import permission_settings
from penstock_api.settings.token_issuers import TokenIssuerSpec
from penstock_api.settings.transaction_limits import transaction_settings
from penstock_operator import names
from penstock_operator.children import credentials, server_certificate
from penstock_operator.children.metadata import child_metadata
from penstock_operator.manifest import Manifest

__all__ = [
    "CLIENT_CA",
    "CONFIG",
    "DATA",
    "FILE",
    "LEDGER",
    "OBSERVER",
    "PASSWORD",
    "SOCKET",
    "TLS",
    "USERS",
    "config_map",
    "digest",
    "render",
    "settings_of",
    "token_keys",
]

CONFIG: Final = "/etc/penstock/broker"
TLS: Final = "/etc/penstock/tls"
PASSWORD: Final = "/etc/penstock/management"
USERS: Final = "/etc/penstock/users"
CLIENT_CA: Final = "/etc/penstock/client-ca"
OBSERVER: Final = "/etc/penstock/observer"
RUN: Final = "/run/penstock"
SOCKET: Final = f"{RUN}/observer.sock"
DATA: Final = "/var/lib/penstock/data"
LEDGER: Final = "/var/lib/penstock/ledger"

FILE: Final = "broker.yaml"
_PERMISSIONS: Final = "permissions.yaml"
"""A second file of the ConfigMap. It is not part of the digest: the broker reads it again when it changes, so no pod is
replaced.
"""


def render(broker: Broker, cluster_issuer: str = "", host: str = names.ALL_IPV4) -> str:
    """The settings file of revision 1, as YAML, with what `settings_of` says."""
    return yaml.safe_dump(settings_of(broker, cluster_issuer, host), sort_keys=False)


def settings_of(broker: Broker, cluster_issuer: str = "", host: str = names.ALL_IPV4) -> Manifest:
    """The settings of revision 1; `cluster_issuer` is the issuer name in the tokens of this cluster, and `host` what
    stands for all addresses of a pod.
    """
    spec = broker.spec
    tls: Manifest = {"certificate": f"{TLS}/tls.crt", "key": f"{TLS}/tls.key"}
    management = {
        "address": f"{host}:{names.MANAGEMENT_PORT}",
        "tls": tls,
        "user": credentials.MANAGEMENT_USER,
        "passwordFile": f"{PASSWORD}/password",
    }
    return {
        "listeners": _listeners(broker, tls, host),
        "management": management,
        "observerSocket": SOCKET,
        "probes": f"{host}:{names.PROBE_PORT}",
        "authentication": _authentication(broker, cluster_issuer),
        "maxMessageBytes": quantity_bytes(spec.max_message_size),
        "idleTimeoutSeconds": spec.idle_timeout_seconds,
        **_further(spec),
    }


def _listeners(broker: Broker, tls: Manifest, host: str) -> list[Manifest]:
    spec = broker.spec
    listeners: list[Manifest] = []
    if spec.listeners.amqps:
        about = {"name": "amqps", "address": f"{host}:{names.AMQPS_PORT}"}
        listeners.append({**about, **_with_tls(broker, tls), **listener_settings(spec.listeners, "amqps")})
    if spec.listeners.amqp:
        listeners.append(_without_tls(broker, host))
    if spec.listeners.web_socket:
        about = {"name": "wss", "kind": "webSocket", "address": f"{host}:{names.WEB_SOCKET_PORT}"}
        listeners.append({**about, **_with_tls(broker, tls), **listener_settings(spec.listeners, "webSocket")})
    return listeners


def _authentication(broker: Broker, cluster_issuer: str) -> Manifest:
    spec = broker.spec.authentication
    authentication: Manifest = {"anonymous": spec.anonymous, "allowInsecurePlain": spec.allow_insecure_plain}
    if spec.users_secret_ref is not None:
        authentication["usersFolder"] = USERS
    if spec.client_ca_secret_ref is not None:
        part = spec.certificate_user
        authentication["certificateUser"] = part[0].lower() + part[1:]
    if spec.tokens:
        issuers = enumerate(spec.tokens)
        authentication["tokens"] = [_issuer(broker, number, issuer, cluster_issuer) for number, issuer in issuers]
    if spec.groups:
        authentication["groups"] = {group.name: list(group.users) for group in spec.groups}
    return authentication


def _further(spec: BrokerSpec) -> Manifest:
    """The optional settings that are set. Defaults are left out, so that an operator with more settings renders the
    same file for a Broker that does not use them, and its pods stay.
    """
    settings: Manifest = {}
    if spec.permissions is not None:
        settings["permissionsFile"] = f"{CONFIG}/{_PERMISSIONS}"
    limits = spec.limits.model_dump(mode="json", by_alias=True, exclude_none=True)
    if limits:
        settings["limits"] = limits
    if spec.page.show_messages:
        settings["observerPeek"] = True
    if spec.auto_create != AutoCreateSpec():
        settings["autoCreate"] = creation_settings(spec.auto_create)
    if spec.delivery != ClientDeliverySpec():
        settings["delivery"] = client_settings(spec.delivery)
    for key, further in (
        ("announce", announcement_settings(spec.announce)),
        ("memory", memory_settings(spec.memory)),
        ("transactions", transaction_settings(spec.transactions)),
    ):
        if further:
            settings[key] = further
    return settings


def _issuer(broker: Broker, number: int, issuer: TokenIssuerSpec, cluster_issuer: str) -> Manifest:
    fields = issuer.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"keys_config_map_ref"})
    if issuer.is_cluster:
        fields["issuer"] = cluster_issuer
    own = audience_of(broker.metadata.namespace, broker.metadata.name)
    return {**fields, "audiences": list(issuer.audiences) or [own], "keysFile": f"{token_keys(number)}/keys"}


def token_keys(number: int) -> str:
    """The path at which the keys of a token issuer are mounted; `number` is its index in `authentication.tokens`."""
    return f"/etc/penstock/token-keys/{number}"


def _with_tls(broker: Broker, tls: Manifest) -> Manifest:
    """The TLS settings and SASL mechanisms of a listener with TLS."""
    authentication = broker.spec.authentication
    if broker.spec.tls.is_own:
        folder = server_certificate.FOLDER
        tls = {"certificate": f"{folder}/tls.crt", "key": f"{folder}/tls.key"}
    further = tls_settings(broker.spec.listeners)
    if further:  # If there is nothing to add, YAML must still write a reference to the management listener's map.
        tls = {**tls, **further}
    if authentication.client_ca_secret_ref is not None:
        wanted = authentication.client_certificates.lower()
        tls = {**tls, "clientCa": f"{CLIENT_CA}/ca.crt", "clientCertificates": wanted}
    listener: Manifest = {"tls": tls}
    if authentication.mechanisms is not None:
        listener["saslMechanisms"] = list(authentication.mechanisms)
    return listener


def _without_tls(broker: Broker, host: str) -> Manifest:
    listener: Manifest = {"name": "amqp", "address": f"{host}:{names.AMQP_PORT}"}
    if broker.spec.authentication.mechanisms is not None:
        listener["saslMechanisms"] = list(mechanisms_without_tls(broker.spec.authentication))
    return {**listener, **listener_settings(broker.spec.listeners, "amqp")}


def digest(rendered: str) -> str:
    """A digest of the settings file. It is part of the pod template, so that other settings replace the pods."""
    return hashlib.sha256(rendered.encode()).hexdigest()[:16]


def config_map(broker: Broker, rendered: str, annotations: Manifest | None = None) -> Manifest:
    """The ConfigMap `<broker>-config`: the settings file, and the permissions file if the spec has permissions."""
    data: Manifest = {FILE: rendered}
    if broker.spec.permissions is not None:
        grants = {"permissions": permission_settings(broker.spec.permissions)}
        data[_PERMISSIONS] = yaml.safe_dump(grants, sort_keys=False)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(broker, broker, f"{broker.metadata.name}-config", annotations),
        "data": data,
    }
