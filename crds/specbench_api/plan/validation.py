"""Checks of a run that no schema can express: engine support, sizes, duplicates, reserved fields, and placement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from specbench_api.errors import Problem
from specbench_api.launch.arguments import flag_of
from specbench_api.launch.launcher import LaunchRequest
from specbench_api.launch.registry import (
    ALREADY_RUNNING,
    LAUNCHERS,
    TOOL_ARGUMENTS,
    launch_problems,
    restarts_to_empty_cache,
)
from specbench_api.plan.canonical import canonical_json, point_hash
from specbench_api.plan.limits import CELLS_MAX, GROUPS_MAX, PLAN_BYTES_MAX, POINTS_MAX
from specbench_api.plan.plan import Arm, Plan
from specbench_api.plan.template_conflicts import CACHE_VARIABLES, TOKENS, template_problems
from specbench_api.spec.answers import CLAIMED_BY_ANSWERS
from specbench_api.spec.chat_template import ENGINE_TEMPLATE_FIELDS, RESERVED_KWARGS
from specbench_api.spec.engine import PromptCache
from specbench_api.spec.load import ArmOrder
from specbench_api.spec.model import Target
from specbench_api.spec.patterns import is_label_key
from specbench_api.spec.placement import Affinity, Placement
from specbench_api.spec.run import RunSpec
from specbench_api.spec.workload import RESERVED_BODY_FIELDS, WITHHOLDS_REASONING

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERMS = "nodeSelectorTerms"
AFFINITY_BYTES_MAX = 16_384
"""Maximum size of an affinity as JSON, which is part of every point and pod."""


def engine_problems(spec: RunSpec, arms: list[Arm]) -> list[Problem]:
    """Return what the engine does not support, over all arms, and conflicts of the pod template with the launches."""
    rows = _rows_of_drafters(spec)
    orders = [launch_request(spec, spec.model, spec.cache_policy, arm, rows.get(arm.name, 0)) for arm in arms]
    found = list(dict.fromkeys(problem for order in orders for problem in launch_problems(order)))
    launched = [] if found else [name for order in orders for name in LAUNCHERS[spec.engine.kind].launch(order).env]
    return [*found, *template_problems(spec, launched)]


def _rows_of_drafters(spec: RunSpec) -> dict[str, int]:
    """Return the index in `spec.drafters` of each arm that drafts."""
    return {arm.name: row for row, drafter in enumerate(spec.drafters) for arm in drafter.arms}


def launch_request(run: RunSpec | Plan, target: Target, cache: PromptCache, arm: Arm, row: int = 0) -> LaunchRequest:
    """Return the launch request for one of a run's arms. `row`: index of its drafter in `spec.drafters`."""
    place = run.placement
    return LaunchRequest(
        run.engine,
        target,
        arm.drafter,
        run.load.engine_slots,
        place.engine_devices,
        row,
        place.nodes,
        place.gpu_resource_name,
        cache,
        place.claimed_gpus > 0,
    )


def too_long(texts: Iterable[str]) -> list[Problem]:
    """Return a problem if the texts exceed the size of the ConfigMap that passes plan and engine files to the pods."""
    size = sum(len(text.encode()) for text in texts)
    message = f"its plan has {size} bytes, more than the {PLAN_BYTES_MAX} that fit into a ConfigMap"
    remedy = "split the run: use fewer workloads, load levels or repeats"
    return [Problem("spec", message, remedy)] if size > PLAN_BYTES_MAX else []


def plan_problems(spec: RunSpec, arms: list[Arm]) -> list[Problem]:
    """Return problems of a plan that apply whether or not specbench launches the engines."""
    found = [
        *_too_large(spec, len(arms)),
        *_duplicates(spec, arms),
        *_names_of_try_tokens(spec),
        *_claimed_fields(spec),
        *_of_templates(spec),
    ]
    return [*found, *_of_answers(spec), *_of_soak(spec)]


def launches_each_point(spec: RunSpec) -> bool:
    """Return whether every point has a launch of its own, because only a restart empties the prompt cache."""
    served = not spec.engine.is_external and spec.cache_policy is PromptCache.AS_SERVED
    return served and spec.load.order is not ArmOrder.SOAK and restarts_to_empty_cache(spec.engine)


def _too_large(spec: RunSpec, arms: int) -> list[Problem]:
    """Check the limits of the custom resource by counting, before the plan is expanded."""
    repeats, cells = spec.load.repeats, arms * len(spec.workloads) * len(spec.load.levels)
    launches = repeats * arms if spec.load.order is ArmOrder.INTERLEAVED else arms
    if launches_each_point(spec):
        launches = cells * repeats
    fewer = "use fewer drafters, workloads, load levels or repeats"
    return [
        Problem("spec", f"{count} {counted} exceed the maximum of one run ({most})", remedy)
        for count, most, counted, remedy in (
            (cells * repeats, POINTS_MAX, "points", fewer),
            (cells, CELLS_MAX, "combinations of arm, workload and load", fewer),
            (launches, GROUPS_MAX, "engine launches", "use fewer repeats, or load.order: Sequential"),
        )
        if count > most
    ]


def _of_soak(spec: RunSpec) -> list[Problem]:
    """Report a soak test that mixes workloads, or whose engines would be ended before it is over."""
    if spec.load.order is not ArmOrder.SOAK:
        return []
    lasts_s = spec.load.repeats * (spec.load.duration_seconds or 0)
    problems = []
    if len(spec.workloads) > 1:
        message = "load.order Soak keeps one load up, but there are several workloads"
        problems.append(Problem("spec.workloads", message, "give one workload; source mix combines several"))
    if not spec.engine.is_external and spec.active_deadline_seconds <= lasts_s:
        message = f"the engine would be ended after {spec.active_deadline_seconds} s, but its windows take {lasts_s} s"
        remedy = f"set it to {2 * lasts_s}, or use fewer windows"
        problems.append(Problem("spec.activeDeadlineSeconds", message, remedy))
    return problems


def _duplicates(spec: RunSpec, arms: list[Arm]) -> list[Problem]:
    """Report arms or workloads that differ only in their name, which is a label: they would be the same point."""
    first, level = spec.workloads[0], spec.load.levels[0]
    rows = _rows_of_drafters(spec)
    drafting = [(rows[arm.name], arm) for arm in arms if arm.drafter]
    running = enumerate(Arm(name=each.name, endpoint=each) for each in spec.engine.endpoints or [])
    by_field = {
        "drafters": [(row, arm.name, point_hash(spec, arm, first, level, 0)) for row, arm in drafting],
        "engine.endpoints": [(row, arm.name, point_hash(spec, arm, first, level, 0)) for row, arm in running],
        "workloads": [
            (row, work.name, point_hash(spec, arms[0], work, level, 0)) for row, work in enumerate(spec.workloads)
        ],
    }
    return [
        Problem(f"spec.{field}[{row}]", f"{name!r} differs from {other!r} only in its name", "remove one of them")
        for field, numbered in by_field.items()
        for index, (row, name, digest) in enumerate(numbered)
        for _, other, earlier in numbered[:index]
        if digest == earlier
    ]


def _names_of_try_tokens(spec: RunSpec) -> list[Problem]:
    """Report drafters with the name of an arm that tryTokens makes of another one."""
    made = {arm.name for drafter in spec.drafters if drafter.try_tokens for arm in drafter.arms}
    return [
        Problem(f"spec.drafters[{row}].name", f"{drafter.name!r} is also an arm of tryTokens", "rename one of them")
        for row, drafter in enumerate(spec.drafters)
        if drafter.name in made and not drafter.try_tokens
    ]


def _claimed_fields(spec: RunSpec) -> list[Problem]:
    """Report request fields that specbench sets itself, or that withhold generated tokens from their measurement.

    Checked here because CEL cannot inspect an open object.
    """
    problems = []
    for row, workload in enumerate(spec.workloads):
        where = f"spec.workloads[{row}].extraBody"
        problems += [
            Problem(f"{where}.{name}", "is set by specbench itself", RESERVED_BODY_FIELDS[name])
            for name in workload.claimed_fields
        ]
        problems += [
            Problem(
                f"{where}.{name}",
                "withholds the reasoning, so the times of its tokens are unknown",
                "remove it: answers are judged without their reasoning anyway",
            )
            for name in WITHHOLDS_REASONING
            if workload.extra_body.get(name) is False
        ]
    return problems


def _of_templates(spec: RunSpec) -> list[Problem]:
    """Report template variables that specbench sets, and fields that only an engine's own template would use."""
    problems = []
    for row, workload in enumerate(spec.workloads):
        template, where = workload.client_template, f"spec.workloads[{row}]"
        if template is None:
            continue
        problems += [
            Problem(f"{where}.chatTemplate.kwargs.{name}", "is set by specbench itself", RESERVED_KWARGS[name])
            for name in sorted(RESERVED_KWARGS.keys() & template.kwargs)
        ]
        problems += [
            Problem(
                f"{where}.extraBody.{name}", "has no effect on prompts sent as token ids", ENGINE_TEMPLATE_FIELDS[name]
            )
            for name in sorted(ENGINE_TEMPLATE_FIELDS.keys() & workload.extra_body)
        ]
    return problems


def _of_answers(spec: RunSpec) -> list[Problem]:
    """Report settings that contradict the form in which answers are requested."""
    problems = []
    for row, workload in enumerate(spec.workloads):
        where, answers = f"spec.workloads[{row}]", workload.answers
        if answers is None:
            continue
        if workload.output.ignore_eos:
            message = (
                "continues answers past the end at which they are complete, so workloads[].answers cannot be judged"
            )
            problems.append(Problem(f"{where}.output.ignoreEos", message, "remove one of them"))
        if answers.expected is not None:
            continue
        if workload.client_template is not None:
            message = "sends token ids, with which answers.jsonSchema and answers.tools cannot be requested"
            problems.append(Problem(f"{where}.chatTemplate.appliedBy", message, "set chatTemplate.appliedBy: Engine"))
        problems += [
            Problem(f"{where}.extraBody.{name}", "contradicts workloads[].answers, which sets it", "remove one of them")
            for name in CLAIMED_BY_ANSWERS
            if name in workload.extra_body
        ]
        if workload.extra_body.get("tool_choice", "auto") in (None, "none"):
            message = "prevents the tool calls that answers.tools demands"
            problems.append(Problem(f"{where}.extraBody.tool_choice", message, "set it to auto or required"))
    if any(workload.answers and workload.answers.tools for workload in spec.workloads):
        given = {flag_of(argument).replace("_", "-") for argument in spec.engine.args}
        problems += [
            Problem(
                "spec.engine.args",
                f"{flag} is missing, without which the engine returns no tool calls",
                f"add {flag}{value}",
            )
            for flag, value in TOOL_ARGUMENTS.get(spec.engine.kind, {}).items()
            if flag.replace("_", "-") not in given
        ]
    return problems


# Placement: map keys, passed-through structures, and conflicting settings.


def placement_problems(spec: RunSpec) -> list[Problem]:
    """Return all problems of a run's placement and environment."""
    placement = spec.placement
    return [
        *_without_engine(spec),
        *_of_labels(placement),
        *_of_affinity("spec.placement.affinity", placement.affinity),
        *_of_affinity("spec.placement.client.affinity", placement.client.affinity),
        *_of_environment(spec),
    ]


_FIELDS_OF_CLIENTS = ("client", "imagePullSecrets")
"""Fields of a placement that are not about engines."""


def _without_engine(spec: RunSpec) -> Iterator[Problem]:
    """Report fields about the pods of engines, of which running endpoints have none."""
    if not spec.engine.is_external:
        return
    for name in spec.placement.model_dump(by_alias=True, exclude_defaults=True):
        if name not in _FIELDS_OF_CLIENTS:
            yield Problem(f"spec.placement.{name}", f"has no effect: {ALREADY_RUNNING}", "remove it")


def _of_labels(placement: Placement) -> Iterator[Problem]:
    """Check the keys of node labels."""
    maps = {"nodeSelector": placement.node_selector, "client.nodeSelector": placement.client.node_selector}
    for field, labels in maps.items():
        for key in labels:
            if not is_label_key(key):
                yield Problem(
                    f"spec.placement.{field}",
                    f"{key!r} is not a label key",
                    "write a key like pool or example.com/pool",
                )


def _of_affinity(path: str, affinity: Affinity | None) -> Iterator[Problem]:
    """Check the part of the structure that the operator relies on; the API server checks the rest."""
    if affinity is None:
        return
    if len(canonical_json(affinity.to_dict())) > AFFINITY_BYTES_MAX:
        yield Problem(path, f"is larger than {AFFINITY_BYTES_MAX} bytes", "label the nodes, and select by that label")
    for field, terms in affinity.to_dict().items():
        for key, given in terms.items():
            if key not in (REQUIRED, PREFERRED):
                yield Problem(f"{path}.{field}.{key}", "unknown field", f"use {REQUIRED} or {PREFERRED}")
            elif field == "nodeAffinity" and key == REQUIRED:
                if not _are_maps(given.get(TERMS) if isinstance(given, Mapping) else None):
                    yield Problem(
                        f"{path}.{field}.{key}", f"needs a list {TERMS}", f"write {TERMS}: [{{matchExpressions: …}}]"
                    )
            elif not _are_maps(given):
                yield Problem(f"{path}.{field}.{key}", "is not a list", "write a list, as in a pod's spec.affinity")


def _are_maps(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(row, Mapping) for row in given)


def _of_environment(spec: RunSpec) -> Iterator[Problem]:
    """Check the engine's environment: a token would be stored in plan.json, readable by everyone with access."""
    for row, variable in enumerate(spec.engine.env):
        path = f"spec.engine.env[{row}]"
        if variable.name in TOKENS:
            message = f"{variable.name} would be stored with the results, readable by everyone with access to them"
            yield Problem(path, message, "put it into a Secret and reference that in spec.model.tokenSecretRef")
        if variable.name in CACHE_VARIABLES and spec.placement.model_cache:
            yield Problem(path, f"{variable.name} is also set by spec.placement.modelCache", "remove one of them")
