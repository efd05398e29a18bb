"""What Argo CD, Flux and kubectl conclude from our resources: the script of docs/how-to/gitops.md in Lua 5.1, as Argo
CD runs it, and the rules of kstatus, applied to what the plans report. The expectations are typed by hand.

The libraries that Flux and Argo CD use are asked, too, by a program in Go.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
# lupa has no types.

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from clients.example_clients import BUILD_SECONDS, program
from lupa import lua51
from support.gitops_objects import EVERY, SCRIPT, Seen, argo_health
from support.resources import NOW, manifest_of

from penstock_operator.plans import conditions
from penstock_operator.plans.decisions import Report
from penstock_operator.plans.unreadable_resources import UnreadableView, plan_unreadable
from penstock_operator.reconcile import status

TOOLS = Path(__file__).parents[1] / "support" / "gitops_tools"


def of_argo(manifest: Any) -> tuple[str, str]:
    """Health and message by the script; Argo CD passes the object as `obj`."""
    runtime = lua51.LuaRuntime(unpack_returned_tuples=True)
    runtime.globals().obj = runtime.table_from(manifest, recursive=True)
    returned: Any = runtime.execute(SCRIPT)
    return argo_health(manifest, {str(key): str(it) for key, it in returned.items()})


def of_kstatus(manifest: Any) -> str:
    """The status by sigs.k8s.io/cli-utils, pkg/kstatus/status, for custom resources."""
    if "deletionTimestamp" in manifest["metadata"]:
        return "Terminating"
    shown = manifest["status"]
    if shown["observedGeneration"] != manifest["metadata"]["generation"]:
        return "InProgress"
    by_type = {each["type"]: each["status"] for each in shown["conditions"]}
    if by_type.get("Reconciling") == "True":
        return "InProgress"
    if by_type.get("Stalled") == "True":
        return "Failed"
    return "Current" if by_type.get("Ready", "True") == "True" else "InProgress"


@pytest.mark.parametrize(("manifest", "seen"), EVERY.values(), ids=EVERY)
def test_what_each_tool_makes_of_it(manifest: Any, seen: Seen) -> None:
    health, message = of_argo(manifest)
    assert (of_kstatus(manifest), health) == (seen.kstatus, seen.argo)
    assert seen.says in message


def test_an_object_without_status_is_in_progress_for_argo() -> None:
    assert of_argo(manifest_of("Broker", {}, None, {})) == ("Progressing", "Waiting for the operator")


@pytest.mark.parametrize("manifest", [entry for entry, _ in EVERY.values()], ids=EVERY)
def test_every_condition_speaks_of_the_generation_that_was_looked_at(manifest: Any) -> None:
    shown = manifest["status"]
    generations = {each.get("observedGeneration") for each in shown["conditions"]}
    assert generations == ({None} if shown["observedGeneration"] == -1 else {shown["observedGeneration"]})
    types = [each["type"] for each in shown["conditions"]]
    assert types.count("Ready") == 1
    assert len(types) == len(set(types))


def test_stalled_is_never_there_with_ready_true() -> None:
    for name, (manifest, _) in EVERY.items():
        by_type = {each["type"]: each["status"] for each in manifest["status"]["conditions"]}
        assert not (by_type["Ready"] == "True" and "Stalled" in by_type), name


def test_what_cannot_be_read_has_failed() -> None:
    manifest = manifest_of("Subscription", {"invented": 1}, None, {})
    report = plan_unreadable(
        UnreadableView(
            problem="invented: there is no such field",
            is_deleting=False,
            has_finalizer=True,
            is_forced=False,
            is_broker_gone=False,
        )
    )
    assert isinstance(report, Report)
    manifest["status"] = status.unparsable(manifest, report, NOW)
    message = (
        "invented: there is no such field. Install the CRDs and the operator of the same version."
        " See docs/how-to/runbooks/reasons.md#InvalidSpec."
    )
    assert (of_kstatus(manifest), of_argo(manifest)) == ("Failed", ("Degraded", message))
    assert conditions.timestamp(NOW) == manifest["status"]["conditions"][0]["lastTransitionTime"]


@pytest.mark.clients
def test_the_libraries_of_the_tools_make_the_same_of_it(tmp_path: Path) -> None:
    """kstatus as Flux calls it, and the script in gopher-lua as Argo CD runs it."""
    binary, script = tmp_path / "tools", tmp_path / "health.lua"
    go = program("go", "Go 1.25 or newer, from go.dev/dl")
    subprocess.run([go, "build", "-o", str(binary), "."], cwd=TOOLS, check=True, timeout=BUILD_SECONDS)
    script.write_text(SCRIPT)
    objects = "".join(f"{json.dumps(manifest)}\n" for manifest, _ in EVERY.values())
    told = subprocess.run([binary, script], input=objects, capture_output=True, text=True, check=True).stdout
    for name, (manifest, seen), line in zip(EVERY, EVERY.values(), told.splitlines(), strict=True):
        found = json.loads(line)
        health, message = argo_health(manifest, found["script"])
        assert (found["kstatus"], health) == (seen.kstatus, seen.argo), name
        assert seen.says in message, name
