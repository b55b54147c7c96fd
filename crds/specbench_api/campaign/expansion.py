"""Expands a campaign into its runs: used by `specbench plan`, `specbench run` and the operator.

Every combination is applied to the template, validated by the rules of admission and planned. All problems are reported
together, each with its combination, and then no run is created: half a matrix would be another comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specbench_api.campaign.matrix import Combination, combination_text, combinations, name_of
from specbench_api.campaign.names import (
    ANNOTATION_COMBINATION,
    LABEL_CAMPAIGN,
    LABEL_CAMPAIGN_UID,
    LABEL_ROUND,
    run_name,
)  # fmt: skip
from specbench_api.campaign.validation import template_problems
from specbench_api.errors import InvalidSpec, Problem
from specbench_api.fence.check import FenceCheck
from specbench_api.plan.canonical import canonical_json, canonical_run, plain_numbers
from specbench_api.plan.expansion import arms_of, expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import CampaignSpec, SpecBenchCampaign
from specbench_api.spec.field_paths import found, numbered, path_of, replaced, steps_of
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.results import LATEST
from specbench_api.spec.run import RunSpec, SpecBenchRun

SHOWN_MAX = 3
"""Maximum number of combinations listed with a problem that several have."""


ROUND_POINTS_MAX = 50_000
"""Maximum number of points of all runs of a round. 3,300 points take 5 MB of memory and 0.2 s of CPU time."""
ROUND_VALUES_MAX = 500_000
"""Maximum number of values in the specs of all runs of a round. 45,000 values take 7 MB of memory."""
ROUND_TEXT_MAX = 50_000_000
"""Maximum number of characters in the specs of all runs of a round."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a round.

    `combination`: value of each axis, in their order, without axes whose field the run does not have. `resource`: the
    SpecBenchRun to create, complete except for its owner.
    """

    name: str
    combination: Mapping[str, Any]
    run: SpecBenchRun
    plan: Plan
    resource: dict[str, Any]

    @property
    def combination_text(self) -> str:
        """The combination for people: `engine=vllm temperature=0.7`."""
        return combination_text(self.combination)


@dataclass(frozen=True)
class CampaignPlan:
    """The runs of one round, in the order of the matrix, and warnings for the user."""

    runs: tuple[PlannedRun, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _AppliedCombination:
    """A combination, applied to the template."""

    values: Mapping[str, Any]
    paths: Mapping[str, str]
    """Name of the axis → path of the field that it varies."""
    further: Mapping[str, Any]
    run: SpecBenchRun
    plan: Plan

    @property
    def identity(self) -> str:
        """Its identity in every round: its values by field path, because axes may be renamed.

        The key `set` cannot collide with a field of a run.
        """
        further = {"set": plain_numbers(dict(self.further))} if self.further else {}
        varied = {path_of(steps_of(self.paths[name])): value for name, value in self.values.items()}
        return canonical_json({**varied, **further})


def expand_campaign(campaign: SpecBenchCampaign, number: int = 1) -> CampaignPlan:
    """Return the runs of a round, counted from 1. Raises InvalidSpec with all problems of all combinations."""
    problems = template_problems(campaign.spec)
    if problems:
        raise InvalidSpec(problems)
    found_combinations, warnings = combinations(campaign.spec)
    _reject_aliases(campaign.spec)
    found = _applied(campaign, found_combinations, number)
    runs: dict[str, PlannedRun] = {}
    for applied in found:
        planned = _planned(campaign, applied, number)
        first = runs.setdefault(planned.name, planned)
        if first is not planned:
            _reject_collision(first, planned)
            warnings.append(
                f"{planned.combination_text} measures the same as {first.combination_text}: they share one run"
            )
    return CampaignPlan(tuple(runs.values()), tuple(warnings))


def campaign_refusals(
    campaign: SpecBenchCampaign, runs: Iterable[tuple[str, RunSpec]], fence: FenceCheck
) -> list[Problem]:
    """Return everything in a campaign that the fence does not allow.

    `runs`: combination as text, and spec of each run. The template is checked as well, as the admission policy does.
    """
    namespace = campaign.metadata.namespace
    of_template = fence.problems_of(campaign.spec.template.spec, namespace)
    by_problem: dict[Problem, list[str]] = {}
    for text, spec in runs:
        for problem in fence.problems_of(spec, namespace):
            if problem not in of_template:
                by_problem.setdefault(problem, []).append(text)
    in_template = [
        replace(problem, path=f"spec.template.{problem.path}") if problem.path.startswith("spec.") else problem
        for problem in of_template
    ]
    return [*in_template, *(_with_combinations(problem, texts) for problem, texts in by_problem.items())]


def _applied(campaign: SpecBenchCampaign, matrix: Sequence[Combination], number: int) -> list[_AppliedCombination]:
    found: list[_AppliedCombination] = []
    rejected: dict[Problem, list[str]] = {}
    paths = _paths(campaign.spec)
    size = _RoundSize()
    for combination in matrix:
        values = dict(combination.values)
        try:
            values, spec = _filled(campaign.spec, combination)
            size.add_spec(spec)
            run = _run(campaign, _of_round(spec, number))
            size.add_points(run.spec)
            found.append(_AppliedCombination(values, paths, combination.further, run, expand(run)))
        except RoundTooLarge:
            raise
        except InvalidSpec as error:
            for problem in error.problems:
                rejected.setdefault(problem, []).append(combination_text(values))
    if rejected:
        raise InvalidSpec([_with_combinations(problem, texts) for problem, texts in rejected.items()])
    return found


@dataclass
class _RoundSize:
    """The size of the runs of a round so far. A small campaign may have runs that need gigabytes of memory."""

    points: int = 0
    values: int = 0
    characters: int = 0

    def add_spec(self, spec: Any) -> None:
        """Add the spec of a run. Raises RoundTooLarge."""
        values, characters = size_of_spec(spec)
        self.values += values
        self.characters += characters
        self._check()

    def add_points(self, spec: RunSpec) -> None:
        """Add the points of a run, before its plan is made. Raises RoundTooLarge."""
        self.points += len(arms_of(spec)) * len(spec.workloads) * len(spec.load.levels) * spec.load.repeats
        self._check()

    def _check(self) -> None:
        for count, limit, what in (
            (self.points, ROUND_POINTS_MAX, "points"),
            (self.values, ROUND_VALUES_MAX, "values in their specs"),
            (self.characters, ROUND_TEXT_MAX, "characters in their specs"),
        ):
            if count > limit:
                remedy = "split the campaign, or use fewer combinations, workloads, load levels or repeats"
                raise RoundTooLarge(
                    [Problem("spec.axes", f"its runs have more than {limit:,} {what} together", remedy)]
                )


class RoundTooLarge(InvalidSpec):
    """The runs of a round are too large together. No further combination is expanded."""


def size_of_spec(data: Any) -> tuple[int, int]:
    """Return the number of values, and of characters in texts and keys, of a spec."""
    values = characters = 0
    remaining = [data]
    while remaining:
        value = remaining.pop()
        values += 1
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, Mapping):
            characters += sum(map(len, value))
            remaining.extend(value.values())
        elif isinstance(value, list):
            remaining.extend(value)
    return values, characters


def _filled(spec: CampaignSpec, combination: Combination) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all values and the run's spec. Shorter paths are set first, so fields override whole objects."""
    paths = _paths(spec)
    changes = {paths[name]: value for name, value in combination.values.items()} | dict(combination.further)
    data: Any = spec.template.spec.to_dict()
    for path, value in sorted(changes.items(), key=lambda change: len(steps_of(change[0]))):
        try:
            data = replaced(data, steps_of(path), plain_numbers(value))
        except LookupError as error:
            remedy = "write a path relative to the run's spec, such as drafters[0].numSpeculativeTokens"
            raise InvalidSpec([Problem(path, f"does not exist: {error.args[0]}", remedy)]) from error
    return dict(_values(spec, combination, data)), data


def _paths(spec: CampaignSpec) -> dict[str, str]:
    return {name_of(axis): axis.path for axis in spec.axes}


def _of_round(spec: dict[str, Any], number: int) -> dict[str, Any]:
    """Remove `adopt: Latest` in rounds after the first, which measure again instead of adopting results.

    A campaign that was lost and applied again counts its rounds from 1; with `adopt` a later round would find old
    results.
    """
    results = spec.get("results")
    if number == 1 or not isinstance(results, dict) or results.get("adopt") != LATEST:
        return spec
    return {**spec, "results": {name: value for name, value in results.items() if name != "adopt"}}


def _values(spec: CampaignSpec, combination: Combination, data: Any) -> Iterator[tuple[str, Any]]:
    """Yield the value of every axis: the combination's own, or else what the run's spec contains."""
    for axis in spec.axes:
        name = name_of(axis)
        if name in combination.values:
            yield name, plain_numbers(combination.values[name])
            continue
        try:
            yield name, plain_numbers(found(data, steps_of(axis.path)))
        except LookupError:
            continue


def _run(campaign: SpecBenchCampaign, spec: dict[str, Any]) -> SpecBenchRun:
    metadata = {"name": campaign.metadata.name, "namespace": campaign.metadata.namespace}
    kind = {"apiVersion": campaign.api_version, "kind": "SpecBenchRun"}
    return parse_run({**kind, "metadata": metadata, "spec": spec})


def _planned(campaign: SpecBenchCampaign, applied: _AppliedCombination, number: int) -> PlannedRun:
    name = run_name(campaign.metadata.name, applied.run.spec, number)
    template = campaign.spec.template.metadata
    uid = {LABEL_CAMPAIGN_UID: campaign.metadata.uid} if campaign.metadata.uid else {}
    own = {LABEL_CAMPAIGN: campaign.metadata.name, **uid, LABEL_ROUND: str(number)}
    labels = {**template.labels, **own}
    metadata = applied.run.metadata.model_copy(update={"name": name, "labels": labels})
    run = applied.run.model_copy(update={"metadata": metadata})
    resource = {
        "apiVersion": run.api_version,
        "kind": run.kind,
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": labels,
            "annotations": {**template.annotations, ANNOTATION_COMBINATION: applied.identity},
        },
        "spec": run.spec.to_dict(),
    }
    return PlannedRun(name, applied.values, run, applied.plan.model_copy(update={"name": name}), resource)


def _reject_aliases(spec: CampaignSpec) -> None:
    """Reject two axes for the same field, written in different ways: one of them would have no effect."""
    data = spec.template.spec.to_dict()
    paths = [numbered(data, steps_of(axis.path)) for axis in spec.axes]
    problems = [
        Problem(
            f"spec.axes[{at}]",
            f"{axis.path} is the same field as {spec.axes[paths.index(path)].path}",
            "remove one axis",
        )
        for at, (axis, path) in enumerate(zip(spec.axes, paths, strict=True))
        if path in paths[:at]
    ]
    if problems:
        raise InvalidSpec(problems)


def _reject_collision(one: PlannedRun, other: PlannedRun) -> None:
    if canonical_run(one.run.spec) != canonical_run(other.run.spec):
        message = f"{one.combination_text} and {other.combination_text} have the same run name {one.name}"
        raise InvalidSpec([Problem("spec.axes", message, "move one of them to another campaign")])


def _with_combinations(problem: Problem, texts: Sequence[str]) -> Problem:
    """Add the combinations to the path of a problem that they have, at most SHOWN_MAX of them by name."""
    more = f" and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return Problem(f"[{'; '.join(texts[:SHOWN_MAX])}{more}] {problem.path}", problem.message, problem.remedy)
