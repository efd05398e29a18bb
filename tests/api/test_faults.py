"""What a wrong document is answered with: every field by its path, in words, and no value."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from penstock_api.management import ExchangeDeclaration
from penstock_api.resources import InvalidManifest, parse
from penstock_api.validation_messages import validation_messages

BROKER = {"apiVersion": "penstock.dev/v1alpha1", "kind": "Broker", "metadata": {"name": "shop"}}


def wrong(document: object) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        ExchangeDeclaration.model_validate(document)
    return validation_messages(refused.value, whole="body")


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        pytest.param({"colour": "red"}, "colour: there is no such field", id="unknown"),
        pytest.param({"owner": {"uids": "x"}}, "owner.uids: there is no such field", id="nested"),
        pytest.param({"owner": "me"}, "owner: a map of fields should be here", id="no-map"),
        pytest.param(["colour"], "body: a map of fields should be here", id="whole"),
        pytest.param({"owner": {}}, "owner.kind: is required", id="missing"),
    ],
)
def test_a_fault_names_the_field_and_says_what_is_wrong(document: object, complaint: str) -> None:
    assert complaint in wrong(document)


def test_values_are_not_repeated() -> None:
    assert not any("s3cret" in line for line in wrong({"s": "s3cret", "type": "s3cret", "owner": "s3cret"}))


def test_a_sentence_of_a_validator_stands_alone() -> None:
    with pytest.raises(InvalidManifest, match=r"^Broker shop: spec\.authentication: nobody could connect"):
        parse({**BROKER, "spec": {"authentication": {}}})


@pytest.mark.parametrize("kind", ["Brokr", None])
def test_a_kind_that_does_not_exist_is_answered_with_those_that_do(kind: str | None) -> None:
    with pytest.raises(InvalidManifest, match="kind is one of 'Broker', 'Exchange', 'Subscription'"):
        parse({**BROKER, "kind": kind, "spec": {}} if kind else {**BROKER, "kind": None})
