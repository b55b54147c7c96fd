"""The hours in `specbench plan`: the option --assume, the estimate, and its text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from specbench_api.errors import InvalidSpec, NotYaml, Problem
from specbench_api.plan.estimate import SECONDS_AN_HOUR
from specbench_api.plan.plan import Plan
from specbench_api.spec.bounded_yaml import yaml_documents
from specbench_api.spec.campaign import Budget
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.parsing import problems_in, read_yaml
from specbench_client.analysis.decision.decode_speed import DecodeSpeed, Span, decode_speed
from specbench_client.analysis.decision.gpu_hours import (
    HoursEstimate,
    PromptSizes,
    estimate_hours,
    parallel_arms,
)
from specbench_client.cli.options import prefixed
from specbench_client.documents.assumptions import Assumptions
from specbench_client.store.store import Store
from specbench_client.stored_runs.point_durations import durations_for, read_durations
from specbench_client.workload.prompt_lengths import measure_lengths
from specbench_client.workload.prompts import Prompts

_EXAMPLE = "--assume gpu=H100"
ASSUME = click.option(
    "--assume",
    "assumed",
    multiple=True,
    metavar="NAME=VALUE-or-FILE",
    help="Assume this for the hours: gpu=H100, modelParametersB=70, launchSeconds=60, streamTokensPerSecond=90, or a"
    " YAML file of them; see docs/how-to/gpu-hours.md. Repeatable.",
)
_OF_BUDGET = {"launchSeconds": "launch_seconds", "pointSeconds": "point_seconds"}
"""What --assume takes for the fields of a campaign's budget."""
_ON_GPUS = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM)
GPU_LABEL = "nvidia.com/gpu.product"


@dataclass(frozen=True)
class HoursInputs:
    """What the command line gives for the estimate. `budget`: launchSeconds and pointSeconds of --assume."""

    assumed: Assumptions
    budget: Mapping[str, int]


def read_assumptions(given: Sequence[str]) -> HoursInputs:
    """Return the assumptions of --assume; later ones win. Raises InvalidSpec, NotYaml."""
    merged: dict[str, Any] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if separator:
            documents = yaml_documents(value, f"--assume {name}")
            merged[name] = documents[0] if documents else None
            continue
        try:
            content = read_yaml(Path(each).read_text(encoding="utf-8"), each)
        except (OSError, UnicodeDecodeError) as error:
            message = "is neither NAME=VALUE nor a file that can be read"
            raise NotYaml([Problem(f"--assume {each}", message, _EXAMPLE)]) from error
        if not isinstance(content, dict):
            raise InvalidSpec([Problem(each, "expected names and values", "gpu: H100")])
        merged |= content
    durations = {name: merged.pop(name) for name in _OF_BUDGET if name in merged}
    try:
        budget = Budget.model_validate(durations).model_dump(include={_OF_BUDGET[name] for name in durations})
        assumed = Assumptions.model_validate(merged)
    except ValidationError as error:
        model = Budget if error.title == Budget.__name__ else Assumptions
        raise InvalidSpec(prefixed(problems_in(error, model), "--assume")) from error
    return HoursInputs(assumed, budget)


def with_gpus(plan: Plan) -> Plan:
    """Return the plan with the GPUs of `tensorParallelSize`, if the engine needs GPUs and `placement` has none."""
    if plan.placement.engine_devices or plan.engine.kind not in _ON_GPUS:
        return plan
    placement = plan.placement.model_copy(update={"gpus": plan.engine.tensor_parallel_size})
    return plan.model_copy(update={"placement": placement})


def sizes_of(prompts: Prompts) -> PromptSizes:
    """Return turns and mean tokens of a workload's prompts."""
    tokens = measure_lengths(prompts.rows).tokens
    return PromptSizes([len(row.turns) for row in prompts.rows], sum(tokens.values()) / len(tokens) if tokens else None)


@dataclass(frozen=True)
class PlannedHours:
    """The estimate of one run, with what limits it. `limit_gpu_hours`: one attempt of each launch, to its deadline."""

    estimate: HoursEstimate
    speed: DecodeSpeed | None
    deadline_s: int
    plan: Plan
    node_gpus: int

    @property
    def limit_gpu_hours(self) -> float:
        """GPU-hours after which Kubernetes has ended every launch that remains."""
        return self.estimate.launches * self.deadline_s * self.estimate.gpus / SECONDS_AN_HOUR


class HoursEstimator:
    """Estimates the runs of one command; the stored results are read once."""

    def __init__(self, inputs: HoursInputs, results: Store | None) -> None:
        self._inputs = inputs
        self._stored = read_durations(results) if results is not None else []

    def of(
        self, plan: Plan, deadline_s: int, prompts: Mapping[str, PromptSizes], done: Collection[str], budget: Budget
    ) -> PlannedHours | None:
        """Return the estimate; None for an engine without GPUs of which nothing was measured or is assumed."""
        assumed, placed = self._inputs.assumed, with_gpus(plan)
        measured = durations_for(plan, self._stored)
        speed = self._speed(placed)
        if speed is None and not placed.placement.engine_devices and not measured.points:
            return None
        budget = budget.model_copy(update=dict(self._inputs.budget))
        hours = estimate_hours(placed, speed, assumed, budget=budget, prompts=prompts, done=done, measured=measured)
        return PlannedHours(hours, speed, deadline_s, placed, assumed.node_gpus)

    def _speed(self, plan: Plan) -> DecodeSpeed | None:
        """Return the prior speed; None for an engine without GPUs, unless its speed is given."""
        gpus = plan.placement.engine_devices
        if not gpus and self._inputs.assumed.stream_tokens_per_second is None:
            return None
        product = plan.placement.node_selector.get(GPU_LABEL)
        return decode_speed(plan.target.name, " ".join(plan.engine.args), product, max(gpus, 1), self._inputs.assumed)


def hours_document(hours: PlannedHours | None) -> dict[str, Any]:
    """Return the estimate for JSON; `engineHours` and `gpuHours` are the expected values."""
    if hours is None:
        return {"engineHours": None, "gpuHours": None}
    found = hours.estimate
    return {
        **_hours_fields(found.engine_hours, found.gpu_hours, hours.limit_gpu_hours),
        "remainingLaunches": found.launches,
        "remainingPoints": found.points,
        "launchSecondsRange": _pair(found.launch_seconds),
        "pointsByBasis": {basis.name.title().replace("_", ""): count for basis, count in found.bases.items()},
        "activeDeadlineSeconds": hours.deadline_s,
    }


def _hours_fields(engine: Span, gpu: Span, limit: float) -> dict[str, Any]:
    return {
        "engineHours": engine.expected,
        "gpuHours": gpu.expected,
        "engineHoursRange": _pair(engine),
        "gpuHoursRange": _pair(gpu),
        "limitGpuHours": limit,
    }


def _pair(span: Span) -> list[float]:
    return [span.low, span.high]


def range_text(span: Span, digits: int = 2) -> str:
    """Return the expected value and the range: `0.52 [0.21, 1.4]`."""
    return f"{_number(span.expected, digits)} [{_number(span.low, digits)}, {_number(span.high, digits)}]"


def _number(value: float, digits: int) -> str:
    return f"{value:.0f}" if value >= 10**digits else f"{value:.{digits}g}"


def hours_text(hours: PlannedHours) -> list[str]:
    """Return the estimate of a run in lines."""
    found = hours.estimate
    gpus, engine = f"{found.gpus} GPU{'s' * (found.gpus != 1)}", range_text(found.engine_hours)
    held = f", {range_text(found.gpu_hours)} GPU-hours on {gpus} an engine" if found.gpus else ""
    lines = [
        f"estimate of what remains: {engine} engine hours{held}",
        f"  {found.launches} launches of {range_text(found.launch_seconds, 3)} s, and their warm-up",
        *(f"  {count} points from {basis}" for basis, count in found.bases.items()),
    ]
    if hours.speed is not None:
        lines.append(f"  {_prior(hours.speed)}")
    if found.gpus:
        lines.append(
            f"limit on a cluster: {_number(hours.limit_gpu_hours, 2)} GPU-hours, if each launch runs once to its"
            f" activeDeadlineSeconds of {hours.deadline_s}"
        )
    lines += _parallel([hours])
    return lines


def _parallel(runs: Sequence[PlannedHours]) -> list[str]:
    """Return what happens to the GPUs of a node that an engine does not need; nothing if it needs all."""
    found = [would for each in runs if (would := parallel_arms(each.plan, each.estimate, each.node_gpus))]
    if not found:
        return []
    idle = " or ".join(str(count) for count in sorted({each.idle_gpus for each in found}))
    at_once = " or ".join(str(count) for count in sorted({each.arms_at_once for each in found}))
    hours = _number(sum(each.engine_hours for each in found), 2)
    unused = f"on a node of {found[0].node_gpus} GPUs, {idle} are not used"
    saved = f"{at_once} arms at once would take {hours} hours for the same GPU-hours"
    why = "specbench does not do it, because engines on one node share power, PCIe and CPU"
    return [f"arms are measured one after another: {unused}. {saved}; {why}"]


def hours_warnings(hours: PlannedHours | None, what: str = "a launch") -> list[str]:
    """Return a warning if Kubernetes would end the launches before they are expected to be done."""
    if hours is None or not hours.estimate.launches:
        return []
    each = hours.estimate.engine_seconds.expected / hours.estimate.launches
    if each <= hours.deadline_s:
        return []
    remedy = "on a cluster, raise spec.activeDeadlineSeconds, or measure fewer requests"
    return [f"{what} is expected to take {each:.0f} s, more than activeDeadlineSeconds ({hours.deadline_s}): {remedy}"]


def total_document(runs: Sequence[PlannedHours]) -> dict[str, Any]:
    """Return the sums over the runs of a campaign for JSON."""
    return _hours_fields(*_total(runs))


def total_text(runs: Sequence[PlannedHours]) -> list[str]:
    """Return the sums over the runs of a campaign in lines; nothing without an estimate."""
    if not runs:
        return []
    engine, gpu, limit = _total(runs)
    return [
        f"estimate of what remains: {range_text(engine)} engine hours, {range_text(gpu)} GPU-hours",
        *sorted({f"  {_prior(each.speed)}" for each in runs if each.speed is not None}),
        f"limit: {_number(limit, 2)} GPU-hours, if each launch runs once to its activeDeadlineSeconds",
        *_parallel(runs),
    ]


def _total(runs: Sequence[PlannedHours]) -> tuple[Span, Span, float]:
    """Return engine hours, GPU-hours and the limit in GPU-hours."""
    engine, gpu = Span.exactly(0), Span.exactly(0)
    for hours in runs:
        engine, gpu = engine + hours.estimate.engine_hours, gpu + hours.estimate.gpu_hours
    return engine, gpu, sum(hours.limit_gpu_hours for hours in runs)


def _prior(speed: DecodeSpeed) -> str:
    return f"prior speed: {range_text(speed.step(1).inverse(), 3)} tokens/s for one request, of {speed.words}"
