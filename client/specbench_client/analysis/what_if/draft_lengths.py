"""Proposes the best draft length by batch size from stored runs, and renders the schedule for engines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from specbench_api.errors import InvalidSpec
from specbench_api.launch.launcher import LaunchSpec
from specbench_api.launch.registry import LAUNCHERS, launch_problems
from specbench_api.launch.sglang import ADAPTIVE
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.step_cost import StepCost, StepObservation
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.expansion import expand, launch_order
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import BASELINE_NAME, Drafter, DraftLength
from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.results import S3, Results
from specbench_api.spec.run import Metadata, RunSpec, SpecBenchRun
from specbench_client.analysis.stepcost.model import drafter_family, step_costs
from specbench_client.analysis.stepcost.observations import REQUESTS_MIN
from specbench_client.analysis.stepcost.surfaces import StepTimeSurface, surfaces
from specbench_client.documents.what_if import (
    DraftLengthOption,
    DraftSchedule,
    DraftScheduleRange,
    EmittedTokens,
    EngineDraftSchedule,
    TokensEvidence,
)
from specbench_client.errors import BadInput
from specbench_client.metrics.acceptance import EMITTED_POOLED, VERIFIED_POOLED, position_acceptance

# Tokens per step are measured where an arm had the draft length, and otherwise bounded from a longer draft.
#
# A run at k bounds the shorter length k′ by 1 + Σ_{i ≤ k′} p_i, where p_i is the share of draft steps that accepted at
# least i drafts. It is a lower bound: after a shorter draft the next step starts where the longer draft continued, and
# drafts are good at those positions (2 to 30 % too low on vLLM's traces). Where some steps find nothing to draft, the
# sum holds for the other steps only.

ArmCells = Sequence[tuple[Arm, Cell]]
"""The cells of one drafter at all its draft lengths, for one workload, without the baseline's cells."""


def emitted_by_length(cells: ArmCells) -> list[EmittedTokens]:
    """Return the tokens per step by draft length, length 0 included: a step without drafts emits one token."""
    known = {each.draft_tokens: each for each in _measured(cells)}
    bounds = {each.draft_tokens: each for each in _bounds(cells)}
    none = EmittedTokens(
        draft_tokens=0, tokens=1.0, relative_error=0.0, how=TokensEvidence.MEASURED, source="no drafts"
    )
    found = {0: none} | bounds | known
    return [found[length] for length in sorted(found)]


def draft_tokens_of(arm: Arm) -> int:
    """Return the draft tokens per step of an arm; 0 for the baseline."""
    return arm.drafter.num_speculative_tokens if arm.drafter else 0


def _measured(cells: ArmCells) -> Iterable[EmittedTokens]:
    for length in sorted({draft_tokens_of(arm) for arm, _ in cells}):
        mine = [(arm, cell) for arm, cell in cells if draft_tokens_of(arm) == length]
        tokens, error = _mean([cell.figures.get(EMITTED_POOLED.name) for _, cell in mine])
        if tokens is not None:
            name = mine[0][0].name
            yield EmittedTokens(
                draft_tokens=length, tokens=tokens, relative_error=error, how=TokensEvidence.MEASURED, source=name
            )


def _bounds(cells: ArmCells) -> Iterable[EmittedTokens]:
    """Yield bounds from the longest draft first, so that the tighter bounds of shorter drafts replace them."""
    for length in sorted({draft_tokens_of(arm) for arm, _ in cells}, reverse=True):
        mine = [(arm, cell) for arm, cell in cells if draft_tokens_of(arm) == length]
        rates = [
            _mean([cell.figures.get(position_acceptance(at).name) for _, cell in mine]) for at in range(1, length + 1)
        ]
        values = [value for value, _ in rates]
        if None in values:
            continue
        accepted = np.cumsum([value for value in values if value is not None])
        share = _drafting_share([cell for _, cell in mine], float(accepted[-1]))
        error = max(each for _, each in rates)
        for shorter in range(1, length):
            gained = share * float(accepted[shorter - 1])
            yield EmittedTokens(
                draft_tokens=shorter,
                tokens=1 + gained,
                relative_error=error * gained / (1 + gained),
                how=TokensEvidence.LOWER_BOUND,
                source=mine[0][0].name,
            )


def _drafting_share(cells: Sequence[Cell], accepted: float) -> float:
    """Return the share of steps that drafted: accepted drafts per step over accepted drafts per draft step."""
    verified, _ = _mean([cell.figures.get(VERIFIED_POOLED.name) for cell in cells])
    return 1.0 if verified is None or accepted <= 0 else float(np.clip((verified - 1) / accepted, 0.0, 1.0))


def _mean(figures: Sequence[Figure | None]) -> tuple[float | None, float]:
    """Return the mean over the loads and its relative error.

    The error is the mean of the cells' errors, not reduced by their number, because all cells have the same prompts.
    """
    known = [(each, each.value) for each in figures if each is not None and each.value is not None]
    if not known:
        return None, 0.0
    errors = [_relative_error(figure, value) for figure, value in known]
    return float(np.mean([value for _, value in known])), float(np.mean(errors))


def _relative_error(figure: Figure, value: float) -> float:
    bounds = figure.interval
    return (bounds.high - bounds.low) / 2 / value if bounds and value > 0 else 0.0


# The schedule takes the draft length with the largest token goodput at each batch size: tokens per step over step time,
# because the batch size multiplies all lengths alike. Unmeasured batch sizes get no length of their own: below the
# smallest batch size its length is carried over and marked, because engines need ranges from 1 on; above the largest
# batch size engines keep the last length.
#
# There is no hysteresis. Where lengths differ by less than their errors the range lists them as tied, and the run that
# verifies the schedule shows what switching costs.

Z_95 = 1.96
"""Multiplies the held-out error, so that it matches the 95 % half-widths of acceptance lengths."""


def choose_schedule(
    arms: Sequence[str],
    workload: str,
    surface: StepTimeSurface,
    emitted: Sequence[EmittedTokens],
    notes: Sequence[str] = (),
) -> DraftSchedule | None:
    """Choose a length for every batch size in the measured range; None if no batch size has two lengths to compare."""
    low, high = surface.batches
    first, last = max(1, math.floor(low)), math.ceil(high)
    chosen = {batch: ranked_options(surface, emitted, min(max(batch, low), high)) for batch in range(first, last + 1)}
    comparable = {batch: options for batch, options in chosen.items() if len(options) > 1}
    if not comparable:
        return None
    ranges = _ranges(comparable)
    if ranges[0].first > 1:
        ranges[0] = ranges[0].model_copy(update={"first": 1, "carried": True})
    measured = sorted({min(max(round(cell.batch), first), last) for cell in surface.cells})
    return DraftSchedule(
        arms=list(arms),
        workload=workload,
        context_tokens=None if surface.context is None else round(surface.context),
        basis=surface.cost.basis,
        batches=(first, last),
        emitted=list(emitted),
        ranges=ranges,
        table={batch: comparable[batch] for batch in measured if batch in comparable},
        notes=[*surface.cost.notes, *_error_notes(surface), *notes],
    )


def _error_notes(surface: StepTimeSurface) -> list[str]:
    note = "step times are used as measured: their error is not known and is not part of the ties"
    return [] if surface.error else [note]


def ranked_options(surface: StepTimeSurface, emitted: Sequence[EmittedTokens], batch: float) -> list[DraftLengthOption]:
    """Return every draft length whose step time is known at this batch size, the best first."""
    timed = [(each, time) for each in emitted if (time := surface.step_ms(batch, each.draft_tokens)) is not None]
    ranked = sorted(timed, key=lambda pair: (-pair[0].tokens / pair[1], pair[0].draft_tokens))
    if not ranked:
        return []
    best, least = ranked[0], ranked[0][0].tokens / ranked[0][1]
    return [
        DraftLengthOption(
            draft_tokens=each.draft_tokens,
            step_ms=time,
            tokens_per_s=1000 * each.tokens / time,
            tied=each is not best[0] and each.tokens / time >= least * (1 - _noise(each, best[0], surface.error)),
            how=each.how,
        )
        for each, time in ranked
    ]


def _noise(one: EmittedTokens, other: EmittedTokens, error: float) -> float:
    """Return the relative error of the ratio of two goodputs, as if their errors were independent (conservative)."""
    return math.hypot(one.relative_error, other.relative_error, math.sqrt(2) * Z_95 * error)


def _ranges(chosen: Mapping[int, Sequence[DraftLengthOption]]) -> list[DraftScheduleRange]:
    """Return ranges of neighbouring batch sizes with the same best length."""
    every, found = {option.draft_tokens for options in chosen.values() for option in options}, []
    for length, group in groupby(sorted(chosen), key=lambda batch: chosen[batch][0].draft_tokens):
        batches = list(group)
        middle = chosen[batches[len(batches) // 2]]
        tied = {option.draft_tokens for batch in batches for option in chosen[batch] if option.tied}
        known = set.intersection(*({option.draft_tokens for option in chosen[batch]} for batch in batches))
        found.append(
            DraftScheduleRange(
                first=batches[0],
                last=batches[-1],
                draft_tokens=length,
                tied=sorted(tied),
                gain=_gain(middle),
                unknown=sorted(every - known),
            )
        )
    return found


def _gain(options: Sequence[DraftLengthOption]) -> float | None:
    """Return the goodput of the best length over that without drafts; None if there is no baseline at this batch."""
    without = next((each for each in options if not each.draft_tokens), None)
    return options[0].tokens_per_s / without.tokens_per_s if without else None


@dataclass(frozen=True)
class RunSource:
    """Plan and summary of one stored run."""

    plan: Plan
    summary: RunSummary

    @property
    def observed(self) -> list[tuple[Arm, StepObservation]]:
        """Observed step times with their arms. The baseline is in every profile, and here only once."""
        by_cell = {
            (each.arm, each.workload, each.load): each for cost in self.summary.step_costs for each in cost.observations
        }
        return [(self.plan.arm(each.arm), each) for each in by_cell.values()]

    @property
    def cells(self) -> list[tuple[Arm, Cell]]:
        """Valid cells with their arms."""
        return [(self.plan.arm(cell.arm), cell) for cell in self.summary.cells if cell.valid]


def missing_step_times(plan: Plan, summary: RunSummary, uri: str) -> str:
    """Return why a summary has no step-cost profile, and what to do about it. `uri`: as the user gave it."""
    drafted = [cell for cell in summary.cells if cell.arm != BASELINE_NAME]
    if plan.engine.is_external:
        return "the run measured an endpoint, whose draft length is not declared: measure it with `specbench run`"
    if not any(arm.drafter for arm in plan.arms):
        return "the run has the baseline alone: add drafters at two or more draft lengths and measure them"
    if not any(drafter_family(arm) for arm in plan.arms):
        return (
            "all its drafters draft trees or follow a draft-length schedule, for which no step cost is fitted:"
            " measure chains of fixed lengths (numSpeculativeTokens alone)"
        )
    if drafted and not any(cell.valid for cell in drafted):
        return f"no cell with a drafter is valid: specbench report {uri} reports why, and what to do about it"
    return (
        f"no cell with a drafter has {REQUESTS_MIN} steady requests whose steps the engine reported: measure with an"
        " engine that reports them (docs/reference/records.md, Acceptance), and with more requests"
    )


@dataclass(frozen=True)
class ProposedSchedule:
    """A schedule, the arm with its longest draft, and the step costs it was computed from."""

    schedule: DraftSchedule
    longest: Arm
    cost: StepCost


def without_repeats(sources: Sequence[RunSource]) -> tuple[list[RunSource], list[RunSource]]:
    """Return the sources without repeated runs, and the repeats.

    A repeated cell would be held out against its own copy, and the model would look better than it is.
    """
    keys = [(source.plan.namespace, source.plan.name, source.plan.uid) for source in sources]
    again = [source for index, source in enumerate(sources) if keys[index] in keys[:index]]
    return [source for index, source in enumerate(sources) if keys[index] not in keys[:index]], again


def run_differences(sources: Sequence[RunSource]) -> list[str]:
    """Return the differences that forbid to combine the runs, as sentences; empty if they can be combined."""
    first = sources[0].plan
    found = []
    for other in (source.plan for source in sources[1:]):
        sides = (
            ("model", first.target, other.target),
            ("engine", first.engine, other.engine),
            ("GPUs and nodes", first.placement, other.placement),
        )
        found += [f"{first.name} and {other.name} differ in their {what}" for what, one, two in sides if one != two]
        found += [
            f"{first.name} and {other.name} differ in workload {one.name}"
            for one in first.workloads
            for two in other.workloads
            if one.name == two.name and one != two
        ]
    return found


def step_cost_profiles(sources: Sequence[RunSource]) -> list[StepCost]:
    """Return the step-cost profiles fitted to the cells of all runs together."""
    return step_costs(pair for source in sources for pair in source.observed)


def propose_schedules(
    sources: Sequence[RunSource], only: Sequence[int] = (), contexts: Sequence[int] = (), workload: str | None = None
) -> list[ProposedSchedule]:
    """Propose a schedule for each drafter and workload.

    `only`: draft lengths to choose from; empty for all. `contexts`: tokens in the cache of a request, with a schedule
    for each; empty for the workload's mean. Raises BadInput for a context without a known cost.
    """
    cells = [pair for source in sources for pair in source.cells]
    observed = [pair for source in sources for pair in source.observed]
    families = dict.fromkeys(family for arm, _ in observed if (family := drafter_family(arm)) is not None)
    found = []
    for cost, family in zip(step_cost_profiles(sources), families, strict=True):
        mine = [(arm, cell) for arm, cell in cells if drafter_family(arm) == family]
        for name, surface in surfaces(cost).items():
            if workload not in (None, name):
                continue
            emitted = emitted_by_length([(arm, cell) for arm, cell in mine if cell.workload == name])
            known = [each for each in emitted if not only or each.draft_tokens in only]
            arms = sorted({arm.name for arm, cell in mine if cell.workload == name})
            notes = [*_bound_notes(known), *_left_out(sources, family, name)]
            notes += [f"tokens per step are those of {name} at every context"] if contexts else []
            for there in [surface.at_context(tokens) for tokens in contexts] or [surface]:
                made = choose_schedule(arms, name, there, known, notes)
                if made is not None:
                    found.append(ProposedSchedule(made, max((arm for arm, _ in mine), key=draft_tokens_of), cost))
    return found


def _bound_notes(known: Sequence[EmittedTokens]) -> list[str]:
    bounded = [str(each.draft_tokens) for each in known if each.how is TokensEvidence.LOWER_BOUND]
    if not bounded:
        return []
    lengths = ", ".join(bounded)
    return [f"draft lengths {lengths} were not run: their tokens per step are lower bounds, from longer drafts"]


def _left_out(sources: Sequence[RunSource], family: str, workload: str) -> list[str]:
    """Return a note on the invalid cells of the drafter and of the baseline."""
    invalid = [
        f"{cell.arm} at {cell.level.label}"
        for source in sources
        for cell in source.summary.cells
        if not cell.valid
        and cell.workload == workload
        and (source.plan.arm(cell.arm).is_baseline or drafter_family(source.plan.arm(cell.arm)) == family)
    ]
    return [f"left out as invalid: {', '.join(invalid)}"] if invalid else []


# The schedule as an engine's configuration, rendered by the launcher of that engine, and as a run that verifies it.

SCHEDULE_ENGINES = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM)
"""Engines with a setting for draft lengths by batch size."""
ROWS_MAX = 16
BUCKET_PLACEHOLDER = "my-bucket"
"""Bucket of the printed run, to be replaced by the user."""
_NAME_MAX = 32


def drafting_pays(schedule: DraftSchedule) -> bool:
    """Return whether the schedule drafts any token at any batch size."""
    return any(each.draft_tokens for each in schedule.ranges)


def with_schedule(longest: Drafter, schedule: DraftSchedule) -> Drafter:
    """Return the drafter with this schedule, which must draft at some batch size. Raises BadInput: too many ranges."""
    lengths = [DraftLength(batch_size=each.last, tokens=each.draft_tokens) for each in schedule.ranges]
    if len(lengths) > ROWS_MAX:
        message = f"the schedule has {len(lengths)} ranges, at most {ROWS_MAX} are allowed: choose fewer lengths with"
        raise BadInput(f"{message} --draft-tokens 0,1,3,5", "TooManyRanges")
    changes = {"name": f"{longest.name[: _NAME_MAX - len('-schedule')]}-schedule", "draft_lengths": lengths}
    return longest.model_copy(update=changes | {"num_speculative_tokens": max(each.tokens for each in lengths)})


def engine_schedule(kind: EngineKind, plan: Plan, longest: Arm, schedule: DraftSchedule) -> EngineDraftSchedule:
    """Render the schedule for one engine. A run that verifies it needs the plan's own engine. Raises BadInput."""
    assert longest.drafter is not None
    arm = Arm(name="schedule", drafter=with_schedule(longest.drafter, schedule))
    own = plan.engine.kind is kind
    engine = plan.engine if own else Engine(kind=kind)
    order = launch_order(plan.model_copy(update={"engine": engine, "arms": [arm]}), arm)
    problems = [f"{each.message} ({each.remedy})" if each.remedy else each.message for each in launch_problems(order)]
    launch = LAUNCHERS[kind].launch(order)
    run, run_problems = (
        _verifying_run(plan, arm.drafter, schedule) if own and arm.drafter and not problems else (None, [])
    )
    return EngineDraftSchedule(
        engine=str(kind),
        config=_config(kind, launch),
        arguments=list(launch.drafting),
        problems=[*problems, *run_problems],
        run=run,
    )


def _config(kind: EngineKind, launch: LaunchSpec) -> Any:
    """Return the part of the launch that is the schedule."""
    if kind is EngineKind.VLLM:
        index = launch.args.index("--speculative-config") + 1
        return json.loads(launch.args[index])["num_speculative_tokens_per_batch_size"]
    if kind is EngineKind.SGLANG:
        return json.loads(launch.configs[ADAPTIVE])
    return launch.drafting_config["speculative_config"]


def _verifying_run(plan: Plan, drafter: Drafter, schedule: DraftSchedule) -> tuple[dict[str, Any] | None, list[str]]:
    """Return a run of the schedule and the lengths it was made from, or the validation errors of that run."""
    fixed = [arm.drafter for arm in plan.arms if arm.drafter and arm.name in schedule.arms]
    try:
        run = SpecBenchRun(
            metadata=Metadata(name=f"{plan.name[:40]}-schedule"),
            spec=RunSpec(
                model=plan.target,
                engine=plan.engine,
                drafters=[*fixed, drafter],
                workloads=[each for each in plan.workloads if each.name == schedule.workload],
                load=plan.load,
                placement=plan.placement,
                results=Results(s3=S3(bucket=BUCKET_PLACEHOLDER)),
            ),
        )
        expand(run)
    except InvalidSpec as error:
        return None, [str(problem) for problem in error.problems]
    spec = run.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return {"apiVersion": run.api_version, "kind": run.kind, "metadata": {"name": run.metadata.name}, "spec": spec}, []
