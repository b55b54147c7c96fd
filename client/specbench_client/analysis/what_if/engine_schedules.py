"""Renders a draft-length schedule as an engine's configuration, with the launcher of that engine, and as a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml

from specbench_api.errors import InvalidSpec
from specbench_api.launch.launcher import LaunchSpec
from specbench_api.launch.registry import LAUNCHERS, launch_problems
from specbench_api.plan.expansion import expand, launch_order
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import Drafter, DraftLength
from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.results import S3, Results
from specbench_api.spec.run import Metadata, RunSpec, SpecBenchRun
from specbench_client.documents.draft_lengths import DraftSchedule, EngineDraftSchedule
from specbench_client.errors import BadInput

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
    plain = launch_order(plan.model_copy(update={"engine": engine, "arms": [Arm(name="none")]}), Arm(name="none"))
    run, run_problems = (
        _verifying_run(plan, arm.drafter, schedule) if own and arm.drafter and not problems else (None, [])
    )
    return EngineDraftSchedule(
        engine=str(kind),
        config=_config(kind, launch),
        arguments=_added_arguments(launch.args, LAUNCHERS[kind].launch(plain).args),
        problems=[*problems, *run_problems],
        run=run,
    )


def _config(kind: EngineKind, launch: LaunchSpec) -> Any:
    """Return the part of the launch that is the schedule."""
    if kind is EngineKind.VLLM:
        index = launch.args.index("--speculative-config") + 1
        return json.loads(launch.args[index])["num_speculative_tokens_per_batch_size"]
    (text,) = launch.configs.values()
    if kind is EngineKind.SGLANG:
        return json.loads(text)
    return yaml.safe_load(text)["speculative_config"]


def _added_arguments(longer: Sequence[str], shorter: Sequence[str]) -> list[str]:
    """Return the arguments that the longer list has between the beginning and the end that both share."""
    begin = 0
    while begin < len(shorter) and longer[begin] == shorter[begin]:
        begin += 1
    return list(longer[begin : len(longer) - (len(shorter) - begin)])


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
