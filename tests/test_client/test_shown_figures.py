"""One result in every form: each shows the values and intervals that its figures carry, and no others."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from html import unescape
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer
from rich.console import Console

from specbench_api.plan.plan import Point
from specbench_api.spec.slo import Slo
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.minimum_samples import too_few_requests
from specbench_client.documents.summary import RunSummary
from specbench_client.report.html import render_html
from specbench_client.report.plots import charts as plots
from specbench_client.report.results_csv import csv
from specbench_client.report.table_renderers import rich_table
from specbench_client.report.text.results_table import cells_table
from specbench_client.report.text.run_report import markdown
from specbench_client.stored_runs.frames import cells_frame
from specbench_client.stored_runs.status_builder import status_document
from specbench_testing.present import present
from specbench_testing.summary_variants import with_cells
from specbench_testing.synthetic_records import UNCORRUPTED, Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs
WORLD = SyntheticRun(prompts=40, concurrency=(1, 2), slo=Slo(ttft_ms=50, tpot_ms=9))
WORLDS = {
    "three repeats": (WORLD, UNCORRUPTED),
    "one repeat": (replace(WORLD, repeats=1), UNCORRUPTED),
    "two prompts": (replace(WORLD, prompts=2), UNCORRUPTED),
    "no baseline at one load": (
        replace(WORLD, prompts=8),
        Corruptions(measured=lambda point: point.arm != "none" or point.level.concurrency != 2),
    ),
    "invalid points": (
        replace(WORLD, prompts=8),
        Corruptions(records=lambda point, frame: frame.assign(error_class="reset") if _second(point) else frame),
    ),
}


def _second(point: Point) -> bool:
    return point.arm == "ngram" and point.repeat == 1 and point.level.concurrency == 1


@cache
def result(case: str) -> RunSummary:
    """Return a result with the special case; its arm is at fault, too."""
    fault = Finding(check="ReuseLost", severity=Severity.FAULT, message="m", arm="ngram")
    summary = run_of_world(*WORLDS[case])
    return summary.model_copy(update={"findings": [*summary.findings, fault]})


@pytest.mark.parametrize(("percent", "enough"), [(50, 1), (90, 10), (95, 20), (99, 100), (10, 10), (1, 100), (75, 4)])
def test_a_percentile_needs_one_request_beyond_it(percent: int, enough: int) -> None:
    assert too_few_requests(percent, enough) == ""
    assert str(enough) in too_few_requests(percent, enough - 1)


Shown = tuple[float | None, float | None, float | None]
"""A value and its bounds; None for what is not shown."""


def shown_of(figure: Mapping[str, Any] | None) -> Shown:
    """Return what a figure of the JSON document shows."""
    interval = (figure or {}).get("interval") or {}
    return (figure or {}).get("value"), interval.get("low"), interval.get("high")


def assert_same(found: Iterable[float | None], expected: Iterable[float | None]) -> None:
    """Assert that the same values are there, to six digits, and that the same are missing."""
    numbers = [np.array([math.nan if each is None else each for each in side], float) for side in (found, expected)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-5, nan_ok=True)


def documented(cell: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the figures of a cell of the JSON document, by the names that spreadsheets use."""
    whole, goodput = cell.get("endToEnd") or {}, cell.get("goodput") or {}
    found = {
        **cell["figures"],
        "speedup": cell.get("speedup"),
        "tpot_speedup": cell.get("tpotSpeedup"),
        "e2e_speedup": whole.get("speedup"),
        "e2e_speedup_median": whole.get("medianSpeedup"),
        "requests_per_hour": whole.get("requestsPerHour"),
        "baseline_requests_per_hour": whole.get("baselineRequestsPerHour"),
        "cost_saved": whole.get("costSaved"),
        "slo_goodput": goodput.get("rate"),
        "slo_attainment": goodput.get("sloAttainment"),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def document(case: str) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(result(case).to_json())["cells"]
    return cells


@pytest.mark.parametrize("case", WORLDS)
def test_a_figure_without_a_value_or_an_interval_has_the_reason(case: str) -> None:
    for cell in document(case):
        for name, figure in documented(cell).items():
            if None in shown_of(figure):
                assert figure.get("missing"), (cell["arm"], name)
            else:
                assert "missing" not in figure, (cell["arm"], name)


def test_the_special_cases_are_there() -> None:
    """Otherwise the other tests would compare nothing."""
    few = documented(document("one repeat")[1])
    assert few["speedup"]["missing"] == few["cost_saved"]["missing"] == "1 repeat: too few to tell"
    assert few["ttft_ms_p99"]["missing"] == "p99 needs at least 100 requests"
    assert None not in shown_of(few["acceptance_length_emitted_pooled"])
    assert shown_of(few["ttft_ms_p95"])[0] is not None
    full = documented(document("three repeats")[1])
    assert None not in shown_of(full["speedup"])
    assert full["ttft_ms_p99"]["value"] >= full["ttft_ms_p95"]["value"]
    assert documented(document("two prompts")[1])["ttft_ms_mean"]["missing"] == "2 prompts: no interval"
    assert documented(document("two prompts")[1])["ttft_ms_p90"]["missing"] == "p90 needs at least 10 requests"
    lonely = [cell for cell in document("no baseline at one load") if cell["level"]["concurrency"] == 2]
    assert [shown_of(cell.get("speedup")) for cell in lonely] == [(None, None, None)]
    assert [cell["valid"] for cell in document("invalid points")] == [True, False, True, True]


@pytest.mark.parametrize("case", WORLDS)
def test_spreadsheets_and_frames_show_what_the_document_shows(case: str) -> None:
    for table in (pd.read_csv(io.StringIO(csv(result(case)))), cells_frame(result(case))):
        for cell, (_, row) in zip(document(case), table.iterrows(), strict=True):
            for name, figure in documented(cell).items():
                assert_same([row[f"{name}{end}"] for end in ("", "_low", "_high")], shown_of(figure))
            assert row["valid"] == cell["valid"]


@pytest.mark.parametrize("case", WORLDS)
def test_the_status_shows_what_the_document_shows(case: str) -> None:
    """A ratio has a value there only with its interval; `speedup_text` has the others."""
    for cell, row in zip(document(case), status_document(result(case), WORLD.plan).arms, strict=True):
        figures = documented(cell)
        for name in ("speedup", "tpot_speedup", "e2e_speedup"):
            held, expected = getattr(row, name), shown_of(figures.get(name))
            shown = [None] * 3 if held is None else [held.value, held.low, held.high]
            assert_same(shown, [None] * 3 if None in expected else expected)
        for latency in ("ttft_ms", "tpot_ms", "e2e_ms"):
            percentiles = present(getattr(row, latency)).model_dump()
            assert_same(percentiles.values(), [shown_of(figures[f"{latency}_{each}"])[0] for each in percentiles])
        single = {
            "acceptance_length_emitted_pooled": row.acceptance_length, "acceptance_rate": row.acceptance_rate,
            "output_tps": row.output_tps, "slo_goodput": row.goodput, "slo_attainment": row.slo_attainment,
            "user_tps_p50": row.user_tps,
        }  # fmt: skip
        assert_same(single.values(), [shown_of(figures[name])[0] for name in single])
        assert row.speedup_text.startswith(_ratio(figures.get("speedup")) if "speedup" in figures else "")


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def _ratio(figure: Mapping[str, Any] | None) -> str:
    value, low, high = shown_of(figure)
    if value is None:
        return "–"
    return f"{value:.2f} [{low:.2f}, {high:.2f}]" if low is not None else f"{value:.2f} ({present(figure)['missing']})"


def _latency(figures: Mapping[str, Mapping[str, Any]], name: str, percentiles: Sequence[str], separator: str) -> str:
    values = [shown_of(figures[f"{name}_{each}"])[0] for each in percentiles]
    return separator.join(_number(each, 0 if each is not None and each >= 100 else 1) for each in values)


def expected_texts(cell: Mapping[str, Any], percentiles: Sequence[str], separator: str) -> list[str]:
    """Return the beginnings of the texts that a table has of a cell: speed-up, AL and latencies."""
    figures = documented(cell)
    speedup = "baseline" if cell["arm"] == "none" else _ratio(figures.get("speedup"))
    if not cell["valid"] and speedup == "–":
        speedup = "invalid"
    length = _number(shown_of(figures["acceptance_length_emitted_pooled"])[0], 2)
    latencies = (_latency(figures, name, percentiles, separator) for name in ("ttft_ms", "tpot_ms", "e2e_ms"))
    return [speedup, length, *latencies]


def _html_rows(text: str) -> Iterator[list[str]]:
    section = text[text.index('id="results"') :]
    for row in re.findall(r"<tr[^>]*>(<td.*?)</tr>", section[: section.index("</table>")]):
        yield [re.sub(r"[\u00a0\u202f]", " ", unescape(re.sub("<[^>]*>", "", cell))) for cell in row.split("</td>")]


def _markdown_rows(text: str) -> Iterator[list[str]]:
    table = next(part for part in text.split("\n\n") if part.startswith("| Arm | Load | Speed-up"))
    yield from ([cell.strip() for cell in line.split("|")[1:]] for line in table.splitlines()[2:])


def _terminal_rows(summary: RunSummary) -> Iterator[list[str]]:
    console = Console(file=io.StringIO(), width=400, record=True)
    console.print(rich_table(cells_table(summary), 400))
    for line in console.export_text().splitlines():
        if line.startswith(("│ none", "│ ngram")):
            yield [cell.strip() for cell in line.strip("│").split("│")]


LATENCY_NAMES, PLACES = ("p50", "p95", "p99"), {"page": (2, 4, 7, 8, 9), "terminal": (2, 3, 5, 6, 7)}


@pytest.mark.parametrize("case", WORLDS)
def test_tables_show_what_the_document_shows(case: str) -> None:
    """On a terminal, in Markdown and on the page; below them is why latencies are missing."""
    summary = result(case)
    texts = {"markdown": markdown(WORLD.plan, summary), "html": render_html(WORLD.plan, summary)}
    forms = {
        "terminal": (list(_terminal_rows(summary)), ("p50", "p99"), "/"),
        "markdown": (list(_markdown_rows(texts["markdown"])), LATENCY_NAMES, " / "),
        "html": (list(_html_rows(texts["html"])), LATENCY_NAMES, " / "),
    }
    for form, (rows, percentiles, separator) in forms.items():
        for cell, row in zip(document(case), rows, strict=True):
            found = [row[at] for at in PLACES["terminal" if form == "terminal" else "page"]]
            expected = expected_texts(cell, percentiles, separator)
            assert found[0].startswith(expected[0]), form
            assert found[1:] == expected[1:], form
            assert (" invalid" in found[0] or found[0] == "invalid") == (not cell["valid"])
    missing = any(shown_of(cell["figures"]["ttft_ms_p99"])[0] is None for cell in document(case))
    for text in (*texts.values(), cells_table(summary).caption):
        assert ("p99 needs at least 100 requests" in text) == missing


@pytest.mark.parametrize("case", WORLDS)
def test_plots_show_what_the_document_shows(case: str) -> None:
    drawing = plots.speedup(result(case))
    cells = [cell for cell in document(case) if cell["arm"] == "ngram"]
    (axes,) = [each for each in present(drawing).canvas.axes if each.get_visible()]
    (line,) = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    ratios = [shown_of(cell.get("speedup")) for cell in cells]
    assert_same(np.asarray(line.lines[0].get_ydata()), [each[0] for each in ratios])
    bars = [np.asarray(each)[:, 1] for each in line.lines[2][0].get_segments() if len(each)]
    ends = [(min(each), max(each)) for each in bars if np.isfinite(each).all()]
    assert ends == [pytest.approx(each[1:]) for each in ratios if None not in each]


def test_a_form_that_decides_on_its_own_would_be_found() -> None:
    """Each form follows the figure: without its interval, none has it."""
    plain = result("three repeats")
    bare = with_cells(
        plain,
        [
            cell.model_copy(update={"speedup": cell.speedup.without_interval("why")}) if cell.speedup else cell
            for cell in plain.cells
        ],
    )
    value = f"{present(present(bare.cells[1].speedup).value):.2f} (why)"
    assert value in markdown(WORLD.plan, bare)
    assert value in render_html(WORLD.plan, bare).replace("\u00a0", " ")
    assert status_document(bare, WORLD.plan).arms[1].speedup is None
    assert pd.read_csv(io.StringIO(csv(bare)))["speedup_low"].isna().all()
