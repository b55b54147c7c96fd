"""kwok's configuration: the behaviour of fake nodes and their pods. kwok simulates the kubelet and the engines.

A fake engine supports some of the simulator's faults, so that a spec fails in the same way with kwok and with a real
simulator. They are set in `spec.engine.args` or `spec.drafters[].args`, so an axis of a campaign can select them:

    --fault=never-ready     runs, and never becomes ready
    --fault=oom             is killed for its memory (OOMKilled, exit code 137) before it becomes ready
    --fault=crash-after=1   becomes ready, and exits with 1 one to two seconds later

Pods without an engine are ready immediately and then run until a test ends them by writing their status. A deleted pod
ends first and is then removed, as with a kubelet.

Stages are mutually exclusive, because kwok selects one of the matching stages at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from peers.kwok.statuses import NODE_READY, ended, running

NODE_LABEL = "specbench.io/fake-node"
"""Label on every simulated node; its value is the node's pool."""
NEVER_READY, OUT_OF_MEMORY, CRASHES = "--fault=never-ready", "--fault=oom", "--fault=crash-after=1"
ROLE, ENGINE = "specbench.io/role", "engine"
GRACE_MS = (30_000, 30_000)
"""The termination grace period of the product's client pods, after which the kubelet kills them."""
AT_ONCE = (0, 0)

Document = dict[str, Any]
Bounds = tuple[int, int]
"""Bounds of a random delay, in milliseconds."""


@dataclass(frozen=True)
class Pace:
    """Durations of the simulated steps."""

    start: Bounds = (50, 200)
    """From scheduled to running."""
    load: Bounds = (200, 800)
    """From running to ready, or to the failure of an engine that does not become ready."""
    crash: Bounds = (1000, 2000)
    """From ready to the crash."""
    end: Bounds = (50, 300)
    """From deletion to the end of the engine."""


def configuration(pace: Pace | None = None) -> list[Document]:
    """The documents of kwok's `--config`."""
    return [_options(), _nodes(), *_beginnings(pace or Pace()), *_engines(pace or Pace()), *_endings(pace or Pace())]


def _options() -> Document:
    """All required options: kwok applies no defaults if options are given."""
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "metadata": {"name": "specbench"},
        "options": {
            "manageAllNodes": False,
            "manageNodesWithLabelSelector": NODE_LABEL,
            "nodeLeaseDurationSeconds": 40,
            "cidr": "10.0.0.0/24",
            "nodeLeaseParallelism": 4,
            "nodePlayStageParallelism": 4,
            "podPlayStageParallelism": 16,
            "podsOnNodeSyncParallelism": 4,
        },
    }


def _nodes() -> Document:
    return _stage("node-gets-ready", "Node", [_ready("NotIn")], AT_ONCE, NODE_READY)


def _beginnings(pace: Pace) -> list[Document]:
    began = [_alive(), _phase("Pending")]
    return [
        _stage("engine-starts", "Pod", [*began, _engine("In")], pace.start, running(ready=False)),
        _stage("other-starts", "Pod", [*began, _engine("NotIn")], pace.start, running(ready=True)),
    ]


def _engines(pace: Pace) -> list[Document]:
    """Stages of engines that run and are not deleted."""
    loading = [_alive(), _phase("Running"), _engine("In"), _ready("NotIn")]
    serving = [_alive(), _phase("Running"), _engine("In"), _ready("In")]
    loads = _fault("NotIn", NEVER_READY, OUT_OF_MEMORY)
    return [
        _stage("engine-gets-ready", "Pod", [*loading, loads], pace.load, running(ready=True)),
        _stage("engine-is-killed", "Pod", [*loading, _fault("In", OUT_OF_MEMORY)], pace.load, ended(137, "OOMKilled")),
        _stage("engine-crashes", "Pod", [*serving, _fault("In", CRASHES)], pace.crash, ended(1, "Error")),
    ]


def _endings(pace: Pace) -> list[Document]:
    """Stages of deleted pods."""
    deleted_and_running = [_deleted(), _phase("Running")]
    return [
        _stage("ends-before-its-start", "Pod", [_deleted(), _phase("Pending")], AT_ONCE, "phase: Failed"),
        _stage("engine-ends", "Pod", [*deleted_and_running, _engine("In")], pace.end, ended(143, "Error")),
        _stage("other-is-killed", "Pod", [*deleted_and_running, _engine("NotIn")], GRACE_MS, ended(137, "Error")),
        _stage("ended-pod-goes", "Pod", [_deleted(), _phase("Succeeded", "Failed")], AT_ONCE, None),
    ]


def _stage(name: str, kind: str, matches: Sequence[Document], bounds_ms: Bounds, status: str | None) -> Document:
    """A stage: after a delay in `bounds_ms` with all `matches`, set `status`, or remove the object if it is None."""
    patch = {"subresource": "status", "root": "status", "type": "strategic", "template": status}
    delay = {"durationMilliseconds": bounds_ms[0], "jitterDurationMilliseconds": bounds_ms[1]}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": [{"jq": match} for match in matches]},
            **({"delay": delay} if bounds_ms != AT_ONCE else {}),
            "steps": [{"delete": True} if status is None else {"patch": patch}],
        },
    }


def _match(key: str, operator: str, *values: str) -> Document:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _alive() -> Document:
    return _match(".metadata.deletionTimestamp", "DoesNotExist")


def _deleted() -> Document:
    return _match(".metadata.deletionTimestamp", "Exists")


def _phase(*phases: str) -> Document:
    return _match(".status.phase", "In", *phases)


def _ready(operator: str) -> Document:
    return _match('.status.conditions[] | select(.type == "Ready") | .status', operator, "True")


def _engine(operator: str) -> Document:
    return _match(f'.metadata.labels["{ROLE}"]', operator, ENGINE)


def _fault(operator: str, *faults: str) -> Document:
    return _match(".spec.containers[0].args[]", operator, *faults)
