"""The input and output of `run`: the parsed run, RunObservation and RunDecision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from pydantic_core import from_json, to_json

from specbench_api.launch.registry import with_gpus
from specbench_api.outcome.status_document import StatusDocument
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import Metadata, SpecBenchRun
from specbench_api.spec.status import GateStatus, RunStatus
from specbench_operator.state.objects import (
    ChildObject,
    Job,
    LaunchVerdict,
    Node,
    ObjectRef,
    Pod,
    Relaunch,
    UnreadableNode,
)


@dataclass(frozen=True)
class StoredLaunch:
    """The last launch that is recorded in the results."""

    node: str
    """Node of the engine's pod."""
    requested_at: datetime
    """When the client queried the engine, by the client's clock."""


@dataclass(frozen=True)
class StoredResults:
    """The contents of S3 below the run's root."""

    measured: frozenset[str] = frozenset()
    """Hashes of the points that have a manifest."""
    results: StatusDocument | None = None
    """status.json, which may be of another plan."""
    answering: tuple[int, int] | None = None
    """Group and attempt whose engine has answered a completion, according to its client's progress.json."""
    answered_at: datetime | None = None
    """When that progress.json was stored, by S3's clock."""
    plan_json: str | None = None
    """Contents of plan.json; read only for a run that adopts earlier results."""
    last_launch: StoredLaunch | None = None
    """Read only if status does not contain the last engine's nodes and an engine is one pod."""
    launches: Mapping[int, int] = field(default_factory=dict)
    """Group → number of the last launch that answered. With adopted results, it may be an earlier run's launch."""
    ended: Mapping[int, int] = field(default_factory=dict)
    """Group that the plan's stop rule ended early → its number of measured points."""


@dataclass(frozen=True)
class StoreFailure:
    """S3 could not be read. `refused`: the server rejected the request, so somebody has to change something."""

    reason: str
    message: str
    refused: bool


@dataclass(frozen=True)
class NamespaceRun:
    """A run of the namespace: it may be the baseline of a gate, or count towards a limit of the namespace."""

    name: str
    uid: str
    created: str
    """creationTimestamp: RFC 3339 in whole seconds and UTC, so that its order as text is the order in time."""
    phase: str = ""
    """Its phase; empty if it has no status yet."""
    uri: str = ""
    """Root of its results."""
    combination: str = ""
    """Its combination within its campaign; empty if it belongs to no campaign."""
    reason: str = ""
    """Reason of its condition Reconciling: what it waits for."""
    suspended: bool = False
    deleting: bool = False
    ended: bool = False


@dataclass(frozen=True)
class RunObservation:
    """Everything that was read about one run.

    Children are read first and S3 last: a client that is observed as complete wrote its manifests before S3 was read.
    """

    resource: Mapping[str, Any]
    jobs: tuple[Job, ...] = ()
    pods: tuple[Pod, ...] = ()
    objects: tuple[ChildObject, ...] = ()
    plan_data: Mapping[str, str] = field(default_factory=dict)
    """Data of the run's own ConfigMap: the plan and client that it began with. Empty if it does not exist."""
    nodes: tuple[Node | UnreadableNode, ...] = ()
    """Nodes of the engines whose client is about to be created, because the client stores facts about them."""
    stored: StoredResults | StoreFailure | None = None
    """None if S3 was not read because nothing depends on it."""
    gate: GateStatus | StoreFailure | None = None
    """gate.json of a finished run whose gate is not in status yet; None if there is none or it was not read."""
    earlier: tuple[NamespaceRun, ...] = ()
    """Runs that may be the baseline of that gate."""
    secret_uses: Mapping[str, str] | StoreFailure | None = None
    """Secret of the run → value of its label, of those that exist and have it; None if that was not read."""
    namespace_runs: tuple[NamespaceRun, ...] = ()
    """All runs of the namespace; read only if the fence limits them and this run is not in progress."""
    live: bool = True
    """Read from the API server. If not, it is from the cache, and only tells whether there is anything to do."""


@dataclass(frozen=True)
class StopJob:
    """Stop a Job and write the verdict on it. The Job is kept as a record; its running pods are removed."""

    ref: ObjectRef
    verdict: LaunchVerdict
    ended: bool
    """The Job has already ended, so only the verdict is written."""


@dataclass(frozen=True)
class RelaunchJob:
    """Continue an engine's Job as another launch."""

    ref: ObjectRef
    relaunch: Relaunch


@dataclass(frozen=True)
class ResumeJob:
    """Resume the suspended Job of an engine on several nodes, because its queue has admitted their pods."""

    ref: ObjectRef
    leader_pod: str
    """UID of the leader's pod."""


@dataclass(frozen=True)
class KubernetesEvent:
    """A Kubernetes Event, as `kubectl describe` shows it."""

    type: str
    reason: str
    message: str
    occasion: str = ""
    """What it is about, if that happens once and is known by name, such as a launch: two events of one type and reason
    about the same occasion are one event, whichever statuses they were derived from. Otherwise empty."""


@dataclass(frozen=True)
class RunDecision:
    """The changes to make for a run, in this order: relaunch, resume, stop, delete, apply, events, status."""

    status: RunStatus
    stop: tuple[StopJob, ...] = ()
    delete: tuple[ObjectRef, ...] = ()
    apply: tuple[Mapping[str, Any], ...] = ()
    events: tuple[KubernetesEvent, ...] = ()
    requeue_after_s: float | None = None
    """When to reconcile again even without an event, in seconds; None if only an event or the resync should."""
    at_rest: bool = False
    """Nothing is left to do until the run itself changes, so the resync may skip it."""
    relaunch: tuple[RelaunchJob, ...] = ()
    resume: tuple[ResumeJob, ...] = ()
    awaits: frozenset[str] = frozenset()
    """Names of other runs of the namespace: this run is reconciled again when one of them ends."""


NORMAL, WARNING = "Normal", "Warning"


# The last parsed runs are remembered, because one reconciliation needs the parsed run up to six times.

REMEMBERED_MAX = 64
"""More than are reconciled at a time."""
REMEMBERED_BYTES_MAX = 16 * 1024
"""Size up to which a run is remembered: a parsed one takes up to thirteen times its text. Most have 2 to 3 kB."""
_METADATA = tuple(Metadata.model_fields)


def parsed_run(resource: Mapping[str, Any]) -> SpecBenchRun:
    """The run, without its status and with the GPUs that its engine needs. Raises InvalidSpec with every problem."""
    meta = resource["metadata"]
    read = {**resource, "metadata": {name: meta[name] for name in _METADATA if name in meta}}
    read.pop("status", None)
    text = to_json(read)
    return _remembered(text) if len(text) <= REMEMBERED_BYTES_MAX else _parsed(text)


def _parsed(text: bytes) -> SpecBenchRun:
    run = parse_run(from_json(text))
    return run.model_copy(update={"spec": with_gpus(run.spec)})


_remembered = lru_cache(maxsize=REMEMBERED_MAX)(_parsed)
