"""Campaign → its runs: the one function behind `specbench plan`, `specbench run` and the operator.

Every combination is put into the template, read by the rules of admission and planned. What cannot be run is told with
its combination, all problems at once, and then there are no runs at all: half a matrix would be a comparison that
nobody asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specbench_api.campaign.cell import cell_text
from specbench_api.campaign.matrix import Combination, combinations, name_of
from specbench_api.campaign.names import (
    ANNOTATION_CELL,
    LABEL_CAMPAIGN,
    LABEL_CAMPAIGN_UID,
    LABEL_ROUND,
    run_name,
)  # fmt: skip
from specbench_api.campaign.template import template_problems
from specbench_api.errors import InvalidSpec, Problem
from specbench_api.plan.canonical import canonical_json, canonical_run, plain_numbers
from specbench_api.plan.expand import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import CampaignSpec, SpecBenchCampaign
from specbench_api.spec.paths import found, numbered, path_of, replaced, steps_of
from specbench_api.spec.reading import parse_run
from specbench_api.spec.results import LATEST
from specbench_api.spec.run import SpecBenchRun

SHOWN_MAX = 3
"""Combinations that are named with a problem that many have."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a round. `cell`: the value of every axis, in their order; one that the run does not have is left out.

    `resource`: the SpecBenchRun to be created, whole but for its owner.
    """

    name: str
    cell: Mapping[str, Any]
    run: SpecBenchRun
    plan: Plan
    resource: dict[str, Any]


@dataclass(frozen=True)
class CampaignPlan:
    """The runs of one round in the order of the matrix, and what a person should know of it."""

    runs: tuple[PlannedRun, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Cell:
    """A combination, put into the template."""

    values: Mapping[str, Any]
    paths: Mapping[str, str]
    """By the axis's name, the field that it varies."""
    further: Mapping[str, Any]
    run: SpecBenchRun
    plan: Plan

    @property
    def told(self) -> str:
        """What tells it from every other cell of the matrix, in every round alike: by fields, as axes may be renamed.

        No field of a run is called `set`.
        """
        further = {"set": plain_numbers(dict(self.further))} if self.further else {}
        varied = {path_of(steps_of(self.paths[name])): value for name, value in self.values.items()}
        return canonical_json({**varied, **further})


def expand_campaign(campaign: SpecBenchCampaign, number: int = 1) -> CampaignPlan:
    """The runs of a round, counted from 1. Raises InvalidSpec with every problem of every combination."""
    problems = template_problems(campaign.spec)
    if problems:
        raise InvalidSpec(problems)
    wanted, warnings = combinations(campaign.spec)
    _refuse_aliases(campaign.spec)
    cells = _cells(campaign, wanted, number)
    runs: dict[str, PlannedRun] = {}
    for cell in cells:
        planned = _planned(campaign, cell, number)
        twin = runs.setdefault(planned.name, planned)
        if twin is not planned:
            _refuse_collision(twin, planned)
            warnings.append(
                f"{cell_text(planned.cell)} measures the very same as {cell_text(twin.cell)}: they are one run"
            )
    return CampaignPlan(tuple(runs.values()), tuple(warnings))


def _cells(campaign: SpecBenchCampaign, wanted: Sequence[Combination], number: int) -> list[_Cell]:
    cells: list[_Cell] = []
    refused: dict[Problem, list[str]] = {}
    paths = _paths(campaign.spec)
    for combination in wanted:
        values = dict(combination.values)
        try:
            values, spec = _filled(campaign.spec, combination)
            run = _run(campaign, _of_round(spec, number))
            cells.append(_Cell(values, paths, combination.further, run, expand(run)))
        except InvalidSpec as error:
            for problem in error.problems:
                refused.setdefault(problem, []).append(cell_text(values))
    if refused:
        raise InvalidSpec([_with_cells(problem, texts) for problem, texts in refused.items()])
    return cells


def _filled(spec: CampaignSpec, combination: Combination) -> tuple[dict[str, Any], dict[str, Any]]:
    """The whole cell, and the run's spec. Whole objects are put in before their fields, whatever the axes' order."""
    paths = _paths(spec)
    changes = {paths[name]: value for name, value in combination.values.items()} | dict(combination.further)
    data: Any = spec.template.spec.to_dict()
    for path, value in sorted(changes.items(), key=lambda change: len(steps_of(change[0]))):
        try:
            data = replaced(data, steps_of(path), plain_numbers(value))
        except LookupError as error:
            remedy = "such as drafters[0].numSpeculativeTokens, below the run's spec"
            raise InvalidSpec([Problem(path, f"leads nowhere: {error.args[0]}", remedy)]) from error
    return dict(_values(spec, combination, data)), data


def _paths(spec: CampaignSpec) -> dict[str, str]:
    return {name_of(axis): axis.path for axis in spec.axes}


def _of_round(spec: dict[str, Any], number: int) -> dict[str, Any]:
    """A round after the first asks again, so its runs begin anew.

    A campaign that was lost and applied again counts its rounds from 1, and would find the old answers under the names
    of the new questions.
    """
    results = spec.get("results")
    if number == 1 or not isinstance(results, dict) or results.get("adopt") != LATEST:
        return spec
    return {**spec, "results": {name: value for name, value in results.items() if name != "adopt"}}


def _values(spec: CampaignSpec, combination: Combination, data: Any) -> Iterator[tuple[str, Any]]:
    """The combination's own, and where it has none, what the run has there."""
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


def _planned(campaign: SpecBenchCampaign, cell: _Cell, number: int) -> PlannedRun:
    name = run_name(campaign.metadata.name, cell.run.spec, number)
    template = campaign.spec.template.metadata
    uid = {LABEL_CAMPAIGN_UID: campaign.metadata.uid} if campaign.metadata.uid else {}
    own = {LABEL_CAMPAIGN: campaign.metadata.name, **uid, LABEL_ROUND: str(number)}
    labels = {**template.labels, **own}
    metadata = cell.run.metadata.model_copy(update={"name": name, "labels": labels})
    run = cell.run.model_copy(update={"metadata": metadata})
    resource = {
        "apiVersion": run.api_version,
        "kind": run.kind,
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": labels,
            "annotations": {**template.annotations, ANNOTATION_CELL: cell.told},
        },
        "spec": run.spec.to_dict(),
    }
    return PlannedRun(name, cell.values, run, cell.plan.model_copy(update={"name": name}), resource)


def _refuse_aliases(spec: CampaignSpec) -> None:
    """Two axes over one field, written in two ways: one of them would do nothing."""
    data = spec.template.spec.to_dict()
    ways = [numbered(data, steps_of(axis.path)) for axis in spec.axes]
    problems = [
        Problem(f"spec.axes[{at}]", f"{axis.path} is the field of {spec.axes[ways.index(way)].path}", "leave one out")
        for at, (axis, way) in enumerate(zip(spec.axes, ways, strict=True))
        if way in ways[:at]
    ]
    if problems:
        raise InvalidSpec(problems)


def _refuse_collision(one: PlannedRun, other: PlannedRun) -> None:
    if canonical_run(one.run.spec) != canonical_run(other.run.spec):
        message = f"{cell_text(one.cell)} and {cell_text(other.cell)} come to the same name {one.name}"
        raise InvalidSpec([Problem("spec.axes", message, "put one of them into a campaign of its own")])


def _with_cells(problem: Problem, texts: Sequence[str]) -> Problem:
    """The problem with the combinations that have it, the first few by name."""
    more = f" and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return Problem(f"[{'; '.join(texts[:SHOWN_MAX])}{more}] {problem.path}", problem.message, problem.remedy)
