"""A schedule as an engine takes it, rendered by the launchers that would start it, and the run that verifies it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml

from specbench_api.errors import InvalidSpec
from specbench_api.launch.launch import Launch
from specbench_api.launch.table import LAUNCHERS, problems_of
from specbench_api.outcome.schedule import EngineSchedule, Schedule
from specbench_api.plan.expand import expand, launch_order
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import Drafter, DraftLength
from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.results import S3, Results
from specbench_api.spec.run import Metadata, RunSpec, SpecBenchRun
from specbench_client.errors import BadInput

ENGINES = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM)
"""Those that have a word for a schedule."""
ROWS_MAX = 16
BUCKET = "my-bucket"
"""Stands in the run that is printed: where its results go, nobody knows but its reader."""
_NAME_MAX = 32


def scheduled(longest: Drafter, schedule: Schedule) -> Drafter:
    """The drafter with this schedule. Raises BadInput where there is nothing to schedule, or too much."""
    lengths = [DraftLength(batch_size=each.last, tokens=each.draft_tokens) for each in schedule.ranges]
    if not any(each.tokens for each in lengths):
        message = (
            "no draft length pays at any batch that was measured: there is nothing to schedule, leave drafting off"
        )
        raise BadInput(message, "NothingPays")
    if len(lengths) > ROWS_MAX:
        message = f"the schedule has {len(lengths)} ranges, and {ROWS_MAX} are the most: choose fewer lengths by"
        raise BadInput(f"{message} --draft-tokens 0,1,3,5", "TooManyRanges")
    told = {"name": f"{longest.name[: _NAME_MAX - len('-schedule')]}-schedule", "draft_lengths": lengths}
    return longest.model_copy(update=told | {"num_speculative_tokens": max(each.tokens for each in lengths)})


def engine_schedule(kind: EngineKind, plan: Plan, longest: Arm, schedule: Schedule) -> EngineSchedule:
    """Render for one engine; where the plan is of another, no run can be made of it. Raises BadInput."""
    assert longest.drafter is not None
    arm = Arm(name="schedule", drafter=scheduled(longest.drafter, schedule))
    own = plan.engine.kind is kind
    engine = plan.engine if own else Engine(kind=kind)
    order = launch_order(plan.model_copy(update={"engine": engine, "arms": [arm]}), arm)
    problems = [f"{each.message} ({each.remedy})" if each.remedy else each.message for each in problems_of(order)]
    launch = LAUNCHERS[kind].launch(order)
    plain = launch_order(plan.model_copy(update={"engine": engine, "arms": [Arm(name="none")]}), Arm(name="none"))
    run, refused = _verifying(plan, arm.drafter, schedule) if own and arm.drafter and not problems else (None, [])
    return EngineSchedule(
        engine=str(kind),
        config=_config(kind, launch),
        arguments=_inserted(launch.args, LAUNCHERS[kind].launch(plain).args),
        problems=[*problems, *refused],
        run=run,
    )


def _config(kind: EngineKind, launch: Launch) -> Any:
    """What of the launch is the schedule."""
    if kind is EngineKind.VLLM:
        place = launch.args.index("--speculative-config") + 1
        return json.loads(launch.args[place])["num_speculative_tokens_per_batch_size"]
    (text,) = launch.configs.values()
    if kind is EngineKind.SGLANG:
        return json.loads(text)
    return yaml.safe_load(text)["speculative_config"]


def _inserted(longer: Sequence[str], shorter: Sequence[str]) -> list[str]:
    """What the one list has between the beginning and the end that both share."""
    begin = 0
    while begin < len(shorter) and longer[begin] == shorter[begin]:
        begin += 1
    return list(longer[begin : len(longer) - (len(shorter) - begin)])


def _verifying(plan: Plan, drafter: Drafter, schedule: Schedule) -> tuple[dict[str, Any] | None, list[str]]:
    """The run with the schedule beside the lengths it was made from, or why this version would refuse it."""
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
                results=Results(s3=S3(bucket=BUCKET)),
            ),
        )
        expand(run)
    except InvalidSpec as error:
        return None, [str(problem) for problem in error.problems]
    spec = run.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return {"apiVersion": run.api_version, "kind": run.kind, "metadata": {"name": run.metadata.name}, "spec": spec}, []
