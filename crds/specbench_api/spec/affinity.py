"""`spec.placement`: which nodes the engine's pods are drawn to, in the words of a PodSpec."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from specbench_api.model import ApiModel, Open
from specbench_api.spec.kubernetes import LABEL_KEY, LabelValue

Terms = Annotated[dict[str, Any], Field(max_length=2), Open()]


class PinNode(StrEnum):
    """Whether a launch goes to the node on which the run's last engine served: arms are compared on one machine."""

    PREFER = "Prefer"
    REQUIRE = "Require"
    NONE = "None"


class Affinity(ApiModel):
    """As `spec.affinity` of a pod.

    Each map has the keys `requiredDuringSchedulingIgnoredDuringExecution` and
    `preferredDuringSchedulingIgnoredDuringExecution`, and what Kubernetes takes below them.
    """

    node_affinity: Terms = {}
    """Which nodes, by their labels. Part of every point's identity, as nodeSelector is."""
    pod_affinity: Terms = {}
    """Near which other pods."""
    pod_anti_affinity: Terms = {}
    """Away from which other pods: those of other benchmarks, for one."""


class WhenUnsatisfiable(StrEnum):
    """As Kubernetes has them."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class LabelSelector(ApiModel):
    """Which pods are counted."""

    match_labels: Annotated[dict[str, LabelValue], Field(min_length=1, max_length=16)]
    """Labels that they have, all of them."""


class TopologySpread(ApiModel):
    """One row of `spec.topologySpreadConstraints` of a pod."""

    topology_key: Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)]
    """Label of the nodes over whose values pods are spread, such as topology.kubernetes.io/zone."""
    max_skew: Annotated[int, Field(ge=1, le=1000)] = 1
    """By how many pods two values may differ."""
    when_unsatisfiable: WhenUnsatisfiable = WhenUnsatisfiable.SCHEDULE_ANYWAY
    """Whether a pod waits where it would be spread worse."""
    label_selector: LabelSelector | None = None
    """Which pods are counted; without it, the engines of all runs of the namespace."""
