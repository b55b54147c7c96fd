"""What the runs came to, together: counts, the best figure, whether it can be trusted, the gate, and a row each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specbench_api.spec.campaign_status import RunCounts, RunRow
from specbench_operator.campaign.planned import Wanted
from specbench_operator.campaign.scene import Scene
from specbench_operator.state.campaign import RunSeen, Stranger

ROWS_MAX = 256
NONE_FASTER = "none faster"
GATE = "GatePassed"
WHY_NOT: Mapping[Stranger, str] = {
    Stranger.FOREIGN: "NameTaken",
    Stranger.LEFTOVER: "WaitingForRemoval",
    Stranger.ORPHAN: "TakenOver",
}
"""Why a run cannot be made, by whose it is that has its name."""


def counts_of(scene: Scene) -> RunCounts:
    """Each run of the plan is counted once, but for the untrustworthy, who have succeeded too."""
    queued = [run for run in scene.begun if run.queued]
    active = [run for run in scene.begun if not run.over and not run.queued]
    return RunCounts(
        total=len(scene.plan.runs),
        active=len(active),
        queued=len(queued),
        succeeded=len(succeeded(scene)),
        failed=len(scene.failed) + len(scene.taken),
        untrustworthy=len(untrustworthy(scene)),
    )


def succeeded(scene: Scene) -> list[RunSeen]:
    """Runs with results."""
    return [run for run in scene.begun if run.succeeded]


def untrustworthy(scene: Scene) -> list[RunSeen]:
    """Of them, those whose numbers cannot be trusted."""
    return [run for run in succeeded(scene) if run.is_false("Trustworthy")]


def progress_of(scene: Scene) -> str:
    """Runs that have ended, of all."""
    return f"{sum(run.over for run in scene.begun) + len(scene.taken)}/{len(scene.plan.runs)}"


def best_of(scene: Scene) -> str:
    """The largest speed-up of all runs that can be trusted, with where it was found; else that none is faster."""
    cells = {wanted.name: wanted.short_cell for wanted in scene.plan.runs}
    trusted = [run for run in succeeded(scene) if not run.is_false("Trustworthy") and run.best]
    faster = [(run.speedup, run) for run in trusted if run.speedup is not None]
    if faster:
        run = max(faster, key=lambda pair: (pair[0], pair[1].name))[1]
        return f"{run.best} ({cells[run.name]})"[:160]
    return NONE_FASTER if trusted and scene.complete else ""


def verdict_of(scene: Scene) -> str:
    """Trustworthy, how many are not, or nothing while it is not known."""
    good, bad = succeeded(scene), untrustworthy(scene)
    if bad:
        return f"{len(bad)} of {len(good)} untrustworthy"
    return "Trustworthy" if good and scene.complete else ""


def gate_of(scene: Scene) -> str:
    """How many runs passed their gate, of those that have one."""
    gated = [run for run in scene.begun if GATE in run.conditions]
    passed, failed = sum(run.is_true(GATE) for run in gated), sum(run.is_false(GATE) for run in gated)
    words = (f"{passed} of {len(gated)} passed", f"{failed} failed" if failed else "")
    return ", ".join(word for word in words if word) if gated else ""


def rows_of(scene: Scene) -> list[RunRow]:
    """One a run of the plan, in its order; then what was taken off the matrix in this round and is still there."""
    mine = scene.mine
    planned = [_row(scene, wanted, mine.get(wanted.name)) for wanted in scene.plan.runs]
    left = [run for run in scene.unwanted if run.number == scene.round.number]
    return [*planned, *(_told(scene, run, "", "OffTheMatrix") for run in left)][:ROWS_MAX]


def _row(scene: Scene, wanted: Wanted, run: RunSeen | None) -> RunRow:
    if run is None:
        other = scene.strangers.get(wanted.name)
        reason = WHY_NOT[other] if other else ""
        return RunRow(name=wanted.name, cell=wanted.short_cell, reason=reason)
    return _told(scene, run, wanted.short_cell, next(_reasons(run), ""))


def _told(scene: Scene, run: RunSeen, cell: str, reason: str) -> RunRow:
    return RunRow(
        name=run.name,
        cell=cell,
        phase=run.phase[:16] or "Pending",
        reason=reason[:32],
        progress=run.progress[:12],
        verdict=run.verdict[:16],
        best=run.best[:64],
        gpu_seconds=scene.spending.by_run.get(run.name),
    )


def _reasons(run: RunSeen) -> Iterator[str]:
    """Why it failed or waits, what weighs most first."""
    if run.deleting:
        yield "Deleting"
    if run.failed and "Stalled" in run.conditions:
        yield run.conditions["Stalled"].reason
    if run.over:
        return
    if run.suspended:
        yield run.held or "SuspendedByHand"
    if run.queued:
        yield run.conditions["Queued"].reason
    told = run.conditions.get("Reconciling")
    if told and told.reason != run.phase:
        yield told.reason
