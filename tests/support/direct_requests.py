"""Requests to the API server of hack/cluster over one connection.

A kubectl is a process of half a second that asks for the kinds first; a table of two hundred manifests wants neither.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

__all__ = ["DirectRequests", "RefusedRequest", "connected"]

_PLURALS = {"Broker": "brokers", "Exchange": "exchanges", "Queue": "queues", "Subscription": "subscriptions"}


class RefusedRequest(Exception):
    """The API server's message about a request that it did not carry out."""


@dataclass(frozen=True, slots=True)
class DirectRequests:
    """Penstock's resources in one namespace. Each method returns the object as the API server has it then.

    Raises:
        RefusedRequest: the API server refused it.
    """

    namespace: str
    _connection: http.client.HTTPSConnection

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create it as `kubectl create --validate=strict` does."""
        return self._ask("POST", f"{self._path(manifest['kind'])}?fieldValidation=Strict", "json", manifest)

    def merge(self, kind: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        """Change it as `kubectl patch --type=merge` does."""
        return self._ask("PATCH", f"{self._path(kind)}/{name}", "merge-patch+json", patch)

    def _path(self, kind: str) -> str:
        return f"/apis/penstock.dev/v1alpha1/namespaces/{self.namespace}/{_PLURALS[kind]}"

    def _ask(self, method: str, path: str, content: str, body: dict[str, Any]) -> dict[str, Any]:
        self._connection.request(method, path, json.dumps(body), {"Content-Type": f"application/{content}"})
        answer = self._connection.getresponse()
        document: dict[str, Any] = json.loads(answer.read())
        if answer.status >= 300:
            raise RefusedRequest(document["message"])
        return document


@contextmanager
def connected(kubeconfig: Path, namespace: str) -> Generator[DirectRequests]:
    """A connection with the certificate of a kubeconfig of hack/cluster, which has one cluster and one user."""
    config = yaml.safe_load(kubeconfig.read_text())
    (cluster,), (user,) = config["clusters"], config["users"]
    trusted = base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=trusted)
    with tempfile.NamedTemporaryFile() as pair:  # the standard library reads a key from files alone
        for name in ("client-certificate-data", "client-key-data"):
            pair.write(base64.b64decode(user["user"][name]))
        pair.flush()
        context.load_cert_chain(pair.name)
    server = urlsplit(str(cluster["cluster"]["server"]))
    connection = http.client.HTTPSConnection(server.hostname or "", server.port, timeout=60, context=context)
    try:
        yield DirectRequests(namespace, connection)
    finally:
        connection.close()
