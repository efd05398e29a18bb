"""What is a refusal and which one: answers of real API servers, typed by hand."""

from __future__ import annotations

import pytest
from support.resources import NOW

from penstock_api.resources import Condition
from penstock_operator.plans.conditions import needs_a_person
from penstock_operator.plans.refusals import ServerAnswer, refusal_in, refused_conditions

AT = "PATCH /api/v1/namespaces/shop/services/orders-x: "
QUOTA = (
    'services "orders-x" is forbidden: exceeded quota: small, requested: services=1, used: services=5, limited: '
    "services=5"
)
WEBHOOK = 'admission webhook "rules.example.com" denied the request: no service without a team'
POLICY = (
    "services \"orders-x\" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'team' denied request: no team"
)
NO_WEBHOOK = 'Internal error occurred: failed calling webhook "rules.example.com": connection refused'
RIGHT = (
    'services "orders-x" is forbidden: User "system:serviceaccount:penstock-system:op" cannot patch resource '
    '"services" in API group "" in the namespace "shop"'
)
LIMITS = 'pods "main-0" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi'
STATEFUL_SET = (
    'StatefulSet.apps "main" is invalid: spec: Forbidden: updates to statefulset spec for fields other than '
    "'replicas', 'template' are forbidden"
)
IMMUTABLE = 'Service "orders-x" is invalid: spec.clusterIPs[0]: Invalid value: "": may not change once set'
INVALID = 'Service "orders-x" is invalid: metadata.labels: Invalid value: "a/b": must be a name'


@pytest.mark.parametrize(
    ("status", "said", "reason", "cure"),
    [
        pytest.param(403, QUOTA, "QuotaExceeded", "Raise the ResourceQuota", id="quota"),
        pytest.param(403, WEBHOOK, "DeniedByAdmission", "Change in the spec", id="webhook"),
        pytest.param(400, WEBHOOK, "DeniedByAdmission", "Change in the spec", id="webhook-with-a-code-of-its-own"),
        pytest.param(422, POLICY, "DeniedByAdmission", "Change in the spec", id="policy"),
        pytest.param(403, LIMITS, "DeniedByAdmission", "Change in the spec", id="limit-range"),
        pytest.param(500, NO_WEBHOOK, "DeniedByAdmission", "whoever runs it", id="webhook-that-is-not-there"),
        pytest.param(403, RIGHT, "OperatorNotAllowed", "upgrade the chart", id="role"),
        pytest.param(422, STATEFUL_SET, "FieldImmutable", "--cascade=orphan", id="stateful-set"),
        pytest.param(422, IMMUTABLE, "FieldImmutable", "the operator makes it again", id="immutable"),
        pytest.param(422, INVALID, "RefusedByApiServer", "Correct the spec", id="invalid"),
        pytest.param(413, "request entity too large", "RefusedByApiServer", "report this message", id="too-large"),
    ],
)
def test_a_refusal_has_a_reason_the_server_s_words_and_a_cure(status: int, said: str, reason: str, cure: str) -> None:
    found = refusal_in(ServerAnswer(status=status, said=AT + said))
    assert found is not None
    assert str(found.reason) == reason
    assert found.message.startswith(f"The Kubernetes API server refused: {AT}{said}. ")
    assert cure in found.message
    assert needs_a_person(found.reason)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ServerAnswer(status=0, said="it can't be reached"), id="no-answer"),
        pytest.param(ServerAnswer(status=401, said="Unauthorized"), id="token-renewed"),
        pytest.param(ServerAnswer(status=404, said='namespaces "shop" not found'), id="gone"),
        pytest.param(ServerAnswer(status=409, said="the object has been modified"), id="conflict"),
        pytest.param(ServerAnswer(status=429, said="Too many requests"), id="overload"),
        pytest.param(ServerAnswer(status=503, said="apiserver not ready"), id="starting"),
        pytest.param(
            ServerAnswer(
                status=403,
                said="unable to create new content in namespace shop because it is being terminated",
                causes=frozenset({"NamespaceTerminating"}),
            ),
            id="namespace-ends",
        ),
    ],
)
def test_what_waiting_cures_is_no_refusal(answer: ServerAnswer) -> None:
    assert refusal_in(answer) is None


def test_of_the_conditions_only_ready_accepted_and_stalled_change() -> None:
    refusal = refusal_in(ServerAnswer(status=403, said=AT + QUOTA))
    assert refusal is not None
    before = [
        Condition.model_validate(
            {"type": kind, "status": status, "reason": reason, "message": "as before", "lastTransitionTime": NOW}
        )
        for kind, status, reason in (
            ("Ready", "True", "Ready"),
            ("Accepted", "True", "Accepted"),
            ("Declared", "True", "Adopted"),
            ("Lagging", "True", "Losing"),
        )
    ]
    assert [(it.type, it.status.value, str(it.reason)) for it in refused_conditions(before, refusal)] == [
        ("Ready", "False", "QuotaExceeded"),
        ("Accepted", "False", "QuotaExceeded"),
        ("Stalled", "True", "QuotaExceeded"),
        ("Declared", "True", "Adopted"),
    ]
