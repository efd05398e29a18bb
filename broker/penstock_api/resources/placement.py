"""On which nodes the pods of a Broker may run: tolerations, affinity and topology spread, as in Kubernetes.

What the API server would refuse in the pod template is refused here already, so that a mistake shows when the Broker is
written and not in its pods. Source: Kubernetes API reference, "Pod v1", scheduling;
docs/decisions/100-placement-and-lost-nodes.md.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from penstock_api import references, schema

__all__ = ["Affinity", "LabelSelector", "Labels", "Toleration", "TopologySpread"]

LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
LabelValue = Annotated[str, Field(max_length=63)]
Labels = Annotated[dict[Annotated[str, Field(max_length=317)], LabelValue], Field(max_length=32)]
Values = Annotated[tuple[LabelValue, ...], Field(max_length=32)]
Keys = Annotated[tuple[LabelKey, ...], Field(max_length=8)]
Namespaces = Annotated[tuple[references.DnsLabel, ...], Field(max_length=16)]
TopologyKey = Annotated[str, Field(min_length=1, max_length=317)]
Weight = Annotated[int, Field(ge=1, le=100)]

_SECONDS_NEED_NO_EXECUTE: Final = schema.cel(
    "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
    "`tolerationSeconds` needs `effect: NoExecute`",
)
_EXISTS_HAS_NO_VALUE: Final = schema.cel(
    "self.operator != 'Exists' || !has(self.value) || self.value == ''", "`operator: Exists` must not have a `value`"
)
_EQUAL_NEEDS_A_KEY: Final = schema.cel(
    "self.operator != 'Equal' || has(self.key)", "a toleration without `key` needs `operator: Exists`"
)


class Toleration(schema.Spec):
    """A taint of nodes that the pods tolerate."""

    model_config = ConfigDict(
        json_schema_extra=schema.validations(_SECONDS_NEED_NO_EXECUTE, _EXISTS_HAS_NO_VALUE, _EQUAL_NEEDS_A_KEY)
    )

    key: LabelKey | None = None
    """Key of the taint; left out: every taint, with `operator: Exists`."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Equal: the taint has this value. Exists: it may have any."""
    value: LabelValue | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; left out: any."""
    toleration_seconds: Annotated[int, Field(ge=0, le=86400)] | None = None
    """How long a running pod tolerates the taint; left out: for ever."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError(str(_SECONDS_NEED_NO_EXECUTE["message"]))
        if self.operator == "Exists" and self.value:
            raise ValueError(str(_EXISTS_HAS_NO_VALUE["message"]))
        if self.operator == "Equal" and self.key is None:
            raise ValueError(str(_EQUAL_NEEDS_A_KEY["message"]))
        return self


_VALUES_FIT: Final = schema.cel(
    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 "
    ": !has(self.values) || size(self.values) == 0",
    "`values` must be given for the operators In and NotIn, and left out for Exists and DoesNotExist",
)
_NODE_VALUES_FIT: Final = schema.cel(
    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 "
    ": self.operator in ['Gt', 'Lt'] "
    "? has(self.values) && size(self.values) == 1 && self.values[0].matches('^-?[0-9]{1,18}$') "
    ": !has(self.values) || size(self.values) == 0",
    "`values` must be given for the operators In and NotIn, be one integer for Gt and Lt, and be left out for Exists "
    "and DoesNotExist",
)


class LabelRequirement(schema.Spec):
    """A requirement on one label of a pod or namespace."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_VALUES_FIT))

    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is compared with the values."""
    values: Values = ()
    """Values to compare with."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.operator in ("In", "NotIn")) is not bool(self.values):
            raise ValueError(str(_VALUES_FIT["message"]))
        return self


class LabelSelector(schema.Spec):
    """Selects objects by their labels; an empty one selects all."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels that an object must have."""
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=8)] = ()
    """Further requirements, all of which must hold."""


class NodeRequirement(schema.Spec):
    """A requirement on one label or field of a node."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_NODE_VALUES_FIT))

    key: LabelKey
    """Key of the label, or name of the field."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How the label is compared with the values."""
    values: Values = ()
    """Values to compare with; for Gt and Lt one integer."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        match self.operator:
            case "In" | "NotIn":
                fits = bool(self.values)
            case "Gt" | "Lt":
                fits = len(self.values) == 1 and re.fullmatch("-?[0-9]{1,18}", self.values[0]) is not None
            case "Exists" | "DoesNotExist":
                fits = not self.values
        if not fits:
            raise ValueError(str(_NODE_VALUES_FIT["message"]))
        return self


class NodeSelectorTerm(schema.Spec):
    """Requirements that a node must meet, all of them."""

    match_expressions: Annotated[tuple[NodeRequirement, ...], Field(max_length=8)] = ()
    """Requirements on labels."""
    match_fields: Annotated[tuple[NodeRequirement, ...], Field(max_length=8)] = ()
    """Requirements on fields, such as `metadata.name`."""


class NodeSelector(schema.Spec):
    """Nodes that meet at least one of the terms."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=8)]
    """The terms."""


class PreferredNodes(schema.Spec):
    """Nodes that are better than others."""

    weight: Weight
    """How much better, from 1 to 100."""
    preference: NodeSelectorTerm
    """Which nodes."""


class NodeAffinity(schema.Spec):
    """Which nodes by their labels."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Nodes on which the pods may run."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredNodes, ...], Field(max_length=8)
    ] = ()
    """Nodes that are preferred."""


class PodTerm(schema.Spec):
    """Other pods, and what counts as the same place as theirs."""

    topology_key: TopologyKey
    """Label of nodes: those with the same value are one place, such as `kubernetes.io/hostname`."""
    label_selector: LabelSelector | None = None
    """Which pods; left out: none."""
    namespaces: Namespaces = ()
    """Namespaces of these pods; left out: that of the Broker."""
    namespace_selector: LabelSelector | None = None
    """Further namespaces, by their labels."""
    match_label_keys: Keys = ()
    """Labels of which the other pods must have the same value."""
    mismatch_label_keys: Keys = ()
    """Labels of which the other pods must have another value."""


class PreferredPods(schema.Spec):
    """Other pods that are better neighbours than others, or worse ones."""

    weight: Weight
    """How much better or worse, from 1 to 100."""
    pod_affinity_term: PodTerm
    """Which pods."""


class PodAffinity(schema.Spec):
    """Near which other pods, or far from which."""

    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodTerm, ...], Field(max_length=8)] = ()
    """Must hold."""
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[PreferredPods, ...], Field(max_length=8)] = ()
    """Is preferred."""


class Affinity(schema.Spec):
    """Which nodes, and near or far from which other pods."""

    node_affinity: NodeAffinity | None = None
    """Which nodes by their labels."""
    pod_affinity: PodAffinity | None = None
    """Near which other pods."""
    pod_anti_affinity: PodAffinity | None = None
    """Far from which other pods."""


_MIN_DOMAINS: Final = schema.cel(
    "!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
    "`minDomains` needs `whenUnsatisfiable: DoNotSchedule`",
)


class TopologySpread(schema.Spec):
    """How pods are spread over zones or nodes."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_MIN_DOMAINS))

    max_skew: Annotated[int, Field(ge=1, le=1000)]
    """How many more pods one place may have than another."""
    topology_key: TopologyKey
    """Label of nodes: those with the same value are one place, such as `topology.kubernetes.io/zone`."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """What happens to a pod that cannot be placed like this."""
    label_selector: LabelSelector | None = None
    """Which pods are counted. A Broker has one pod, so name a label that several Brokers have."""
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = None
    """In how many places at least."""
    match_label_keys: Keys = ()
    """Further labels of which the counted pods must have the same value."""
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    """Whether places without a suitable node count."""
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    """Whether places with tainted nodes count."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            raise ValueError(str(_MIN_DOMAINS["message"]))
        return self
