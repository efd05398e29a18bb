"""Condition Accepted of a Broker: whether its children may be applied, and if not, what stands in the way.

Source: docs/decisions/056-conditions.md, docs/decisions/050-names-of-children.md (names that are taken),
docs/decisions/061-different-releases.md (settings that the image does not know).
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children import cluster_issuer
from penstock_operator.plans.broker_view import BrokerReportView
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import Reach
from penstock_operator.plans.refusals import not_applied
from penstock_operator.plans.server_certificate import certificate_obstacle
from penstock_operator.plans.volume_report import volume_obstacle

__all__ = ["accepted"]


def accepted(view: BrokerReportView) -> StatusCondition:
    """Accepted: False with the first obstacle, Unknown while the broker has not said whether it knows its settings."""
    if view.taken_names:
        message = (
            f"Objects of other owners already have these names: {', '.join(view.taken_names)}. Delete them, or give "
            "the Broker another name."
        )
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.NAME_TAKEN, message)
    if view.predecessor_children:
        message = (
            "A Broker of this name was deleted, and the cluster has not yet deleted the objects that belonged to it: "
            f"{', '.join(view.predecessor_children)}. This Broker is set up after that."
        )
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.PREDECESSOR_LEAVING, message)
    if view.refusal is not None:
        return not_applied(view.refusal)
    users = view.broker.spec.authentication.users_secret_ref
    if view.users_missing and users is not None:
        message = f"There is no Secret {users.name}. Create it: each key is a user name, its value the password."
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.USERS_SECRET_NOT_FOUND, message)
    ca = view.broker.spec.authentication.client_ca_secret_ref
    if view.client_ca_missing and ca is not None:
        message = (
            f"There is no Secret {ca.name} with a key `ca.crt`. Create it: `ca.crt` has the certificates, as PEM, of "
            "the CAs that sign the clients' certificates."
        )
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.CLIENT_CA_NOT_FOUND, message)
    if view.token_keys_missing:
        found = ", ".join(view.token_keys_missing)
        message = (
            f"There is no ConfigMap {found} with a key `keys`. Create it: `keys` has the public keys of the issuer, "
            "as a JSON Web Key Set or PEM."
        )
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.TOKEN_KEYS_NOT_FOUND, message)
    if view.issuer_unknown:
        message = (
            "The operator can't read from the API server with which issuer name and keys the cluster signs "
            f"ServiceAccount tokens ({cluster_issuer.DISCOVERY}, {cluster_issuer.KEYS}). Allow the operator to read "
            "these paths, or set `issuer` and `keysConfigMapRef`."
        )
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.CLUSTER_ISSUER_UNKNOWN, message)
    obstacle = certificate_obstacle(view.server_certificate) or volume_obstacle(view.broker, view.volumes)
    if obstacle is not None:
        return obstacle
    if view.unknown_settings:
        known = "" if view.state is None else view.state.version
        message = (
            f"The image {view.pinned.image}, version {known}, does not know {_terms(view.unknown_settings)}. "
            "Set `spec.image` to a newer image, or leave out what this one does not know; until then the pods stay as "
            "they are."
        )
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.BROKER_TOO_OLD, message)
    if view.unconfirmed_settings:
        message = (
            f"The broker has not reported yet whether it knows {_terms(view.unconfirmed_settings)}; until it "
            f"has, the pods stay as they are. {view.problem}"
        )
        was_asked = view.reach is not Reach.NOT_ASKED
        reason = ConditionReason.BROKER_UNREACHABLE if was_asked else ConditionReason.BROKER_NOT_ASKED
        return StatusCondition("Accepted", ConditionStatus.UNKNOWN, reason, message.strip())
    if _is_paused_before_its_spec_was_accepted(view.broker):
        message = (
            f"The objects of this Broker are not changed while the annotation `{names.PAUSED}` is set, and have not "
            "been since its spec was changed. Remove the annotation to put the spec into force."
        )
        return StatusCondition("Accepted", ConditionStatus.UNKNOWN, ConditionReason.PAUSED_BY_ANNOTATION, message)
    return StatusCondition(
        "Accepted",
        ConditionStatus.TRUE,
        ConditionReason.ACCEPTED,
        "The spec is valid, and all its objects belong to this Broker.",
    )


def _is_paused_before_its_spec_was_accepted(broker: Broker) -> bool:
    """Whether a Broker is paused and its spec was not seen in force: its status is about another generation, or did not
    say then that it was accepted. Otherwise it would be Ready with a spec that its pod does not have.
    """
    if broker.metadata.annotations.get(names.PAUSED) != "true":
        return False
    before = next((one for one in broker.status.conditions if one.type == "Accepted"), None)
    was_accepted = before is not None and before.status == ConditionStatus.TRUE.value
    return not was_accepted or broker.status.observed_generation != broker.metadata.generation


def _terms(settings: Iterable[str]) -> str:
    return ", ".join(f"`{term}`" for term in settings)
