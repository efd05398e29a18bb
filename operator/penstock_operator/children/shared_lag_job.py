"""The operator's one lag job for all its Brokers: its schedule, and the Secret with what a run has to know of each.

The pods of the job have this Secret alone, with a token for each Broker that is good for its ledger and its lag results
and for nothing else. Source: docs/decisions/071-one-lag-job.md; docs/reference/lag-job.md, "Many Brokers in one run".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from pydantic import ValidationError

from penstock_api.lag_targets import VERSION, LagTarget, LagTargets
from penstock_operator import names
from penstock_operator.children import lag_schedules
from penstock_operator.children.lag_schedules import LagJob
from penstock_operator.lag_options import LagJobOptions
from penstock_operator.manifest import Manifest, dig

__all__ = ["BrokerName", "Member", "cron", "members_of", "schedule", "secret", "secret_data"]

DOCUMENT: Final = "brokers.json"
MOUNT: Final = "/etc/penstock/lag"
MAX_BYTES: Final = 1_000_000
"""Of the data of the Secret; the API server accepts 1 MiB. A Broker needs some 1,100 bytes, or 1,500 with
the longest names, so at least 600 fit.
"""


class BrokerName(NamedTuple):
    """A Broker, by what its result is about."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A Broker in the job."""

    broker: BrokerName
    window_seconds: int
    token: bytes
    """The token of the lag job for this Broker's observer."""
    ca: bytes
    """The certificate that signs the observer's, PEM."""

    @property
    def files(self) -> tuple[str, str]:
        """The names of the files with token and certificate. Neither namespaces nor Brokers have dots in their names,
        so two Brokers never share one.
        """
        stem = ".".join(self.broker)
        return f"{stem}.token", f"{stem}.crt"

    @property
    def target(self) -> LagTarget:
        """The Broker's entry in the document."""
        token, ca = self.files
        host = names.service_host(f"{self.broker.name}-observer", self.broker.namespace)
        return LagTarget(
            namespace=self.broker.namespace,
            broker=self.broker.name,
            observers=(f"https://{host}:{names.OBSERVER_PORT}",),
            token_file=token,
            ca_file=ca,
            window_seconds=self.window_seconds,
        )


def secret_data(
    members: Sequence[Member], max_bytes: int = MAX_BYTES
) -> tuple[dict[str, bytes], frozenset[BrokerName]]:
    """The files of the Secret, and the Brokers for which there is no room in it.

    Those that come first in `members` get the room. The document has them in the order of their names, so that it is
    the same for the same Brokers.
    """
    left = max_bytes - len(_document(()))
    taken: list[Member] = []
    for member in members:
        needs = len(member.token) + len(member.ca) + sum(map(len, member.files))
        needs += len(member.target.model_dump_json(by_alias=True, exclude_none=True)) + 1
        if needs <= left:
            left -= needs
            taken.append(member)
    taken.sort(key=lambda member: member.broker)
    data = {DOCUMENT: _document(taken)}
    for member in taken:
        token, ca = member.files
        data |= {token: member.token, ca: member.ca}
    return data, frozenset(member.broker for member in members) - {member.broker for member in taken}


def _document(members: Sequence[Member]) -> bytes:
    return LagTargets(version=VERSION, brokers=tuple(member.target for member in members)).to_json().encode()


def members_of(observed: Manifest | None) -> dict[BrokerName, Member]:
    """The Brokers in an existing Secret. What can't be read is left out; it is then written anew."""
    data = dig(observed, "data")
    encoded: Mapping[str, object] = cast(Mapping[str, object], data) if isinstance(data, Mapping) else {}
    files = {name: _decoded(text) for name, text in encoded.items()}
    try:
        document = LagTargets.model_validate_json(files.get(DOCUMENT) or b"")
    except ValidationError:
        return {}
    found: dict[BrokerName, Member] = {}
    for target in document.brokers:
        token, ca = files.get(target.token_file), files.get(target.ca_file or "")
        if token and ca:
            name = BrokerName(target.namespace, target.broker)
            found[name] = Member(broker=name, window_seconds=target.window_seconds, token=token, ca=ca)
    return found


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error:
        return b""


def secret(options: LagJobOptions, owner: str | None, data: Mapping[str, bytes]) -> Manifest:
    """The Secret. `owner`: uid of the operator's Deployment, None if nothing owns the job."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(options, owner),
        "type": "Opaque",
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def cron(options: LagJobOptions) -> str:
    """When the job runs: a cron expression, in UTC."""
    return lag_schedules.cron(f"{options.namespace}/{options.name}", options.interval_minutes)


def schedule(options: LagJobOptions, owner: str | None, lag_image: str, kind: str) -> Manifest:
    """The schedule, of one of the two kinds."""
    job = LagJob(
        metadata=_metadata(options, owner),
        image=lag_image,
        image_pull_policy=options.image_pull_policy,
        image_pull_secrets=options.image_pull_secrets,
        arguments=[f"--brokers={MOUNT}/{DOCUMENT}"],
        secret=options.name,
        mount=MOUNT,
        cron=cron(options),
        deadline_minutes=options.deadline_minutes,
        suspend=options.suspend,
        memory=options.memory,
        service_account=options.name,
        pod_labels={"app.kubernetes.io/name": lag_schedules.APP, "app.kubernetes.io/instance": options.name},
        executors=options.executors,
        spark_conf=options.spark_conf,
        node_selector=options.node_selector,
        tolerations=options.tolerations,
        cpu_limit=options.cpu_limit,
        priority_class_name=options.priority_class_name,
    )
    if kind == "CronJob":
        return lag_schedules.cron_job(job)
    return lag_schedules.scheduled_application(job)


def _metadata(options: LagJobOptions, owner: str | None) -> Manifest:
    made: Manifest = {
        "name": options.name,
        "namespace": options.namespace,
        "labels": {
            "app.kubernetes.io/name": lag_schedules.APP,
            "app.kubernetes.io/instance": options.name,
            "app.kubernetes.io/managed-by": names.MANAGER,
        },
    }
    if owner is None:
        return made
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": options.deployment,
        "uid": owner,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {**made, "ownerReferences": [reference]}
