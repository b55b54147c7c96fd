"""Makes the runs of a benchmark, with statuses that the operator wrote for real runs."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from operator_bench.population import Mix, RunState, RunTemplates, campaigns, runs_of, status_of
from operator_bench.site import NAMESPACE, ScaleSite
from operator_bench.users import Users
from specbench_testing.operator_process import eventually
from specbench_testing.resources import Resource
from specbench_testing.stand_in_client import stand_in_client

WAITING_TEMPLATE, FINISHED_TEMPLATE = "template-of-waiting", "template-of-finished"
_WITHIN_S = 180.0


@dataclass
class PreparedRuns:
    """Names of the created runs by state, and how long creating them took."""

    names: dict[RunState, list[str]] = field(default_factory=lambda: {state: [] for state in RunState})
    seconds: float = 0.0

    @property
    def at_rest(self) -> list[str]:
        """The runs that are not active, in the order of a list."""
        return sorted([*self.names[RunState.WAITING], *self.names[RunState.FINISHED]])


def make_templates(site: ScaleSite, supervised: threading.Lock) -> RunTemplates:
    """Let the operator execute a run with stand-in clients, and suspend another; return both with their statuses."""
    spec, runs = site.run_spec, site.operators.runs
    with supervised, stand_in_client(site.cluster, NAMESPACE, site.s3_access, site.folder), site.operator.running():
        waiting = runs.create(standalone_run(WAITING_TEMPLATE, {**spec, "suspend": True}))
        finished = runs.create(standalone_run(FINISHED_TEMPLATE, {**spec, "load": {**spec["load"], "repeats": 1}}))
        site.operators.wait_for_phase(WAITING_TEMPLATE, "Suspended", _WITHIN_S)
        eventually(
            lambda: site.operators.status(FINISHED_TEMPLATE).get("completionTime"), "the run does not end", _WITHIN_S
        )
        found = [runs.get(run["metadata"]["name"]) for run in (waiting, finished)]
        site.operator.end(signal.SIGTERM)
    if found[1]["status"]["phase"] != "Succeeded":
        raise RuntimeError(f"the run that serves as a template failed: {found[1]['status']}")
    for run in found:
        site.operators.delete_run(run["metadata"]["name"])
    return RunTemplates(spec, *found)


def make_runs(users: Users, mix: Mix, templates: RunTemplates, progress: Callable[[str], None]) -> PreparedRuns:
    """Create all runs while the operator is down, with their statuses. Active runs are still suspended afterwards.

    Finished runs have no children: theirs were deleted after ttlSecondsAfterFinished, a day by default.
    """
    began, prepared, states = time.monotonic(), PreparedRuns(), iter(mix.states())
    for campaign in campaigns(mix.waiting + mix.active + mix.finished, templates.spec):
        planned = runs_of(users.create(campaign))
        chosen = [next(states) for _ in planned]
        users.each(
            lambda row: _make(users, row[0], templates.finished if row[1] is RunState.FINISHED else templates.waiting),
            zip(planned, chosen, strict=True),
        )
        for run, state in zip(planned, chosen, strict=True):
            prepared.names[state].append(run["metadata"]["name"])
        done = sum(map(len, prepared.names.values()))
        progress(f"{done} runs created in {time.monotonic() - began:.0f} s")
    prepared.seconds = time.monotonic() - began
    return prepared


def _make(users: Users, run: Resource, template: Resource) -> None:
    suspended = template["spec"].get("suspend", False)
    created = users.create({**run, "spec": {**run["spec"], "suspend": suspended}})
    users.set_status(created, status_of(template, created))


def standalone_run(name: str, spec: Mapping[str, Any]) -> Resource:
    """A run without a campaign."""
    kind = {"apiVersion": "specbench.io/v1alpha1", "kind": "SpecBenchRun"}
    return {**kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": dict(spec)}
