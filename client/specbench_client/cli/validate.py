"""`specbench validate`, and the warnings that `plan`, `validate` and `run` share.

A file that is missing on this machine is only a warning for `plan` and `validate`, because the spec may be meant for a
cluster, where images and volumes contain it; `run` rejects it. All reject a dataset that no cluster can contain either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from specbench_api.campaign.expansion import CampaignPlan, campaign_refusals, expand_campaign
from specbench_api.errors import InvalidSpec, NotAllowed, NotYaml, Problem
from specbench_api.fence.check import NO_STORE, FenceCheck
from specbench_api.fence.model import Fence
from specbench_api.plan.estimate import rounds_text
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.parsing import problems_in
from specbench_api.spec.workload import Workload
from specbench_client.cli.options import OUTPUT, SET, SPEC_PATH, prefixed, read_spec_file, read_yaml_file
from specbench_client.cli.streams import echo, echo_json
from specbench_client.documents.minimum_samples import MIN_REPEATS_TO_COMPARE
from specbench_client.documents.summary import MIN_WINDOWS
from specbench_client.drive.load_planning import load_arrival_plan
from specbench_client.drive.prompts import WorkloadPrompts, load_workload_prompts, slots_too_small
from specbench_client.errors import BadInput
from specbench_client.local.engine_process import missing_for_engines
from specbench_client.optional_dependencies import install_hint
from specbench_client.workload.chat_template.loading import TokenizerStorage, load_template, tokenizer_location
from specbench_client.workload.chat_template.template import AppliedTemplate
from specbench_client.workload.chat_template.tokenizer import EXTRA, installed
from specbench_client.workload.locations import (
    REMOTE_SCHEMES,
    dataset_uris,
    is_local,
    missing_prompt_files,
    reject_prompts_missing_everywhere,
)
from specbench_client.workload.prompt_lengths import LengthsUnknown
from specbench_client.workload.prompts import load_workload


def missing_files(plan: Plan, base_dir: Path) -> list[str]:
    """Return a line for whatever `run` would reject here: missing engines, prompts files and chat templates."""
    return [
        *missing_for_engines(plan, base_dir),
        *missing_prompt_files(plan, base_dir),
        *_templates(plan, base_dir),
    ]


def plan_warnings(plan: Plan) -> list[str]:
    """Return warnings about a run that can be measured, but not usefully."""
    windows = plan.load.repeats
    if not plan.soaks or windows >= MIN_WINDOWS:
        return [*slots_too_small(plan), *few_repeats(plan)]
    few = f"spec.load.repeats: {windows} windows are too few to see a change over time, which is load.order: Soak's aim"
    return [*slots_too_small(plan), f"{few}; set {MIN_WINDOWS} or more"]


def few_repeats(plan: Plan) -> list[str]:
    """Return a warning about a comparison that will have no interval; none if nothing is compared."""
    repeats = plan.load.repeats
    if plan.soaks or not plan.has_baseline or len(plan.arms) == 1 or repeats >= MIN_REPEATS_TO_COMPARE:
        return []
    count = "1 repeat gives" if repeats == 1 else f"{repeats} repeats give"
    return [f"spec.load.repeats: {count} a speed-up without an interval; set {MIN_REPEATS_TO_COMPARE} or more"]


def print_warnings(warnings: list[str], missing: Sequence[str] = ()) -> None:
    """Print warnings on stderr. `missing`: files that `run` needs."""
    for line in (*warnings, *missing):
        echo(f"warning: {line}", err=True)
    if missing:
        echo(
            "warning: `specbench run` would reject this here; a cluster has the images and volumes of the spec instead",
            err=True,
        )


def read_local_inputs(plans: Sequence[Plan], base_dir: Path) -> list[str]:
    """Read the prompts and traces that are on this machine, as `run` does. Raises BadInput for what is wrong in them.

    Returns a line for each missing trace, and which workloads inputTokens cannot be applied to here, because tiktoken's
    table is missing.
    """
    missing, uncounted = dict[str, None](), dict[str, dict[str, None]]()
    for plan in plans:
        prompts = dict[str, WorkloadPrompts]()
        for workload in plan.workloads:
            if not dataset_uris(workload.dataset) or not is_local(workload.dataset, base_dir):
                continue
            try:
                prompts |= _local_prompts(plan, workload, base_dir)
            except LengthsUnknown as error:
                uncounted.setdefault(str(error), {})[repr(workload.name)] = None
        trace = (plan.load.arrival and plan.load.arrival.uri) or ""
        if (base_dir / Path(trace).expanduser()).exists():
            load_arrival_plan(plan, base_dir, prompts)
        elif not trace.startswith(REMOTE_SCHEMES):
            missing[f"spec.load.arrival.uri: {trace} does not exist: relative paths start at the spec's folder"] = None
    return [*missing, *(f"workload {', '.join(names)}: {why}" for why, names in uncounted.items())]


def _local_prompts(plan: Plan, workload: Workload, base_dir: Path) -> dict[str, WorkloadPrompts]:
    """Return the prompts as they are sent, or as they are in the file if their template cannot be loaded here."""
    try:
        is_known = workload.client_template is None or local_template(plan, workload, base_dir) is not None
    except BadInput:  # `missing_files` reports it
        is_known = False
    if is_known:
        return load_workload_prompts(plan, [workload.name], base_dir)
    return {workload.name: WorkloadPrompts(load_workload(workload, base_dir))}


def local_template(plan: Plan, workload: Workload, base_dir: Path) -> AppliedTemplate | None:
    """Return the chat template that the client would apply; None if it applies none, or if it is not on this machine.

    Raises BadInput.
    """
    declared = workload.client_template
    if declared is None:
        return None
    if not installed():
        raise BadInput(f"applying a chat template needs the package {EXTRA}: {install_hint(EXTRA)}")
    elsewhere = (declared.template or "").startswith(REMOTE_SCHEMES)
    if elsewhere or tokenizer_location(declared, plan.target, base_dir).kind is not TokenizerStorage.FOLDER:
        return None
    return load_template(declared, plan.target, base_dir)


def _templates(plan: Plan, base_dir: Path) -> list[str]:
    lines = []
    for row, workload in enumerate(plan.workloads):
        try:
            local_template(plan, workload, base_dir)
        except BadInput as error:
            lines.append(f"spec.workloads[{row}].chatTemplate: {error}")
    return lines


def campaign_warnings(planned: CampaignPlan, base_dir: Path) -> tuple[list[str], list[str]]:
    """Return the campaign's warnings, and the files missing on this machine, without repetitions."""
    warnings = [*planned.warnings, *(line for run in planned.runs for line in plan_warnings(run.plan))]
    missing = [line for run in planned.runs for line in missing_files(run.plan, base_dir)]
    return list(dict.fromkeys(warnings)), list(dict.fromkeys(missing))


def _fence(path: Path) -> FenceCheck:
    """The check with the fence in a file: the operator's fence.json, or values of the chart. Raises BadInput."""
    data = read_yaml_file(path, "give the operator's fence.json, or the values of its chart")
    image = data.get("image") if "fence" in data else None
    own = str(image.get("repository", "")) if isinstance(image, dict) else ""
    try:
        fence = Fence.model_validate_json(json.dumps(data.get("fence", data)), by_alias=True, by_name=False)
    except ValidationError as error:
        base = "fence." if isinstance(data.get("fence"), dict) else ""
        problems = "; ".join(f"{base}{problem}" for problem in problems_in(error, Fence))
        message = f"{path} is not a valid fence: {problems}: use the operator's fence.json, or the values of its chart"
        raise BadInput(message) from error
    if "fence" in data and fence.enabled:
        _require_all_values(data["fence"], path)
    return FenceCheck(fence, own)


def _require_all_values(values: Mapping[str, object], path: Path) -> None:
    """Raise BadInput for values of the chart without its defaults: a list that is missing would allow nothing."""
    names = sorted(str(field.alias) for field in Fence.model_fields.values())
    if missing := [f"fence.{name}" for name in names if name not in values]:
        remedy = "give all values of the release: helm get values RELEASE --all -o yaml"
        raise BadInput(f"{path} has no {', '.join(missing)}: {remedy}")


@click.command()
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=SPEC_PATH)
@SET
@click.option(
    "--fence",
    "fence_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Also check what the cluster allows: a file with all values of its chart (helm get values --all), or the"
    " operator's fence.json.",
)
@OUTPUT
def validate(files: Sequence[Path], settings: tuple[str, ...], fence_file: Path | None, output: str) -> None:
    """Check each FILE with the same rules as the cluster's admission, and whether its engine supports it.

    \b
      specbench validate runs/*.yaml
      specbench validate run.yaml --set spec.load.repeats=5 --output json
      specbench validate run.yaml --fence values.yaml

    For a campaign, every combination is checked as a run. Prompts are read from files on this machine. A missing file
    of prompts is an error, unless its path is in the client's image; other missing files are warnings, because the
    cluster may have them.
    """
    fence = _fence(fence_file) if fence_file else None
    documents, problems = [], list[Problem]()
    for file in files:
        try:
            documents.append(_validated(file, settings, fence, output))
        except (InvalidSpec, BadInput) as error:
            if len(files) == 1:
                raise
            found = getattr(error, "problems", [Problem(error.reason, str(error))])
            problems += found if isinstance(error, NotYaml) else prefixed(found, str(file))
    _reject(problems, InvalidSpec)
    if output == "json":
        echo_json(json.dumps(documents[0] if len(files) == 1 else documents))


def _validated(file: Path, settings: tuple[str, ...], fence: FenceCheck | None, output: str) -> dict[str, Any]:
    """Check a file, print what text has about it, and return its document. Raises InvalidSpec, BadInput."""
    resource, base_dir = read_spec_file(file, settings), file.resolve().parent
    if isinstance(resource, SpecBenchCampaign):
        planned = expand_campaign(resource)
        combinations = [(run.combination_text, run.run.spec) for run in planned.runs]
        _reject(campaign_refusals(resource, combinations, fence) if fence else [])
        warnings, missing = campaign_warnings(planned, base_dir)
        plans, runs = [run.plan for run in planned.runs], [run.name for run in planned.runs]
    else:
        plans, runs = [expand(resource)], []
        _reject(fence.problems_of(resource.spec, resource.metadata.namespace) if fence else [])
        warnings, missing = plan_warnings(plans[0]), missing_files(plans[0], base_dir)
    reject_prompts_missing_everywhere(plans, base_dir)
    missing += read_local_inputs(plans, base_dir)
    specs = [run.run.spec for run in planned.runs] if isinstance(resource, SpecBenchCampaign) else [resource.spec]
    lacks_store = any(spec.results.s3 is None for spec in specs)
    _reject([NO_STORE] if lacks_store and fence and not fence.fence.default_store else [], InvalidSpec)
    if lacks_store and fence is None:
        warnings.append("spec.results.s3: is not set, and a cluster without fence.defaultStore needs it")
    if output == "text":
        echo(f"{file}: valid{', but not on this machine' if missing else ''}: {_counted(plans, len(runs))}")
    print_warnings(warnings, missing)
    points = sum(len(plan.points) for plan in plans)
    document = {"valid": True, "name": resource.metadata.name, "points": points, "warnings": [*warnings, *missing]}
    return document | ({"runs": runs} if runs else {})


def _reject(refusals: Sequence[Problem], kind: type[InvalidSpec] = NotAllowed) -> None:
    if refusals:
        raise kind(refusals)


def _counted(plans: Sequence[Plan], runs: int) -> str:
    """Return the size in words. `runs`: the runs of a campaign, 0 for a single run."""
    launches, points = sum(len(plan.groups) for plan in plans), sum(len(plan.points) for plan in plans)
    counts = f"{launches} launches, {points} points"
    return f"{runs} runs, {counts}" if runs else f"{len(plans[0].arms)} arms, {counts}{rounds_text(plans[0])}"
