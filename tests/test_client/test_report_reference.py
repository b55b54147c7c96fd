"""docs/metrics.md is what the code says."""

from __future__ import annotations

from pathlib import Path

from specbench_client.metrics.table import PERCENTILE_FIGURES, RATIOS
from specbench_client.report.reference import render
from specbench_client.trust.table import CELL_CHECKS, POINT_CHECKS, RUN_CHECKS
from specbench_testing.records import World, run_of_world

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_fresh() -> None:
    stale = "docs/metrics.md is stale: python -m specbench_client.report.reference > docs/metrics.md"
    assert PAGE.read_text(encoding="utf-8") == render(), stale


def test_every_figure_and_every_check_is_on_it() -> None:
    text = render()
    figures = [*(ratio.name for ratio in RATIOS), *(percentile.name for percentile in PERCENTILE_FIGURES)]
    assert all(f"`{name}`" in text for name in figures)
    names = [check.name for checks in (POINT_CHECKS, CELL_CHECKS, RUN_CHECKS) for check in checks]
    assert all(f"#### {name}\n" in text for name in names)


def test_a_summary_holds_no_figure_that_the_page_does_not_know() -> None:
    summary = run_of_world(World(prompts=20, repeats=1))
    by_position = {f"accepted_{kind}_{at}" for kind in ("joint", "conditional") for at in range(1, 4)}
    exactly = {f"accepted_exactly_{count}" for count in range(4)}
    names = {name for cell in summary.cells for name in cell.figures} - by_position - exactly
    assert all(f"`{name}`" in render() for name in names)
