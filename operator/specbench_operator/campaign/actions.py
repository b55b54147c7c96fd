"""Which runs are changed, deleted and created now.

Only the campaign's own runs are touched. Nothing is created while the campaign holds its runs, and never more than
there are places; what the campaign suspended goes on before anything new begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specbench_api.plan.canonical import NOT_MEASURED
from specbench_operator.campaign.baselines import baselines
from specbench_operator.campaign.planned import Wanted, manifest
from specbench_operator.campaign.scene import Scene
from specbench_operator.state.campaign import ANNOTATION_HELD, RunPatch, RunSeen
from specbench_operator.state.child import Ref

PROPAGATED = tuple(field for field in NOT_MEASURED if field not in ("suspend", "results", "placement"))
"""Fields of the template that a run takes over while it lives. Its place and its results' place never change."""


def patches(scene: Scene) -> tuple[RunPatch, ...]:
    """Suspend, resume, and take over what may change under a run."""
    resumed = set(_resumed(scene))
    wanted = {run.name: run for run in scene.plan.runs}
    made = (
        RunPatch(run.ref, _merged(_spec_change(run, wanted[run.name]), _hold_change(scene, run, resumed)))
        for run in scene.begun
        if not run.deleting
    )
    return (*(patch for patch in made if patch.change), *_takings(scene, wanted))


def _takings(scene: Scene, wanted: Mapping[str, Wanted]) -> Iterator[RunPatch]:
    """Owner, labels and annotations of what becomes the campaign's own; its spec is as whoever made it wants it."""
    for run in scene.taken_over:
        made = manifest(scene.plan, wanted[run.name], scene.round.token, scene.round.fire_time)["metadata"]
        yield RunPatch(run.ref, {"metadata": {key: made[key] for key in ("labels", "annotations", "ownerReferences")}})


def deletions(scene: Scene) -> tuple[Ref, ...]:
    """Runs that nobody asks for any more and that have not ended; and rounds beyond the history's limit.

    What the round's own gates compare with stays beyond that limit too.
    """
    oldest_kept, kept = scene.round.number - scene.spec.run_history_limit + 1, baselines(scene)
    return tuple(
        run.ref
        for run in scene.unwanted
        if not run.deleting and run.name not in kept
        if not run.ended or (run.number is not None and run.number < oldest_kept)
    )


def creations(scene: Scene) -> tuple[Mapping[str, Any], ...]:
    """The next runs in the plan's order, as many as there are places for."""
    if scene.hold or scene.stopped:
        return ()
    places = scene.free - sum(not scene.mine[name].over for name in _resumed(scene))
    cause = (scene.round.token, scene.round.fire_time)
    return tuple(manifest(scene.plan, wanted, *cause) for wanted in scene.missing[: max(places, 0)])


def _resumed(scene: Scene) -> list[str]:
    """Runs that the campaign suspended and lets go on now, the first in the plan's order first.

    What failed takes no place, so all of that is let go.
    """
    if scene.hold:
        return []
    held = [run for run in scene.begun if run.resumable and not run.deleting]
    failed, unfinished = [run for run in held if run.over], [run for run in held if not run.over]
    return [run.name for run in (*failed, *unfinished[: scene.free])]


def _hold_change(scene: Scene, run: RunSeen, resumed: set[str]) -> dict[str, Any]:
    if scene.hold and not run.ended and not run.suspended:
        return _with_annotation({"spec": {"suspend": True}}, scene.hold)
    if run.name in resumed:
        return _with_annotation({"spec": {"suspend": False}}, None)
    if run.held and not run.suspended:
        return _with_annotation({}, None)  # somebody resumed it by hand: from now on it is theirs to suspend
    return {}


def _spec_change(run: RunSeen, wanted: Wanted) -> dict[str, Any]:
    present, template = (
        {field: spec[field] for field in PROPAGATED if field in spec} for spec in (run.spec, wanted.resource["spec"])
    )
    spec = _difference(present, template)
    return {"spec": spec} if spec else {}


def _difference(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """As a merge patch: what is gone is null, also inside objects, which a merge patch would else leave it in."""
    gone: dict[str, Any] = {field: None for field in present if field not in wanted}
    changed = {
        field: _difference(present[field], value)
        if isinstance(value, Mapping) and isinstance(present.get(field), Mapping)
        else value
        for field, value in wanted.items()
        if present.get(field) != value
    }
    return gone | changed


def _with_annotation(change: dict[str, Any], why: str | None) -> dict[str, Any]:
    return {**change, "metadata": {"annotations": {ANNOTATION_HELD: why}}}


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    spec = {**first.get("spec", {}), **second.get("spec", {})}
    return {**first, **second, **({"spec": spec} if spec else {})}
