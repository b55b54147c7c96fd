"""The plots of the page, in their order. To add one: a function `RunSummary → Drawn | None`, and a line here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from specbench_api.outcome.slices import Slices
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.sections import acceptance, categories, requests, slices, times
from specbench_client.report.plots.sections.crossings import ArmCrossover
from specbench_client.report.plots.sections.differences import by_difference
from specbench_client.report.plots.sections.pareto import pareto
from specbench_client.report.plots.sections.section import Section
from specbench_client.report.plots.sections.speedup import speedup
from specbench_client.report.plots.sections.throughput import throughput

_NOTHING = Slices()
_PLACE = "position in the output, tokens"


def _crossovers(summary: RunSummary) -> Sequence[ArmCrossover]:
    return summary.crossover.by_load if summary.crossover else ()


def _slices(cell: Cell) -> Slices:
    """An older summary has none."""
    return cell.slices or _NOTHING


SECTIONS = (
    Section("Speed-up over the paired baseline, by load", partial(speedup, crossovers_of=_crossovers)),
    Section("What one user gets, and what the engine gives", pareto),
    Section("Output tokens a second, with the gap over the baseline", throughput),
    Section("Acceptance length (emitted) by category, at the lightest load", acceptance.by_category),
    Section("Acceptance by position of the draft, at the lightest load", acceptance.by_position),
    Section(
        "Acceptance length from request to request, at the lightest load",
        partial(slices.by_request, of=lambda cell: _slices(cell).acceptance_by_request),
    ),
    Section(
        "Acceptance length by position in the output, at the lightest load",
        partial(slices.by_place, of=lambda cell: _slices(cell).by_position, x_label=_PLACE),
    ),
    Section(
        "Acceptance length by position, answers of one class of length a line, at the lightest load",
        partial(slices.by_length, of=lambda cell: _slices(cell).by_length, x_label=_PLACE),
    ),
    Section("Acceptance along each answer, a line a request, at the lightest load", requests.by_request),
    Section("Which drafter accepts more, by length of the answer and position in it", by_difference),
    Section(
        "Acceptance length by context, at the lightest load",
        partial(slices.by_place, of=lambda cell: _slices(cell).by_context, x_label="prompt and output so far, tokens"),
    ),
    Section("Time of a decode step", times.step_time),
    Section("Time of a decode step, split by the fitted step costs", times.step_split),
    Section("Time of a request", times.request_time),
    Section("Speed-up by category and load", categories.by_category),
)
