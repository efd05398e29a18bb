"""The examples are valid manifests, and each begins with a comment for its readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_api.resources import load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "kubernetes"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_good(path: Path) -> None:
    assert list(load(path.read_text())) != []
    assert path.read_text().startswith("# ")


def test_the_whole_one_has_three_subscriptions_of_one_exchange() -> None:
    kinds = [resource.kind for resource in load((EXAMPLES / "whole.yaml").read_text())]
    assert kinds == ["Broker", "Exchange", "Subscription", "Subscription", "Subscription"]
