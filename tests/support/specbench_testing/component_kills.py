"""Kills of components during a run: one of each kind, at a random or a given time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from specbench_testing.cluster import ApiError
from specbench_testing.cluster_run import ENDED, ClusterRun
from specbench_testing.installed_product import InstalledProduct
from specbench_testing.operator_process import eventually
from specbench_testing.retries import retry_until_available

STAGES = ("first engine starts", "first arm is measured", "second engine starts", "second arm is measured", "analysing")
LONGEST_WAIT_S = 12.0
"""About the duration of one stage, so that every part of it can be hit."""
_STATES = {"Starting": 0, "Measuring": 1, "Done": 1, "Failed": 1}


@dataclass(frozen=True)
class KillMoment:
    """A time after a run has reached a stage."""

    stage: int
    wait_s: float

    def __str__(self) -> str:
        return f"{self.wait_s:.1f} s after: {STAGES[self.stage]}"

    @classmethod
    def drawn(cls, kind: str, chance: Random) -> KillMoment:
        """A random time; an engine is killed only while one is still needed."""
        last = len(STAGES) - (1 if kind == "engine" else 0)
        return cls(chance.randrange(last), chance.uniform(0, LONGEST_WAIT_S))

    def wait(self, run: ClusterRun) -> None:
        """Wait for this time."""
        eventually(lambda: stage_of(run) >= self.stage, f"{run.name} does not reach the stage: {self}", 180)
        wait_elapsed(self.wait_s)


def stage_of(run: ClusterRun) -> int:
    """The current stage of a run; one beyond the last if it has ended."""
    status = run.status()
    if status.get("phase") in ENDED:
        return len(STAGES)
    if status.get("phase") == "Analyzing":
        return len(STAGES) - 1
    rows = (row for row in status.get("groups", []) if row["state"] in _STATES)
    return max((2 * row["index"] + _STATES[row["state"]] for row in rows), default=-1)


def wait_elapsed(seconds: float) -> None:
    """Wait for a fixed time; the condition is the clock itself."""
    due = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= due, within_s=seconds + 10)


def kill(kind: str, installed: InstalledProduct, run: ClusterRun, chance: Random) -> str | None:
    """Kill a component. Returns a description, or None if the run ended before the kill."""
    return _KILLS[kind](installed, run, chance)


def _kill_operator(installed: InstalledProduct, run: ClusterRun, chance: Random) -> str | None:
    names = [pod["metadata"]["name"] for pod in installed.operators()]
    for name in names:
        _delete_pod(installed, installed.product.system, name)
    return f"operator {names}"


def _kill_client(installed: InstalledProduct, run: ClusterRun, chance: Random) -> str | None:
    return _kill_pod(installed, run, ("client", "report"))


def _kill_engine(installed: InstalledProduct, run: ClusterRun, chance: Random) -> str | None:
    return _kill_pod(installed, run, ("engine",))


def _kill_s3(installed: InstalledProduct, run: ClusterRun, chance: Random) -> str | None:
    away_s = chance.uniform(2, 10)
    installed.ground.kill("versitygw")
    wait_elapsed(away_s)
    installed.ground.start("versitygw")
    return f"S3, for {away_s:.1f} s"


def _kill_api_server(installed: InstalledProduct, run: ClusterRun, chance: Random) -> str | None:
    installed.ground.kill("kube-apiserver")
    installed.ground.start("kube-apiserver")
    return "the API server"


def _kill_pod(installed: InstalledProduct, run: ClusterRun, roles: tuple[str, ...]) -> str | None:
    """Delete the living pod, or the next one that starts."""

    def targets() -> list[str]:
        return [name for role in roles for name in run.living(role)]

    eventually(lambda: targets() or stage_of(run) == len(STAGES), f"{run.name} has no pod of {roles}", 120)
    names = targets()
    if not names:
        return None
    _delete_pod(installed, run.namespace, names[0])
    return f"pod {names[0]}"


def _delete_pod(installed: InstalledProduct, namespace: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    try:
        retry_until_available(lambda: installed.cluster.call("DELETE", path, {"gracePeriodSeconds": 0}))
    except ApiError as refused:
        if refused.status != 404:  # the pod ended at the same time
            raise


_KILLS: dict[str, Callable[[InstalledProduct, ClusterRun, Random], str | None]] = {
    "operator": _kill_operator,
    "client": _kill_client,
    "engine": _kill_engine,
    "s3": _kill_s3,
    "api-server": _kill_api_server,
}
KINDS = tuple(_KILLS)
