"""Errors are read from the API server's answers: its words, its causes, and how long it asks to wait."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock_operator.cluster.server_errors import Conflict, Forbidden, KubeError, error_in

PATH = "PATCH /api/v1/namespaces/shop/services/orders-x"


def answer(**fields: Any) -> bytes:
    return json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", **fields}).encode()


def test_the_server_s_words_and_causes_are_kept() -> None:
    causes = [
        {"reason": "FieldValueInvalid", "message": "Invalid value: 0", "field": "spec.ports[0].port"},
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"},
    ]
    found = error_in(422, answer(message="it is invalid: Required value", details={"causes": causes}), {}, PATH)
    assert str(found) == f"422: {PATH}: it is invalid: Required value; spec.ports[0].port: Invalid value: 0"
    assert found.causes == {"FieldValueInvalid", "FieldValueRequired"}
    assert found.retry_after_seconds is None


@pytest.mark.parametrize(("status", "kind"), [(403, Forbidden), (409, Conflict), (404, KubeError), (500, KubeError)])
def test_the_error_has_the_type_of_its_status(status: int, kind: type[KubeError]) -> None:
    assert type(error_in(status, answer(message="no"), {}, PATH)) is kind


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        pytest.param({"Retry-After": "7"}, {}, 7, id="header"),
        pytest.param({}, {"retryAfterSeconds": 3}, 3, id="details"),
        pytest.param({"Retry-After": "7"}, {"retryAfterSeconds": 3}, 7, id="header-first"),
        pytest.param({"Retry-After": "86400"}, {}, 300, id="not-for-a-day"),
        pytest.param({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, None, id="date"),
        pytest.param({"Retry-After": "0"}, {}, None, id="zero"),
    ],
)
def test_how_long_the_server_asks_to_wait(headers: dict[str, str], details: dict[str, Any], seconds: float) -> None:
    found = error_in(429, answer(message="Too many requests", details=details), headers, PATH)
    assert found.retry_after_seconds == seconds


def test_an_answer_that_is_no_status_is_quoted() -> None:
    assert str(error_in(502, b"<html>bad gateway</html>", {}, PATH)) == f"502: {PATH}: <html>bad gateway</html>"
    assert str(error_in(404, b"404 page not found\n", {}, PATH)) == f"404: {PATH}: 404 page not found"
    assert str(error_in(502, b'["x"]', {}, PATH)) == f'502: {PATH}: ["x"]'
