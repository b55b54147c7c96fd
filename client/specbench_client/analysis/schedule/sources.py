"""Stored runs as the source of schedules: which of their cells belong together, and what keeps runs apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specbench_api.outcome.schedule import Emitted, Schedule
from specbench_api.outcome.stepcost import StepCost, StepObservation
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Arm, Plan
from specbench_client.analysis.schedule.choose import schedule
from specbench_client.analysis.schedule.emitted import emitted, length_of
from specbench_client.analysis.stepcost.families import family_of, step_costs
from specbench_client.analysis.stepcost.surface import surfaces


@dataclass(frozen=True)
class Source:
    """One stored run."""

    plan: Plan
    summary: RunSummary

    @property
    def observed(self) -> list[tuple[Arm, StepObservation]]:
        """Cells with their step times; the baseline is in every profile, and here once."""
        seen = {
            (each.arm, each.workload, each.load): each for cost in self.summary.step_costs for each in cost.observations
        }
        return [(self.plan.arm(each.arm), each) for each in seen.values()]

    @property
    def cells(self) -> list[tuple[Arm, Cell]]:
        """Cells that no check broke."""
        return [(self.plan.arm(cell.arm), cell) for cell in self.summary.cells if cell.valid]


@dataclass(frozen=True)
class Proposed:
    """A schedule, the arm of its longest draft, and the step costs it rests on."""

    schedule: Schedule
    longest: Arm
    cost: StepCost


def each_once(sources: Sequence[Source]) -> tuple[list[Source], list[Source]]:
    """The sources without those whose run is there before them, and these: cells that count twice fit themselves."""
    keys = [(source.plan.namespace, source.plan.name, source.plan.uid) for source in sources]
    again = [source for place, source in enumerate(sources) if keys[place] in keys[:place]]
    return [source for place, source in enumerate(sources) if keys[place] not in keys[:place]], again


def apart(sources: Sequence[Source]) -> list[str]:
    """What keeps runs from being put together, in words; empty where nothing does."""
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


def profiles(sources: Sequence[Source]) -> list[StepCost]:
    """Step costs of the runs together."""
    return step_costs(pair for source in sources for pair in source.observed)


def proposals(sources: Sequence[Source], only: Sequence[int] = ()) -> list[Proposed]:
    """A schedule for each drafter and workload that allows one. `only`: draft lengths to choose from, else all."""
    cells = [pair for source in sources for pair in source.cells]
    seen = [pair for source in sources for pair in source.observed]
    families = dict.fromkeys(family for arm, _ in seen if (family := family_of(arm)) is not None)
    found = []
    for cost, family in zip(profiles(sources), families, strict=True):
        mine = [(arm, cell) for arm, cell in cells if family_of(arm) == family]
        for workload, surface in surfaces(cost).items():
            known = _among(emitted([(arm, cell) for arm, cell in mine if cell.workload == workload]), only)
            arms = sorted({arm.name for arm, cell in mine if cell.workload == workload})
            notes = [*_notes(known), *_left_out(sources, family, workload)]
            made = schedule(arms, workload, surface, known, notes)
            if made is not None:
                found.append(Proposed(made, max((arm for arm, _ in mine), key=length_of), cost))
    return found


def _among(known: Iterable[Emitted], only: Sequence[int]) -> list[Emitted]:
    return [each for each in known if not only or each.draft_tokens in only]


def _notes(known: Sequence[Emitted]) -> list[str]:
    bounded = [str(each.draft_tokens) for each in known if each.how != "measured"]
    if not bounded:
        return []
    told = f"draft lengths {', '.join(bounded)} were not run: their tokens a step are lower bounds"
    return [f"{told}, from a longer draft cut short"]


def _left_out(sources: Sequence[Source], family: str, workload: str) -> list[str]:
    """Cells of the drafter and of the baseline that a check broke."""
    broken = [
        f"{cell.arm} at {cell.level.label}"
        for source in sources
        for cell in source.summary.cells
        if not cell.valid
        and cell.workload == workload
        and (source.plan.arm(cell.arm).is_baseline or family_of(source.plan.arm(cell.arm)) == family)
    ]
    return [f"left out as invalid: {', '.join(broken)}"] if broken else []
