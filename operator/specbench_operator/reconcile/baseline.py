"""Which earlier result a gate means: a run's, that of a campaign's same cell, or one that is named by its URI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.campaign.names import ANNOTATION_CELL
from specbench_api.spec.conditions import GateWait, Phase
from specbench_api.spec.gate import BaselineRef
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.state.observed import EarlierRun, Observed


@dataclass(frozen=True)
class Baseline:
    """It is there."""

    uri: str


@dataclass(frozen=True)
class NoBaseline:
    """It is not, or not yet."""

    why: GateWait
    message: str
    awaits: frozenset[str] = frozenset()
    """Names of runs that may come to be it."""


def baseline_of(run: SpecBenchRun, ref: BaselineRef, observed: Observed) -> Baseline | NoBaseline:
    """Find it among what was observed."""
    if ref.uri is not None:
        return Baseline(ref.uri)
    if ref.run is not None:
        return _of_run(run, ref.run, observed.earlier)
    return _of_campaign(str(ref.campaign), observed)


def _of_run(run: SpecBenchRun, name: str, earlier: Sequence[EarlierRun]) -> Baseline | NoBaseline:
    if name == run.metadata.name:
        return _missing("spec.gate.baselineRef.run names this very run: name an earlier one")
    found = next((each for each in earlier if each.name == name), None)
    if found is None:
        message = f"there is no SpecBenchRun {name!r} in this namespace: create it, or change baselineRef"
        return NoBaseline(GateWait.BASELINE_MISSING, message, frozenset({name}))
    return _usable([found])


def _of_campaign(name: str, observed: Observed) -> Baseline | NoBaseline:
    meta = observed.resource["metadata"]
    cell = (meta.get("annotations") or {}).get(ANNOTATION_CELL, "")
    if not cell:
        return _missing(f"this run has no annotation {ANNOTATION_CELL}: baselineRef.campaign is for runs of a campaign")
    mine = str(meta.get("creationTimestamp", ""))
    older = [
        each for each in observed.earlier if each.uid != meta["uid"] and each.created <= mine and each.cell == cell
    ]
    if not older:
        return _missing(f"the campaign {name!r} has no earlier run of this cell: {cell}")
    return _usable(sorted(older, key=lambda each: (each.created, each.name), reverse=True))


def _usable(newest_first: Sequence[EarlierRun]) -> Baseline | NoBaseline:
    finished = next((each for each in newest_first if each.phase == Phase.SUCCEEDED and each.uri), None)
    if finished:
        return Baseline(finished.uri)
    awaits = frozenset(each.name for each in newest_first)
    at_work = next((each for each in newest_first if each.phase not in (Phase.FAILED, Phase.INVALID)), None)
    if at_work:
        phase = at_work.phase or "no phase yet"
        message = f"the SpecBenchRun {at_work.name!r} is not finished: {phase}"
        return NoBaseline(GateWait.BASELINE_NOT_FINISHED, message, awaits)
    failed = newest_first[0]
    message = f"the SpecBenchRun {failed.name!r} has no result: {failed.phase}; change baselineRef"
    return NoBaseline(GateWait.BASELINE_FAILED, message, awaits)


def _missing(message: str) -> NoBaseline:
    return NoBaseline(GateWait.BASELINE_MISSING, message)
