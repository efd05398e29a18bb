"""KEDA's scaler metrics-api, read again from its documentation, against the real server over TLS.

The reader below takes the example of docs/how-to/autoscaling.md and does what KEDA says that it does
(https://keda.sh/docs/2.17/scalers/metrics-api/): a GET of `url`; with `authMode: bearer` the header `Authorization:
Bearer {token}`, with `apiKey` the header `X-API-KEY`; the server's certificate must be signed by `ca`; every status but
200 is an error; the value at `valueLocation` must be an unquoted number. The Secret is the operator's.
"""

from __future__ import annotations

import base64
import json
import math
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from observer.samples import START_MS, a_poll, a_subscription
from support.resources import broker, subscription

from penstock_api.lag_result import SubscriptionLag
from penstock_api.management import Owner
from penstock_observer.http import Api, make_app
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_view import LiveView
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin
from penstock_observer.secrets import TokenFile
from penstock_operator.children import certificates, credentials, scale_secret
from penstock_operator.children.certificates import Pair
from penstock_operator.children.scale_secret import ScaleAccess
from penstock_operator.manifest import Manifest, text_at

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = list(yaml.safe_load_all((ROOT / "examples/kubernetes/keda/billing.yaml").read_text(encoding="utf-8")))
OWNER = Owner(cluster_id="c", kind="Subscription", namespace="shop", name="billing", uid="u")


class ScalerError(Exception):
    """What makes KEDA count a failure, for `fallback`."""


class HostsFile(AbstractResolver):
    """Every name of a Service is this machine, and its port the server's."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        assert (host, port) == ("main-observer.shop.svc", 8080)
        address = ResolveResult(hostname=host, host="127.0.0.1", port=self.port, family=family, proto=0, flags=0)
        return [address]

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Keda:
    """A scaler that reads a trigger, and the parameters of its TriggerAuthentication from Secrets."""

    port: int
    secrets: dict[str, Manifest]

    async def value(self, example: list[Any]) -> float:
        """The value of the metric. Raises ScalerError."""
        authentication, scaled = example
        (trigger,) = scaled["spec"]["triggers"]
        assert trigger["type"] == "metrics-api"
        assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
        assert authentication["metadata"]["namespace"] == scaled["metadata"]["namespace"]
        metadata = trigger["metadata"]
        assert all(isinstance(text, str) for text in metadata.values()), "metadata of a trigger is text"
        float(metadata["targetValue"])
        float(metadata["activationTargetValue"])
        parameters = {it["parameter"]: self._secret(it) for it in authentication["spec"]["secretTargetRef"]}
        headers = {
            "bearer": lambda: {"Authorization": f"Bearer {parameters['token']}"},
            "apiKey": lambda: {"X-API-KEY": parameters["apiKey"]},
        }[metadata["authMode"]]()
        context = ssl.create_default_context(cadata=parameters["ca"])
        connector = aiohttp.TCPConnector(resolver=HostsFile(self.port), ssl=context)
        async with aiohttp.ClientSession(connector=connector) as session:
            try:
                async with session.get(metadata["url"], headers=headers) as answer:
                    body = await answer.read()
            except aiohttp.ClientError as error:
                raise ScalerError(str(error)) from error
        if answer.status != 200:
            raise ScalerError(f"api returned {answer.status}")
        value = json.loads(body)
        for name in metadata["valueLocation"].split("."):
            value = value.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ScalerError(f"valueLocation must point to value of type number: {value!r}")
        return float(value)

    def _secret(self, reference: dict[str, str]) -> str:
        encoded = text_at(self.secrets[reference["name"]], "data", reference["key"])
        assert encoded is not None, f"the Secret has no key {reference['key']}"
        return base64.b64decode(encoded).decode()


@dataclass
class Place:
    """A server over TLS with what the operator's Secrets say, and a KEDA that may read one of them."""

    api: Api
    keda: Keda
    access: ScaleAccess


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    now = datetime.now(UTC)
    made = credentials.renew({}, broker(), ["*.shop.svc"], now, lambda n: "r" * n + str(n), knows_scopes=True)
    for name, text in made.observer.items():
        (tmp_path / name).write_text(text)
    api = Api(
        LiveView(),
        Ledger(
            tmp_path / "ledger",
            RowOrigin("main", 0, 1000),
            SealLimits(60, 1000, 10**9),
            RetentionLimits(10**12, 10**12),
        ),
        ResultStore(tmp_path / "results", BrokerPod("main", "shop", 0), keep=3),
        BrokerPod("main", "shop", 0),
        TokenFile(tmp_path / "token"),
        lambda: now,
    )
    runner = web.AppRunner(make_app(api), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving(made.server, tmp_path)).start()
    access = ScaleAccess(made.scale_key, made.ca.certificate)
    secret = scale_secret.manifest(broker(), subscription(metadata={"name": "billing", "uid": "u"}), access)
    yield Place(api, Keda(runner.addresses[0][1], {"billing-scale": secret}), access)
    await runner.cleanup()
    api.ledger.close()


def serving(pair: Pair, folder: Path) -> ssl.SSLContext:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def changed(**metadata: str) -> list[Any]:
    """The example with other metadata of its trigger."""
    authentication, scaled = json.loads(json.dumps(EXAMPLE))
    scaled["spec"]["triggers"][0]["metadata"] |= metadata
    return [authentication, scaled]


async def test_the_example_reads_the_lag_of_its_subscription(place: Place) -> None:
    """As it stands in the repository, with the Secret that the operator writes."""
    place.api.live.answered(a_poll(START_MS, a_subscription("billing", depth=9, ready=4, in_flight=3, owner=OWNER)))
    assert await place.keda.value(EXAMPLE) == 7.0
    written = text_at(place.keda.secrets["billing-scale"], "data", "url") or ""
    metadata = EXAMPLE[1]["spec"]["triggers"][0]["metadata"]
    assert metadata["url"] == base64.b64decode(written).decode() + "?perConsumer=" + metadata["targetValue"]


@pytest.mark.parametrize(
    ("state", "suggested", "replicas"),
    [("Lagging", 5, 5), ("Lagging", None, 18), ("OK", None, 18), ("Stalled", None, 2), ("Poison", None, 2)],
)
async def test_the_example_asks_for_no_more_consumers_than_are_known_to_help(
    place: Place, state: str, suggested: int | None, replicas: int
) -> None:
    """9,000 messages at 500 each would be 18 replicas; KEDA divides by `targetValue` and rounds up."""
    waits = a_subscription("billing", depth=9_000, ready=9_000, consumers=2, owner=OWNER)
    lag = SubscriptionLag.model_validate(
        {
            "queueName": waits.queue_name,
            "observedTime": "2026-03-01T12:00:00Z",
            "state": state,
            "message": "It is so.",
            "suggestedConsumers": suggested,
        }
    )
    place.api.live.answered(a_poll(START_MS, waits), (lag,))
    target = float(EXAMPLE[1]["spec"]["triggers"][0]["metadata"]["targetValue"])
    assert math.ceil(await place.keda.value(EXAMPLE) / target) == replicas


@pytest.mark.parametrize(
    "figure", ["lag", "ready", "inFlight", "oldestSeconds", "consumers", "consumerCap", "cappedLag"]
)
async def test_every_figure_is_a_number(place: Place, figure: str) -> None:
    place.api.live.answered(a_poll(START_MS, a_subscription("billing", owner=OWNER)))
    await place.keda.value(changed(valueLocation=figure))


async def test_what_is_not_computed_is_no_figure(place: Place) -> None:
    """Neither 0 nor a guess: KEDA says that it is missing."""
    place.api.live.answered(a_poll(START_MS, a_subscription("billing", owner=OWNER)))
    with pytest.raises(ScalerError, match="must point to value of type number: None"):
        await place.keda.value(changed(valueLocation="suggestedConsumers"))


async def test_an_api_key_does_as_well(place: Place) -> None:
    place.api.live.answered(a_poll(START_MS, a_subscription("billing", ready=2, depth=2, owner=OWNER)))
    example = changed(authMode="apiKey")
    example[0]["spec"]["secretTargetRef"][0]["parameter"] = "apiKey"
    assert await place.keda.value(example) == 2.0


async def test_an_outage_is_an_error_and_never_zero(place: Place) -> None:
    """Before the first poll, while the broker is away, when the subscription is gone: `fallback` applies."""
    with pytest.raises(ScalerError, match="503"):
        await place.keda.value(EXAMPLE)
    place.api.live.answered(a_poll(START_MS, a_subscription("billing", owner=OWNER)))
    place.api.live.away("the broker does not answer")
    with pytest.raises(ScalerError, match="503"):
        await place.keda.value(EXAMPLE)
    place.api.live.answered(a_poll(START_MS))
    with pytest.raises(ScalerError, match="404"):
        await place.keda.value(EXAMPLE)


async def test_the_token_of_one_subscription_reads_no_other(place: Place) -> None:
    place.api.live.answered(a_poll(START_MS, a_subscription("billing", owner=OWNER), a_subscription(owner=OWNER)))
    url = EXAMPLE[1]["spec"]["triggers"][0]["metadata"]["url"]
    with pytest.raises(ScalerError, match="401"):
        await place.keda.value(changed(url=url.replace("billing", "orders")))


async def test_a_server_of_another_authority_is_not_asked(place: Place) -> None:
    other = ScaleAccess(place.access.key, certificates.make_ca("other", datetime.now(UTC)).certificate)
    stranger = scale_secret.manifest(broker(), subscription(metadata={"name": "billing", "uid": "u"}), other)
    with pytest.raises(ScalerError, match="certificate"):
        await Keda(place.keda.port, {"billing-scale": stranger}).value(EXAMPLE)


def test_the_example_is_complete() -> None:
    """Fields of a ScaledObject (https://keda.sh/docs/2.17/reference/scaledobject-spec/) that decide in an outage."""
    spec = EXAMPLE[1]["spec"]
    assert spec["fallback"]["failureThreshold"] >= 1
    assert spec["minReplicaCount"] <= spec["fallback"]["replicas"] <= spec["maxReplicaCount"]
    assert {"pollingInterval", "cooldownPeriod"} <= set(spec)
    # A subscription with one message must get a consumer.
    assert float(spec["triggers"][0]["metadata"]["activationTargetValue"]) < 1
