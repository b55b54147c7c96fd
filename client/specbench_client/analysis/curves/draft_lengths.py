"""The best measured draft length at each load, and the engine's schedule that follows from it.

Compared are the arms of one drafter that differ only in their draft length, and the baseline as length 0. The best has
the largest speed-up. It is paired with the next best request by request, so the interval of their ratio does not
contain the noise of the baseline. Nothing is estimated for lengths and loads that were not measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from specbench_api.launch.launcher import LaunchSpec
from specbench_api.launch.registry import LAUNCHERS, launch_problems
from specbench_api.launch.sglang import ADAPTIVE
from specbench_api.plan.expansion import launch_order
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import ARM_NAME_MAX, Drafter, DraftLength
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.compare.stored_result import CellKey, StoredResult
from specbench_client.analysis.curves.axes import CurveCell
from specbench_client.analysis.curves.build import baseline_of, rows_of, why_unusable
from specbench_client.analysis.estimates.speedups import SPEEDUP, PairedSpeedup, paired_speedup
from specbench_client.analysis.statistics.significance import verdicts
from specbench_client.analysis.stepcost.model import drafter_family
from specbench_client.documents.curves import BestDraftLength, DraftLengths, DraftLengthTable, DraftSchedule
from specbench_client.documents.figure import Verdict
from specbench_client.documents.summary import Cell
from specbench_client.metrics.pairing import pair_requests

SCHEDULE_ENGINES = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM)
"""Engines with a setting for draft lengths by batch size."""
NO_SETTING = "the engine has no setting for draft lengths by batch size"
NO_BATCH = "a schedule goes by batch size, which only loads of a fixed concurrency without think time determine"
NOTHING_PAYS = "no draft length pays at any measured load: leave drafting off"


@dataclass(frozen=True)
class _Option:
    """One draft length at one load, with its speed-up over the baseline, which is length 0."""

    draft_tokens: int
    speedup: float
    key: CellKey


@dataclass(frozen=True)
class _Compared:
    """The draft lengths measured at one load, the best first, and the best over the next best."""

    cell: CurveCell
    options: Sequence[_Option]
    ratio: PairedSpeedup


def best_draft_lengths(result: StoredResult, cells: Sequence[Cell]) -> DraftLengths:
    """Return a table for each drafter and workload of these cells."""
    families: dict[tuple[str, str], list[CurveCell]] = {}
    left_out: list[str] = []
    for each in cells:
        cell = CurveCell(result.plan.arm(each.arm), result.plan.workload(each.workload), each.level)
        family = drafter_family(cell.arm)
        if family is None:
            continue
        why = why_unusable(result, cell)
        if why:
            left_out.append(f"{cell.words}: {why}")
        else:
            families.setdefault((family, each.workload), []).append(cell)
    compared = [_compare(result, own) for own in families.values()]
    words = iter(verdicts([each.ratio.effect for loads in compared for each in loads]))
    tables = [
        _table(result, own, [_best(result, each, next(words)) for each in loads])
        for own, loads in zip(families.values(), compared, strict=True)
    ]
    return DraftLengths(simulated=result.summary.simulated, tables=tables, left_out=left_out)


def _compare(result: StoredResult, cells: Sequence[CurveCell]) -> list[_Compared]:
    """Compare the draft lengths of one drafter at each load."""
    found = []
    for _, at_load in groupby(sorted(cells, key=lambda cell: cell.level.order), key=lambda cell: cell.level.label):
        mine = list(at_load)
        options = [_Option(0, 1.0, baseline_of(mine[0])), *(_option(result, cell) for cell in mine)]
        options.sort(key=lambda option: (-option.speedup, option.draft_tokens))
        pairs = pair_requests(rows_of(result, options[0].key), rows_of(result, options[1].key), result.plan)
        ratio = paired_speedup(SPEEDUP, pairs, mine[0].workload.sampling.seed)
        found.append(_Compared(mine[0], options, ratio))
    return found


def _option(result: StoredResult, cell: CurveCell) -> _Option:
    speedup = result.cells_by_key[cell.key].speedup
    assert speedup is not None
    assert speedup.value is not None, "the cell is usable"
    return _Option(cell.arm.most_drafts, speedup.value, cell.key)


def _best(result: StoredResult, compared: _Compared, verdict: Verdict) -> BestDraftLength:
    best, other = compared.options[:2]
    return BestDraftLength(
        load=compared.cell.level.label,
        measured=sorted(option.draft_tokens for option in compared.options),
        draft_tokens=best.draft_tokens,
        speedup=result.cells_by_key[best.key].speedup,
        next_draft_tokens=other.draft_tokens,
        ratio=compared.ratio.figure,
        conclusion=verdict,
    )


def _table(result: StoredResult, cells: Sequence[CurveCell], loads: Sequence[BestDraftLength]) -> DraftLengthTable:
    schedule, why_none = _schedule(result.plan, cells, loads)
    return DraftLengthTable(
        arms=list(dict.fromkeys(cell.arm.name for cell in cells)),
        workload=cells[0].workload.name,
        loads=list(loads),
        schedule=schedule,
        why_no_schedule=why_none,
    )


# The schedule has the best length of each measured load, for the batches up to that load from the next smaller one on.
# It is rendered by the launcher of the run's engine, and it is a proposal until it was an arm of a run: what switching
# between lengths costs is not known before.


def _schedule(
    plan: Plan, cells: Sequence[CurveCell], loads: Sequence[BestDraftLength]
) -> tuple[DraftSchedule | None, str]:
    """Return the schedule, or why there is none."""
    lengths = {each.draft_tokens for each in loads}
    if lengths == {0}:
        return None, NOTHING_PAYS
    if len(lengths) == 1:
        return None, f"one draft length is the best at every measured load: numSpeculativeTokens: {lengths.pop()}"
    if plan.engine.kind not in SCHEDULE_ENGINES:
        return None, NO_SETTING
    concurrency = {cell.level.label: cell.level.concurrency for cell in cells}
    if cells[0].workload.waits or None in concurrency.values():
        return None, NO_BATCH
    rows = []
    for tokens, same in groupby(loads, key=lambda each: each.draft_tokens):
        *_, last = same
        rows.append(DraftLength(batch_size=concurrency[last.load] or 0, tokens=tokens))
    longest = max(cells, key=lambda cell: cell.arm.most_drafts).arm.drafter
    assert longest is not None
    drafter = longest.model_copy(
        update={
            "name": f"{longest.name[: ARM_NAME_MAX - len('-schedule')]}-schedule",
            "draft_lengths": rows,
            "num_speculative_tokens": max(lengths),
        }
    )
    return _rendered(plan, drafter), ""


def _rendered(plan: Plan, drafter: Drafter) -> DraftSchedule:
    """Return the schedule as the run's engine takes it."""
    arm = Arm(name=drafter.name, drafter=drafter)
    order = launch_order(plan.model_copy(update={"arms": [arm]}), arm)
    launch = LAUNCHERS[plan.engine.kind].launch(order)
    problems = [f"{each.message} ({each.remedy})" if each.remedy else each.message for each in launch_problems(order)]
    return DraftSchedule(
        engine=str(plan.engine.kind),
        config=_config(plan.engine.kind, launch),
        arguments=list(launch.drafting),
        problems=problems,
        drafter=drafter.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        run_as=next((each.name for each in plan.arms if each.drafter and _alike(each.drafter, drafter)), None),
    )


def _alike(one: Drafter, other: Drafter) -> bool:
    """Return whether two drafters with a schedule draft alike; numSpeculativeTokens has no effect then."""
    first, second = (each.model_copy(update={"name": "", "num_speculative_tokens": 1}) for each in (one, other))
    return first == second


def _config(kind: EngineKind, launch: LaunchSpec) -> Any:
    """Return the part of the launch that is the schedule."""
    if kind is EngineKind.VLLM:
        index = launch.args.index("--speculative-config") + 1
        return json.loads(launch.args[index])["num_speculative_tokens_per_batch_size"]
    if kind is EngineKind.SGLANG:
        return json.loads(launch.configs[ADAPTIVE])
    return launch.drafting_config["speculative_config"]
