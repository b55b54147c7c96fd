"""What users do to runs, with the operator's reaction to each of their writes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from generators.custom_resources import CAMPAIGN, RUN
from operator_bench.reactions import Object, Reaction, Reactions
from operator_bench.watches import Watch
from specbench_api import API_VERSION
from specbench_api.plan.names import (
    LABEL_ATTEMPT,
    LABEL_GROUP,
    LABEL_MANAGED,
    LABEL_ROLE,
    LABEL_RUN,
    MANAGER,
    ROLE_CLIENT,
    ROLE_ENGINE,
)
from specbench_testing.cluster import MERGE, Cluster
from specbench_testing.operator_process import retry_until_available
from specbench_testing.resources import Resource

THREADS = 8
RUNS, JOBS = RUN.plural, "jobs"
CREATE, EDIT, RESUME, SUSPEND, READY = (
    "run created → first status",
    "spec edited → status",
    "run resumed → engine Job",
    "run suspended → engine Job stopped",
    "engine ready → client Job",
)
_TTL_S = 86_400
T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Users:
    """Writes as the administrator, in several threads, and watches what follows."""

    cluster: Cluster
    namespace: str
    reactions: Reactions
    on_pod: Callable[[str, Object, float], None]
    ready: list[Reaction] = field(default_factory=list)
    """One reaction per engine that became ready."""
    _jobs: dict[str, set[str]] = field(default_factory=dict)
    """Run → names of its engine Jobs so far."""
    _ready: dict[tuple[str, ...], Reaction] = field(default_factory=dict)
    _last_seen: dict[str, tuple[Object, float]] = field(default_factory=dict)
    """Run → its observedGeneration, and when it arrived."""
    _edits: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "users"))
    _watches: list[Watch] = field(default_factory=list)

    def watch(self) -> None:
        """Start the watches: of runs, and of their Jobs and pods."""
        ours = f"{LABEL_MANAGED}={MANAGER}"
        jobs, pods = f"/apis/batch/v1/namespaces/{self.namespace}/jobs", f"/api/v1/namespaces/{self.namespace}/pods"
        self._watches = [
            Watch(self.cluster, self._path(RUNS), self._on_run),
            Watch(self.cluster, jobs, self._on_job, labelSelector=ours),
            Watch(self.cluster, pods, self._on_pod, labelSelector=ours),
        ]

    def stop(self) -> None:
        """End the watches."""
        for watch in self._watches:
            watch.stop()

    @property
    def gaps(self) -> int:
        """How many times the watches missed events and listed all objects instead."""
        return sum(watch.gaps for watch in self._watches)

    def each(self, act: Callable[[T], R], values: Iterable[T]) -> list[R]:
        """Do something for each value, in several threads."""
        return list(self._threads.map(act, values))

    def submit(self, act: Callable[..., R], *arguments: Any) -> Future[R]:
        """Do something in another thread."""
        return self._threads.submit(act, *arguments)

    def create(self, run: Resource) -> Resource:
        """Create a run or a campaign, without awaiting a reaction."""
        plural = RUNS if run["kind"] == "SpecBenchRun" else CAMPAIGN.plural
        query = {"fieldValidation": "Strict"}
        return dict(retry_until_available(lambda: self.cluster.call("POST", self._path(plural), run, query=query)))

    def set_status(self, run: Resource, status: dict[str, Any]) -> None:
        """Write the status of a run, in place of the operator."""
        path = f"{self._path(RUNS)}/{run['metadata']['name']}/status"
        retry_until_available(lambda: self.cluster.call("PATCH", path, {"status": status}, kind=MERGE))

    def create_awaited(self, run: Resource) -> Reaction:
        """Create a run; the reaction is its first status."""
        key = (RUNS, run["metadata"]["name"])
        reaction = self.reactions.expect(CREATE, key, lambda found: _observed_generation(found) > 0)
        self.create(run)
        return self.reactions.began(reaction)

    def edit(self, name: str) -> Reaction:
        """Change a field that a run may change at any time; the reaction is the new observedGeneration."""
        edited: list[int] = []  # the generation after the edit, once the server has answered
        reaction = self.reactions.expect(
            EDIT, (RUNS, name), lambda run: edited != [] and _observed_generation(run) >= edited[0]
        )
        answer = self._patch(name, {"ttlSecondsAfterFinished": _TTL_S + next(self._edits)})
        self.reactions.began(reaction)
        edited.append(answer["metadata"]["generation"])
        if name in self._last_seen:  # the operator's write may have arrived before the answer
            self.reactions.observed((RUNS, name), *self._last_seen[name])
        return reaction

    def resume(self, name: str) -> Reaction:
        """Resume a suspended run; the reaction is an engine Job that did not exist before."""
        known = frozenset(self._jobs.get(name, ()))
        reaction = self.reactions.expect(
            RESUME, (JOBS, name), lambda job: _role(job) == ROLE_ENGINE and job["metadata"]["name"] not in known
        )
        self._patch(name, {"suspend": False})
        return self.reactions.began(reaction)

    def suspend(self, name: str) -> Reaction:
        """Suspend an active run; the reaction is that its engine Job is suspended or deleted."""

        def acted(job: Object) -> bool:
            stopped = job["spec"].get("suspend") or "deletionTimestamp" in job["metadata"]
            return _role(job) == ROLE_ENGINE and bool(stopped)

        reaction = self.reactions.expect(SUSPEND, (JOBS, name), acted)
        self._patch(name, {"suspend": True})
        return self.reactions.began(reaction)

    def delete(self, name: str) -> None:
        """Delete a run in the background, as kubectl does."""
        path = f"{self._path(RUNS)}/{name}"
        retry_until_available(lambda: self.cluster.call("DELETE", path, {"propagationPolicy": "Background"}))

    def _patch(self, name: str, spec: dict[str, Any]) -> Resource:
        path = f"{self._path(RUNS)}/{name}"
        return dict(retry_until_available(lambda: self.cluster.call("PATCH", path, {"spec": spec}, kind=MERGE)))

    def _path(self, plural: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/{plural}"

    def _on_run(self, kind: str, run: Object, at: float) -> None:
        name = run["metadata"]["name"]
        if kind == "DELETED":
            self._last_seen.pop(name, None)
            return
        self._last_seen[name] = ({"status": {"observedGeneration": _observed_generation(run)}}, at)
        self.reactions.observed((RUNS, name), run, at)

    def _on_job(self, kind: str, job: Object, at: float) -> None:
        labels = job["metadata"]["labels"]
        if kind == "DELETED":
            job["metadata"].setdefault("deletionTimestamp", "")
        elif _role(job) == ROLE_ENGINE:
            self._jobs.setdefault(labels[LABEL_RUN], set()).add(job["metadata"]["name"])
        elif _role(job) == ROLE_CLIENT:
            reaction = self._launch(labels)
            reaction.acted_at = reaction.acted_at or at
        self.reactions.observed((JOBS, labels[LABEL_RUN]), job, at)

    def _on_pod(self, kind: str, pod: Object, at: float) -> None:
        self.on_pod(kind, pod, at)
        if _role(pod) == ROLE_ENGINE and _is_ready(pod):
            reaction = self._launch(pod["metadata"]["labels"])
            if reaction.began_at is None:
                reaction.began_at = at
                self.ready.append(reaction)

    def _launch(self, labels: dict[str, str]) -> Reaction:
        """The reaction to the readiness of one launch's engine. Its two watches may deliver in either order."""
        key = tuple(labels[label] for label in (LABEL_RUN, LABEL_GROUP, LABEL_ATTEMPT))
        return self._ready.setdefault(key, Reaction(READY, lambda _: False))


def spread(names: Sequence[str], count: int) -> list[str]:
    """This many names, evenly spread and with the last one."""
    step = max(len(names) // max(count, 1), 1)
    return list(reversed(names[::-1][::step][:count]))


def _observed_generation(run: Object) -> int:
    return int(run.get("status", {}).get("observedGeneration", 0))


def _role(found: Object) -> str:
    return str(found["metadata"]["labels"].get(LABEL_ROLE, ""))


def _is_ready(pod: Object) -> bool:
    conditions = {row["type"]: row["status"] for row in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
