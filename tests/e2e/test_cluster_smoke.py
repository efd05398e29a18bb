"""What the end-to-end tests take for granted of the cluster of hack/cluster, each thing once, on the real thing.

Everything is applied at the start, so that the schedule of the CronJob runs while the other tests do. A scheduled Spark
application is part of test_cluster_demo.py.
"""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster_images import images

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).resolve().parents[2]
OBJECTS = Path(__file__).with_name("smoke")
NAMESPACE = "penstock-smoke"
FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"
RESTRICTED_NAMESPACE = f"""
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
"""
PRIVILEGED_POD = """
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  hostNetwork: true
  containers: [{name: bad, image: none, securityContext: {privileged: true}}]
"""


def call(*command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=REPOSITORY, check=False)


def output(*command: str, stdin: str = "") -> str:
    done = call(*command, stdin=stdin)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return done.stdout.strip()


def kubectl(*arguments: str, stdin: str = "") -> str:
    return output("hack/cluster", "kubectl", "--namespace", NAMESPACE, *arguments, stdin=stdin)


def refusal(manifest: str) -> str:
    """What the API server says when it refuses a manifest."""
    done = call("hack/cluster", "kubectl", "--namespace", NAMESPACE, "apply", "-f", "-", stdin=manifest)
    assert done.returncode != 0, f"accepted: {manifest}"
    return done.stderr


def widget(size: int, colour: str) -> str:
    spec = f"{{size: {size}, colour: {colour}}}"
    return f"{{apiVersion: smoke.penstock.dev/v1, kind: Widget, metadata: {{name: one}}, spec: {spec}}}"


def wait_ready() -> None:
    kubectl("rollout", "status", "statefulset/web", "--timeout=600s")


@pytest.fixture(scope="module", autouse=True)
def applied() -> Iterator[None]:
    template = (OBJECTS / "objects.yaml").read_text()
    objects = template.replace("@BROKER@", images().broker)
    output("hack/cluster", "kubectl", "apply", "-f", "-", stdin=RESTRICTED_NAMESPACE)
    try:
        kubectl("apply", "-f", str(OBJECTS / "widgets.yaml"))
        kubectl("apply", "-f", "-", stdin=objects)
        yield
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--wait")
        kubectl("delete", "-f", str(OBJECTS / "widgets.yaml"))


def test_pod_security_refuses_what_restricted_forbids() -> None:
    assert 'violates PodSecurity "restricted:latest"' in refusal(PRIVILEGED_POD)


def test_claim_is_bound_and_its_data_outlive_the_pod() -> None:
    wait_ready()
    assert kubectl("get", "pvc", "data-web-0", "-o=jsonpath={.status.phase}") == "Bound"
    kubectl("exec", "web-0", "--", "sh", "-c", "echo kept > /data/note")
    kubectl("delete", "pod", "web-0", "--wait")
    wait_ready()
    assert kubectl("exec", "web-0", "--", "cat", "/data/note") == "kept"


def test_service_answers_by_name_and_from_the_host() -> None:
    wait_ready()
    kubectl("exec", "web-0", "--", "sh", "-c", "echo found > /data/page")
    url = f"http://web.{NAMESPACE}.svc.cluster.local/page"
    assert kubectl("exec", "web-0", "--", "python3", "-c", FETCH, url) == "found"
    address = kubectl("get", "service", "web", "-o=jsonpath={.spec.clusterIP}")
    with urllib.request.urlopen(f"http://{address}/page", timeout=5) as answer:
        assert answer.read() == b"found\n"


def test_cel_rules_see_the_new_and_the_old_object() -> None:
    kubectl("wait", "--for=condition=Established", "crd/widgets.smoke.penstock.dev", "--timeout=600s")
    assert "size is below ten" in refusal(widget(10, "red"))
    kubectl("apply", "-f", "-", stdin=widget(9, "red"))
    assert "the colour stays" in refusal(widget(9, "blue"))


def test_helm_installs_and_uninstalls() -> None:
    environment = dict(
        line.removeprefix("export ").split("=", 1) for line in output("hack/cluster", "env").splitlines()
    )
    helm = environment["PATH"].strip('"').split(":")[1] + "/helm"
    place = ("--kubeconfig", environment["KUBECONFIG"], "--namespace", NAMESPACE)
    output(helm, "install", "one", str(OBJECTS / "chart"), "--set", "greeting=hej", "--wait", *place)
    assert kubectl("get", "configmap", "one-greeting", "-o=jsonpath={.data.greeting}") == "hej"
    output(helm, "uninstall", "one", "--wait", *place)
    assert kubectl("get", "configmap", "one-greeting", "--ignore-not-found") == ""


def test_cron_job_with_a_time_zone_runs() -> None:
    kubectl("wait", "cronjob/tick", "--for=jsonpath={.status.lastSuccessfulTime}", "--timeout=900s")
