"""docs/reference/metrics.md matches the code."""

from __future__ import annotations

from pathlib import Path

from generators.metrics_page import render_metrics_page
from specbench_client.metrics.catalog import PERCENTILE_FIGURES, RATIOS
from specbench_client.trust.registry import ANSWER_CHECKS, CELL_CHECKS, POINT_CHECKS, RUN_CHECKS
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def test_metrics_page_is_up_to_date() -> None:
    stale = "docs/reference/metrics.md is stale: run hack/generate"
    assert PAGE.read_text(encoding="utf-8") == render_metrics_page(), stale


def test_metrics_page_lists_every_figure_and_check() -> None:
    text = render_metrics_page()
    figures = [*(ratio.name for ratio in RATIOS), *(percentile.name for percentile in PERCENTILE_FIGURES)]
    assert all(f"`{name}`" in text for name in figures)
    names = [check.name for checks in (POINT_CHECKS, CELL_CHECKS, ANSWER_CHECKS, RUN_CHECKS) for check in checks]
    assert all(f"#### {name}\n" in text for name in names)


def test_every_figure_of_a_summary_is_on_the_metrics_page() -> None:
    summary = run_of_world(SyntheticRun(prompts=20, repeats=1))
    by_position = {f"{kind}position_acceptance_rate_{at}" for kind in ("", "conditional_") for at in range(1, 4)}
    exactly = {f"accepted_exactly_{count}" for count in range(4)}
    names = {name for cell in summary.cells for name in cell.figures} - by_position - exactly
    assert all(f"`{name}`" in render_metrics_page() for name in names)
