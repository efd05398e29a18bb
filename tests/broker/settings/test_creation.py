"""`autoCreate` of the configuration file, in its short and its long form."""

from __future__ import annotations

import pytest
import yaml
from pydantic import ValidationError

from penstock_api.settings.auto_creation import creation_of, unused_queue_seconds
from penstock_broker.settings.settings import BrokerSettings
from penstock_core.auto_creation import ANYTHING, NOTHING, AutoCreation, CreationRule

LONG = """
autoCreate:
  queues: {names: ["app.*"], limit: 10, deleteUnusedSeconds: 3600}
  topics: true
"""


def read(text: str) -> BrokerSettings:
    return BrokerSettings.model_validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "creation", "seconds"),
    [
        ("{}", NOTHING, None),
        ("autoCreate: false", NOTHING, None),
        ("autoCreate: true", ANYTHING, None),
        ("autoCreate: {}", NOTHING, None),
        ("autoCreate: {queues: true}", AutoCreation(CreationRule(("*",)), CreationRule()), None),
        ("autoCreate: {topics: {names: [a, b]}}", AutoCreation(CreationRule(), CreationRule(("a", "b"))), None),
        (LONG, AutoCreation(CreationRule(("app.*",), 10), CreationRule(("*",))), 3600),
    ],
)
def test_forms(text: str, creation: AutoCreation, seconds: int | None) -> None:
    given = read(text).auto_create
    assert creation_of(given) == creation
    assert unused_queue_seconds(given) == seconds


@pytest.mark.parametrize(
    "text", ["autoCreate: {queues: {limit: -1}}", "autoCreate: {topics: {deleteUnusedSeconds: 1}}", "autoCreate: 7"]
)
def test_what_is_wrong(text: str) -> None:
    with pytest.raises(ValidationError):
        read(text)


def test_dev_makes_what_is_named_unless_the_file_says_what() -> None:
    assert creation_of(read("{}").for_dev().auto_create) == ANYTHING
    assert creation_of(read(LONG).for_dev().auto_create) == creation_of(read(LONG).auto_create)
