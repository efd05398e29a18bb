"""The name of the operator's lag job: of each release its own, and short enough for the names of the runs' pods."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.helm_template import OPERATOR, rendered

from penstock_operator.lag_options import LagJobOptions

pytestmark = pytest.mark.built  # hack/cluster builds Helm

LONG = "messaging-platform-of-the-eastern-re"
"""36 characters."""


def made(release: str) -> tuple[LagJobOptions, list[dict[str, Any]]]:
    """What the operator is told, and the rules of its Role for the job."""
    found = rendered(OPERATOR, release=release)
    (deployment,) = [it for it in found if it["kind"] == "Deployment"]
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    told = next(it["value"] for it in env if it["name"] == "PENSTOCK_OPERATOR_LAG_JOB")
    options = LagJobOptions.model_validate(json.loads(told))
    accounts = {it["metadata"]["name"] for it in found if it["kind"] == "ServiceAccount"}
    assert options.name in accounts
    (role,) = [it for it in found if it["kind"] == "Role" and it["metadata"]["name"] == f"{options.deployment}-lag"]
    return options, role["rules"]


@pytest.mark.parametrize("release", ["one", LONG[:35]])
def test_a_name_that_fits_is_that_of_the_release(release: str) -> None:
    """As in every release before, with no right that is not needed."""
    options, rules = made(release)
    assert options.name == options.former_name == f"{release}-lag"
    assert len(rules) == 5


@pytest.mark.parametrize(
    ("release", "former"),
    [
        (LONG, "messaging-platform-of-the-eastern-r-lag"),
        (f"{LONG}gion", "messaging-platform-of-the-eastern-r-lag"),
        ("a.b", "a-b-lag"),
        ("1a", "r1a-lag"),
    ],
)
def test_any_other_has_a_hash_and_what_was_made_without_it_may_be_deleted(release: str, former: str) -> None:
    options, rules = made(release)
    assert options.former_name == former
    assert re.fullmatch(r"[a-z][-a-z0-9]{0,26}-[0-9a-f]{8}-lag", options.name)
    assert len(options.name) <= 40
    of_former = [rule for rule in rules if rule.get("resourceNames") == [former]]
    assert [rule["resources"] for rule in of_former] == [["secrets"], ["cronjobs"], ["scheduledsparkapplications"]]
    assert {verb for rule in of_former for verb in rule["verbs"]} == {"get", "delete"}


def test_no_two_releases_share_a_job() -> None:
    releases = [LONG, f"{LONG}gion", LONG[:35], "a.b", "a-b", "1a", "r1a"]
    assert len({made(release)[0].name for release in releases}) == len(releases)
