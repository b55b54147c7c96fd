"""The plots of the page, in their order. To add one: a function `RunSummary → Drawn | None`, and a line here."""

from __future__ import annotations

from specbench_client.report.plots.sections import acceptance, categories, times
from specbench_client.report.plots.sections.pareto import pareto
from specbench_client.report.plots.sections.section import Section
from specbench_client.report.plots.sections.speedup import speedup
from specbench_client.report.plots.sections.throughput import throughput

SECTIONS = (
    Section("Speed-up over the paired baseline, by load", speedup),
    Section("What one user gets, and what the engine gives", pareto),
    Section("Output tokens a second, with the gap over the baseline", throughput),
    Section("Acceptance length (emitted) by category, at the lightest load", acceptance.by_category),
    Section("Acceptance by position of the draft, at the lightest load", acceptance.by_position),
    Section("Time of a decode step", times.step_time),
    Section("Time of a request", times.request_time),
    Section("Speed-up by category and load", categories.by_category),
)
