"""Somebody removes a CRD while the operator runs, and installs it again: what the log says, and that the operator goes
on. The API server is a real one; kopf runs as it does in the cluster.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.api_server_alone import ApiServerAlone, api_server_alone
from support.ended_operator import end_operator
from support.operator_in_memory import resource
from support.waiting import wait_until

from penstock_operator.brokers.management import BrokerManagement, ManagementAccess, Unreachable
from penstock_operator.main import operate
from penstock_operator.settings import OperatorSettings

pytestmark = pytest.mark.built

QUEUES = "queues.penstock.dev"
SETTINGS = OperatorSettings(
    broker_image="b", lag_image="l", own_namespace="default", liveness_host="127.0.0.1", liveness_port=0, lease=""
)


async def no_broker(_access: ManagementAccess) -> BrokerManagement:
    raise Unreachable("there is no broker")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServerAlone]:
    with api_server_alone(tmp_path) as made:
        yield made


def apply(server: ApiServerAlone, folder: Path, manifest: dict[str, Any]) -> None:
    path = folder / "applied.yaml"
    path.write_text(yaml.safe_dump(manifest))
    server.kubectl("apply", "-f", str(path))


def ready(server: ApiServerAlone, kind: str, name: str) -> str:
    """The reason of its condition Ready."""
    shown = json.loads(server.kubectl("-n", "shop", "get", kind, name, "-o", "json"))["status"]["conditions"]
    return next(str(it["reason"]) for it in shown if it["type"] == "Ready")


async def test_a_removed_crd_is_one_line_and_its_return_is_seen(
    server: ApiServerAlone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    caplog.set_level(logging.INFO)
    running = asyncio.create_task(operate(SETTINGS, no_broker, str(server.kubeconfig)))

    def logged(part: str) -> list[str]:
        return [message for message in caplog.messages if part in message]

    async def seen(kind: str, name: str, reason: str) -> None:
        async def is_seen() -> bool:
            assert not running.done(), running
            return await asyncio.to_thread(ready, server, kind, name) == reason

        await wait_until(is_seen)

    async def said(part: str) -> None:
        async def is_said() -> bool:
            assert not running.done(), running
            return bool(logged(part))

        await wait_until(is_said)

    apply(server, tmp_path, resource("Queue", "before"))
    await seen("queue.penstock.dev", "before", "BrokerNotFound")
    await said("Initial authentication has finished.")
    server.kubectl("annotate", "crd", QUEUES, "penstock.dev/delete-protection-")
    server.kubectl("delete", "crd", QUEUES)
    await said("the watches begin anew")
    await said("the API server does not know a kind")
    lists = [record.args for record in caplog.records if "does not know a kind" in str(record.msg)]
    assert lists == [("GET /apis/penstock.dev/v1alpha1/queues: 404 page not found",)]
    apply(server, tmp_path, resource("Exchange", "meanwhile"))
    await seen("exchange.penstock.dev", "meanwhile", "BrokerNotFound")
    assert len(logged("does not know a kind")) == 1
    server.apply_crds()
    await said("the API server knows all kinds again")
    apply(server, tmp_path, resource("Queue", "after"))
    await seen("queue.penstock.dev", "after", "BrokerNotFound")
    assert [
        record.getMessage() for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR
    ] == []
    await end_operator(running)
