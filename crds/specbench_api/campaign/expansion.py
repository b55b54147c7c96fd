"""Expands a campaign into its runs: used by `specbench plan`, `specbench run` and the operator.

Every combination is applied to the template, validated by the rules of admission and planned. All problems are reported
together, each with its combination, and then no run is created: half a matrix would be another comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from specbench_api import GROUP
from specbench_api.campaign.matrix import SET, Combination, combination_text, combinations, name_of
from specbench_api.campaign.names import (
    ANNOTATION_COMBINATION,
    LABEL_CAMPAIGN,
    LABEL_CAMPAIGN_UID,
    LABEL_ROUND,
    run_name,
)  # fmt: skip
from specbench_api.errors import InvalidSpec, Problem
from specbench_api.fence.check import FenceCheck
from specbench_api.launch.registry import with_gpus
from specbench_api.launch.supported_methods import support_of
from specbench_api.plan.canonical import canonical_json, canonical_run, plain_numbers
from specbench_api.plan.expansion import arms_of, expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import CampaignSpec, SpecBenchCampaign, TemplateMetadata, TemplateSpec
from specbench_api.spec.field_paths import found, numbered, path_of, replaced, steps_of
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.patterns import is_label_key
from specbench_api.spec.results import LATEST
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.secrets import (
    SECRET_FIELDS,
    TEMPLATE_WORDS,
    is_in_pod_template,
    may_add_to_template,
    secrets_in_value,
    secrets_named,
)

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
    run = applied.run.model_copy(update={"metadata": metadata, "spec": with_gpus(applied.run.spec)})
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


# Problems of a campaign that can be found before expanding it: its template, labels, Secrets and schedule.

# Validation of cron schedules: each field within its bounds. The operator computes the scheduled times.

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Sequence[tuple[str, int, int, Mapping[str, int]]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: at for at, name in enumerate(_MONTHS, start=1)}),
    ("weekday", 0, 7, {name: at for at, name in enumerate(_WEEKDAYS)}),
)
_PART = re.compile(r"(?:\*|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d+))?")


def schedule_problem(schedule: str) -> str | None:
    """Return what is wrong with a schedule, or None. An empty schedule and @daily etc. are valid."""
    if not schedule or schedule.startswith("@"):
        return None
    for text, (name, low, high, names) in zip(schedule.split(), _FIELDS, strict=True):
        for part in text.split(","):
            if not _holds(part, low, high, names):
                return f"{part!r} is not a valid {name}: use {low} to {high}, * or a range, optionally with /STEP"
    return None


def _holds(part: str, low: int, high: int, names: Mapping[str, int]) -> bool:
    found = _PART.fullmatch(part)
    if found is None:
        return False
    given = [_number(word, names) for word in (found["low"], found["high"]) if word is not None]
    within = all(low <= number <= high for number in given)
    return within and given == sorted(given) and int(found["step"] or 1) >= 1


def _number(word: str, names: Mapping[str, int]) -> int:
    """Return the number for a word, or -1, which is outside every field's bounds."""
    return int(word) if word.isdecimal() else names.get(word.lower(), -1)


VALUE_BYTES_MAX = 16_384
"""Maximum bytes of one axis value, which runs carry in an annotation (Kubernetes allows 256 KiB)."""


def template_problems(spec: CampaignSpec) -> list[Problem]:
    """Return all problems of the template; unsupported drafters are those that the API server also rejects."""
    return [
        *_of_pairs(spec.template.spec),
        *_of_keys(spec.template.metadata),
        *_of_values(spec),
        *_of_secrets(spec),
        *_of_schedule(spec),
        *_of_adoption(spec),
    ]


def _of_pairs(spec: TemplateSpec) -> Iterator[Problem]:
    for row, drafter in enumerate(spec.drafters):
        found = support_of(spec.engine.kind, drafter.method)
        if not found.supported:
            message = f"{spec.engine.kind} does not support {drafter.method}: {found.how}"
            yield Problem(f"spec.template.spec.drafters[{row}].method", message, f"use {found.instead}")


def _of_keys(metadata: TemplateMetadata) -> Iterator[Problem]:
    maps: Mapping[str, Mapping[str, str]] = {"labels": metadata.labels, "annotations": metadata.annotations}
    for field, given in maps.items():
        for key in given:
            path = f"spec.template.metadata.{field}"
            if not is_label_key(key):
                yield Problem(path, f"{key!r} is not a valid key", "write a key like team or example.com/team")
            elif key.startswith(f"{GROUP}/"):
                yield Problem(path, f"{key!r} is reserved", "write a key like team or example.com/team")


def _of_values(spec: CampaignSpec) -> Iterator[Problem]:
    for at, axis in enumerate(spec.axes):
        for row, value in enumerate(axis.values):
            if (size := len(canonical_json(value).encode())) > VALUE_BYTES_MAX:
                message = f"has {size} bytes, more than the maximum of {VALUE_BYTES_MAX}"
                yield Problem(
                    f"spec.axes[{at}].values[{row}]", message, "vary only the fields that differ, one axis each"
                )


# The runs of a campaign are created by the operator, so the API server can only check the rights of the person who
# applies the campaign. That check covers the Secrets of the template; axes and include rows must therefore add no
# other. The admission policy of the chart contains the same rule.

_ONLY_THE_TEMPLATE = "name it in spec.template.spec, and write one campaign for each set of Secrets"
_SINGLE_VALUES = "name it in spec.template.spec, and let axes set single values of it, such as a limit or an annotation"


def _of_secrets(spec: CampaignSpec) -> Iterator[Problem]:
    known = secrets_named(spec.template.spec.to_dict())
    for at, axis in enumerate(spec.axes):
        yield from _of_secret_path(f"spec.axes[{at}].path", axis.path)
        for row, value in enumerate(axis.values):
            below = is_in_pod_template(axis.path)
            yield from _of_secret_value(f"spec.axes[{at}].values[{row}]", value, known, below=below)
    # The admission policy cannot look up the axis of a name, so any axis below placement.template counts for all names.
    any_below = any(is_in_pod_template(axis.path) for axis in spec.axes)
    for at, include in enumerate(spec.include):
        for name, value in include.items():
            if name != SET:
                yield from _of_secret_value(f"spec.include[{at}].{name}", value, known, below=any_below)
        further = include.get(SET)
        for path, value in (further if isinstance(further, Mapping) else {}).items():
            yield from _of_secret_path(f"spec.include[{at}].{SET}", path)
            where = f"spec.include[{at}].{SET}[{path}]"
            yield from _of_secret_value(where, value, known, below=is_in_pod_template(path))


def _of_secret_path(where: str, path: str) -> Iterator[Problem]:
    """Search the text for the field's name, which needs no knowledge of the spellings of a path."""
    for word in (*(field.word for field in SECRET_FIELDS), *TEMPLATE_WORDS):
        if word in path:
            yield Problem(where, f"{path} sets {word}, which only the template may set", _ONLY_THE_TEMPLATE)


def _of_secret_value(where: str, value: Any, known: AbstractSet[str], *, below: bool) -> Iterator[Problem]:
    if may_add_to_template(value, below=below):
        message = "sets an object or list of placement.template, in which only the template may name Secrets"
        yield Problem(where, message, _SINGLE_VALUES)
    for field, name in secrets_in_value(value):
        if name not in known:
            message = f"names the Secret {name!r} in {field.word}, which the template does not name"
            yield Problem(where, message, _ONLY_THE_TEMPLATE)


def _of_adoption(spec: CampaignSpec) -> Iterator[Problem]:
    if spec.template.spec.results.adopt not in (None, LATEST) and (spec.axes or spec.include):
        message = "the UID identifies one run, but every run of the matrix would adopt its results"
        remedy = "set adopt: Latest, or use an include row for one run with `set: {results.adopt: UID}`"
        yield Problem("spec.template.spec.results.adopt", message, remedy)


def _of_schedule(spec: CampaignSpec) -> Iterator[Problem]:
    wrong = schedule_problem(spec.schedule)
    if wrong:
        yield Problem("spec.schedule", wrong, "write minute hour day month weekday, such as '0 3 * * mon-fri'")
    try:
        ZoneInfo(spec.time_zone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        yield Problem(
            "spec.timeZone", f"{spec.time_zone!r} is not a time zone", "write an IANA name, such as Europe/Berlin"
        )
