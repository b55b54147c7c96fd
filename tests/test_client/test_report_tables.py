"""Tables: missing values are a dash or empty, and simulated results are marked everywhere."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from specbench_api.spec.engine import EngineKind
from specbench_client.documents.figure import FigureInterval, Verdict
from specbench_client.documents.summary import RunSummary
from specbench_client.report.renderers import rich_table
from specbench_client.report.text.cells import cells_table, csv, speedup_text, terminal_columns
from specbench_client.report.text.run_report import markdown
from specbench_testing.present import present
from specbench_testing.summary_variants import with_cells
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=20, concurrency=(1, 2), alpha={"ngram": 0.6})
LOCAL_UID, CLUSTER_UID = "0190a000-0000-7000-8000-000000000000", "5f0c6a4e-3f0b-4c39-9a53-1f2f2f0a7c11"


@cache
def plain() -> RunSummary:
    return run_of_world(WORLD)


@cache
def simulated() -> RunSummary:
    return plain().model_copy(update={"simulated": True})


@cache
def broken() -> RunSummary:
    """Return the summary of a run whose drafter fails every request."""
    failing = Corruptions(
        records=lambda point, frame: frame.assign(error_class="reset") if point.arm == "ngram" else frame
    )
    return run_of_world(WORLD, failing)


@cache
def opened() -> RunSummary:
    return run_of_world(SyntheticRun(prompts=20, rate=(4, 0.5), repeats=1))


@cache
def nothing() -> RunSummary:
    """Return the summary of a run without measurements."""
    return run_of_world(WORLD, Corruptions(measured=lambda _: False))


def few_repeats(repeats: int) -> RunSummary:
    """Return the summary as if so many repeats had been compared."""
    return with_cells(plain(), [cell.model_copy(update={"compared_repeats": repeats}) for cell in plain().cells])


def test_a_run_without_measurements_can_be_shown() -> None:
    assert nothing().name in on_screen(nothing())
    assert nothing().headline in page(nothing())
    assert csv(nothing()).strip() == ""


def test_markdown_has_a_row_per_cell_and_marks_an_invalid_one() -> None:
    tables = [part.splitlines() for part in page(plain()).split("\n\n") if part.startswith("|")]
    assert len(tables[0]) == 2 + len(plain().cells)
    assert [len({line.count("|") for line in lines}) for lines in tables] == [1] * len(tables)
    assert "invalid" not in page(plain())
    assert "invalid" in page(broken())
    assert "- RequestsFailed (Invalid): " in page(broken())
    assert "What to do: " in page(broken())


def on_screen(summary: RunSummary, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(rich_table(cells_table(summary), width))
    return console.export_text()


def page(summary: RunSummary) -> str:
    return markdown(WORLD.plan, summary)


def table(summary: RunSummary) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(csv(summary)))


@pytest.mark.parametrize("width", [80, 110])
def test_table_fits_a_terminal_without_breaking_numbers_or_words(width: int) -> None:
    for summary in (plain(), broken()):
        lines = on_screen(summary, width).splitlines()
        assert max(len(line) for line in lines) <= width
        assert sum("│ ngram" in line for line in lines) == 2
        names = {name for cell in summary.cells for name in cell.findings}
        assert "Findings" not in "".join(lines) or all(f"│ {name}" in "\n".join(lines) for name in names)


@pytest.mark.parametrize(
    ("uid", "kind", "expected"),
    [
        (LOCAL_UID, EngineKind.LLAMA_CPP, "the same `specbench run` command with `--new`"),
        (LOCAL_UID, EngineKind.EXTERNAL, "the same `specbench measure` command"),
        (CLUSTER_UID, EngineKind.LLAMA_CPP, "under another name"),
        (CLUSTER_UID, EngineKind.EXTERNAL, "under another name"),
    ],
)
def test_advice_for_measuring_again_depends_on_where_the_run_was_measured(
    uid: str, kind: EngineKind, expected: str
) -> None:
    plan = WORLD.plan.model_copy(update={"uid": uid, "engine": WORLD.plan.engine.model_copy(update={"kind": kind})})
    ways = (
        "the same `specbench run` command with `--new`",
        "the same `specbench measure` command",
        "under another name",
    )
    text = markdown(plan, broken())
    assert [way for way in ways if way in text] == [expected]


def test_too_few_repeats_replace_the_interval() -> None:
    for text in (page(few_repeats(1)), on_screen(few_repeats(1), 250)):
        assert "(1 repeat: too few to tell)" in text.split("AL", 1)[1]


def test_speedup_is_followed_by_its_conclusion_unless_it_is_significant() -> None:
    cell = plain().cells[1]
    unclear = present(cell.claims).model_copy(update={"overall": Verdict.UNCLEAR})
    lucky = cell.model_copy(update={"claims": unclear})
    equal = present(cell.speedup).model_copy(update={"interval": FigureInterval(low=0.9, high=1.1, method="m")})
    assert speedup_text(cell, equal).endswith("] indistinguishable")
    assert speedup_text(lucky, lucky.speedup).endswith("] unclear")
    assert speedup_text(lucky, lucky.tpot_speedup).endswith("]"), "only the speed-up has a conclusion"
    assert speedup_text(cell, cell.speedup).endswith("]")


def test_csv_has_end_to_end_speedup_and_claim() -> None:
    baseline, row = table(plain()).iloc[0], table(plain()).iloc[1]
    assert row["claim"] == "Faster"
    assert row["e2e_speedup_low"] < row["e2e_speedup"] < row["e2e_speedup_high"]
    assert row["requests_per_hour"] / row["baseline_requests_per_hour"] == pytest.approx(row["e2e_speedup"])
    assert baseline[["claim", "e2e_speedup", "speedup", "acceptance_rate"]].isna().all()


def test_csv_has_one_row_per_cell_and_speedup_bounds_from_three_repeats() -> None:
    rows = table(plain())
    assert rows[["arm", "concurrency"]].to_numpy().tolist() == [["none", 1], ["ngram", 1], ["none", 2], ["ngram", 2]]
    for repeats, bounded in ((2, False), (3, True)):
        row = table(few_repeats(repeats)).iloc[1]
        assert row["compared_repeats"] == repeats
        assert row["speedup"] == pytest.approx(present(plain().cells[1].speedup).value)
        bounds = row[["speedup_low", "speedup_high", "tpot_speedup_low", "tpot_speedup_high"]]
        assert bounds.notna().tolist() == [bounded] * 4
        assert pd.notna(row["acceptance_length_emitted_pooled_low"])


def test_simulated_run_is_marked_in_every_format() -> None:
    assert "not a measurement" in on_screen(simulated())
    assert "> **Simulated." in page(simulated())
    assert table(simulated())["simulated"].all()
    assert "imulated" not in on_screen(plain()) + page(plain())


def test_load_is_a_number_in_csv_and_a_label_for_people() -> None:
    rows = table(opened())
    assert rows["load"].tolist() == ["0.5/s", "0.5/s", "4/s", "4/s"]
    assert rows["rate"].tolist() == [0.5, 0.5, 4, 4]
    assert rows["concurrency"].isna().all()
    assert table(plain())["load"].tolist() == [1, 1, 2, 2]
    assert "| Load |" in page(opened())
    assert "at 0.5/s" in opened().headline


def first_table(text: str) -> str:
    return next(part for part in text.split("\n\n") if part.startswith("|"))


def test_several_workloads_have_a_workload_column() -> None:
    two = [cell.model_copy(update={"workload": name}) for name in ("chat", "edit") for cell in plain().cells]
    assert "| Workload |" not in first_table(page(plain()))
    assert "| Workload |" in first_table(page(with_cells(plain(), two)))


GAMMA = SyntheticRun(
    prompts=20, rate=(4,), repeats=2, edits={"spec.load.arrival": {"process": "Gamma", "burstiness": 0.25}}
)


@cache
def gamma() -> RunSummary:
    return run_of_world(GAMMA)


@pytest.mark.parametrize(
    ("made", "words", "process"),
    [(plain, "closed loop", "ClosedLoop"), (opened, "Poisson", "Poisson"),
     (gamma, "Gamma, burstiness 0.25", "Gamma")],
    ids=["closed", "poisson", "gamma"],
)  # fmt: skip
def test_every_table_shows_the_arrival_process(made: Callable[[], RunSummary], words: str, process: str) -> None:
    summary = made()
    assert words in on_screen(summary).splitlines()[0]
    assert page(summary).count(f"\n- Load: {words}.\n") == 1
    assert set(table(summary).arrivals) == {process}
    assert table(summary).burstiness.isna().all() == (process != "Gamma")


def test_csv_has_the_steady_window_of_each_repeat() -> None:
    for row, cell in zip(table(plain()).itertuples(), plain().cells, strict=True):
        windows = [present(window) for window in cell.windows]
        starts_s = [float(text) for text in str(row.steady_start_s).split(";")]
        assert starts_s == pytest.approx([window.start_ns / 1e9 for window in windows], abs=1e-3)
        assert row.steady_share == pytest.approx(np.mean([window.share for window in windows]), rel=0.01)


def test_latencies_are_shown_as_the_requested_statistics() -> None:
    cell = plain().cells[0]
    columns = {column.title: column.text(cell) for column in terminal_columns(plain(), ("mean", "p90"))}
    shown = columns["TTFT ms\nmean/p90"].split("/")
    expected = [cell.figures[name].value for name in ("ttft_ms_mean", "ttft_ms_p90")]
    assert [float(text) for text in shown] == pytest.approx(expected, abs=0.5)
    assert "TPOT ms mean / p90" in markdown(WORLD.plan, plain(), ("mean", "p90"))


def test_narrow_terminal_leaves_out_columns_of_other_statistics_too() -> None:
    wide = cells_table(plain(), ("mean", "p50", "p90", "p95", "p99"))
    assert "E2E ms\nmean/p50/p90/p95/p99" in wide.optional
    assert wide.optional[0] == "Acc."
