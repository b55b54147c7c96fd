"""All that was read of one run: what `reconcile` is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench_api.outcome.gate import GateReport
from specbench_operator.state.jobs import Job, Thing
from specbench_operator.state.nodes import Node, NodeUnread
from specbench_operator.state.pods import Pod
from specbench_operator.state.stored import Stored, StoreTrouble


@dataclass(frozen=True)
class EarlierRun:
    """Another run of the namespace that a gate may compare with."""

    name: str
    uid: str
    created: str
    """creationTimestamp: RFC 3339 in whole seconds and UTC, so its order is that of time."""
    phase: str
    """Empty where nothing was said of it yet."""
    uri: str
    """Root of its results."""
    cell: str
    """Which cell of its campaign it is; empty where it is of none."""


@dataclass(frozen=True)
class Observed:
    """All that was read of one run. Children first, S3 last: a client that is seen complete has its manifests seen."""

    resource: Mapping[str, Any]
    jobs: tuple[Job, ...] = ()
    pods: tuple[Pod, ...] = ()
    things: tuple[Thing, ...] = ()
    plan_json: str | None = None
    """plan.json of the run's own ConfigMap."""
    nodes: tuple[Node | NodeUnread, ...] = ()
    """Of engines whose client is about to be told of them; of no others."""
    stored: Stored | StoreTrouble | None = None
    """None: not asked, because nothing depends on it."""
    gate: GateReport | StoreTrouble | None = None
    """gate.json of a run that has ended and whose gate is still to be told; None: there is none, or not asked."""
    earlier: tuple[EarlierRun, ...] = ()
    """Runs that such a gate may mean."""
