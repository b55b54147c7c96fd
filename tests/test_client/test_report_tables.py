"""Tables: missing values are a dash or empty, and simulated results are marked everywhere."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache

import pandas as pd
import pytest
from rich.console import Console

from specbench_api.outcome.summary import RunSummary, SpeedupConclusion
from specbench_api.spec.engine import EngineKind
from specbench_client.report.text.cells import cells_table, csv, markdown, speedup_text, terminal_columns
from specbench_client.report.text.text_table import rich_table
from specbench_testing.present import present
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=20, concurrency=(1, 2), alpha={"ngram": 0.6})
LOCAL_UID, CLUSTER_UID = "0190a000-0000-7000-8000-000000000000", "5f0c6a4e-3f0b-4c39-9a53-1f2f2f0a7c11"


@cache
def plain() -> RunSummary:
    """Return the summary of an ordinary run."""
    return run_of_world(WORLD)


@cache
def simulated() -> RunSummary:
    """Return the summary of a simulated run."""
    return run_of_world(SyntheticRun(prompts=20), Corruptions(simulated=True))


@cache
def broken() -> RunSummary:
    """Return the summary of a run whose drafter fails every request."""
    return run_of_world(
        WORLD,
        Corruptions(records=lambda point, frame: frame.assign(error_class="reset") if point.arm == "ngram" else frame),
    )


@cache
def opened() -> RunSummary:
    """Return the summary of an open-loop run."""
    return run_of_world(SyntheticRun(prompts=20, rate=(4, 0.5), repeats=1))


@cache
def nothing() -> RunSummary:
    """Return the summary of a run without measurements."""
    return run_of_world(WORLD, Corruptions(measured=lambda _: False))


@cache
def skipped() -> RunSummary:
    """Return the summary of a run without a baseline."""
    return run_of_world(SyntheticRun(prompts=20, edits={"spec.baseline": "Skip"}))


def on_screen(summary: RunSummary, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(rich_table(cells_table(summary), width))
    return console.export_text()


def page(summary: RunSummary) -> str:
    return markdown(WORLD.plan, summary)


def table(summary: RunSummary) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(csv(summary)))


@pytest.mark.parametrize("made", [plain, simulated, broken, opened, nothing, skipped])
def test_every_summary_can_be_shown(made: Callable[[], RunSummary]) -> None:
    summary = made()
    assert summary.name in on_screen(summary)
    assert summary.headline in page(summary)
    assert csv(summary).endswith("\n")


def test_terminal_shows_speedup_with_interval_and_headline() -> None:
    text, found = on_screen(plain(), 200), plain().cells[1].speedup
    assert found is not None
    assert f"{found.value:.2f} [{present(found.interval).low:.2f}, {present(found.interval).high:.2f}]" in text
    assert f"{found.value:.2f}x" in plain().headline


@pytest.mark.parametrize("width", [80, 110])
def test_table_fits_a_terminal_without_breaking_numbers_or_words(width: int) -> None:
    for summary in (plain(), broken()):
        lines = on_screen(summary, width).splitlines()
        assert max(len(line) for line in lines) <= width
        assert sum("│ ngram" in line for line in lines) == 2
        names = {name for cell in summary.cells for name in cell.findings}
        assert "Findings" not in "".join(lines) or all(f"│ {name}" in "\n".join(lines) for name in names)


def test_markdown_rows_have_the_same_number_of_cells() -> None:
    tables = [part.splitlines() for part in page(plain()).split("\n\n") if part.startswith("|")]
    assert len(tables[0]) == 2 + len(plain().cells)
    assert [len({line.count("|") for line in lines}) for lines in tables] == [1] * len(tables)


def test_findings_have_a_remedy() -> None:
    text = page(broken())
    assert "**RequestsFailed** (Invalid)" in text
    assert "*What to do:*" in text


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


def test_invalid_cell_is_marked_in_markdown() -> None:
    assert "invalid" in page(broken())
    assert "invalid" not in page(plain())


def test_too_few_repeats_replace_the_interval() -> None:
    once = run_of_world(SyntheticRun(prompts=20, repeats=1))
    for text in (page(once), on_screen(once, 250)):
        assert "(1 repeat: too few to tell)" in text.split("AL", 1)[1]
        assert "x faster" not in text


def test_speedup_compatible_with_1_is_called_indistinguishable() -> None:
    equal = SyntheticRun(prompts=20, alpha={"ngram": 0.0}, alpha_spread=0.0, step_ms={"ngram": 10.0}, run_noise=0.02)
    assert "indistinguishable" in page(run_of_world(equal)).split("|", 1)[1]


def test_speedup_not_significant_after_correction_is_called_unclear() -> None:
    cell = plain().cells[1]
    lucky = cell.model_copy(
        update={"claims": present(cell.claims).model_copy(update={"overall": SpeedupConclusion.UNCLEAR})}
    )
    assert speedup_text(lucky, lucky.speedup).endswith("] unclear")
    assert speedup_text(lucky, lucky.tpot_speedup).endswith("]"), "only the speed-up has a conclusion"
    assert speedup_text(cell, cell.speedup).endswith("]")


def test_csv_has_end_to_end_speedup_and_claim() -> None:
    row = table(plain()).iloc[1]
    assert row["claim"] == "Faster"
    assert row["e2e_speedup_low"] < row["e2e_speedup"] < row["e2e_speedup_high"]
    assert row["requests_per_hour"] / row["baseline_requests_per_hour"] == pytest.approx(row["e2e_speedup"])
    baseline = table(plain()).iloc[0]
    assert pd.isna(baseline["claim"])
    assert pd.isna(baseline["e2e_speedup"])


def test_simulated_run_is_marked_in_every_format() -> None:
    assert "not a measurement" in on_screen(simulated())
    assert "> **Simulated." in page(simulated())
    assert table(simulated())["simulated"].tolist() == [True] * 2
    assert "imulated" not in on_screen(plain()) + page(plain())


def test_csv_has_one_row_per_cell_and_empty_missing_values() -> None:
    rows = table(plain())
    assert rows[["arm", "concurrency"]].to_numpy().tolist() == [["none", 1], ["ngram", 1], ["none", 2], ["ngram", 2]]
    baseline, ngram = rows.iloc[0], rows.iloc[1]
    assert pd.isna(baseline["speedup"])
    assert pd.isna(baseline["acceptance_rate"])
    measured = present(plain().cells[1].speedup)
    assert ngram["speedup"] == pytest.approx(measured.value)
    assert ngram["speedup_low"] < ngram["speedup"] < ngram["speedup_high"]


@pytest.mark.parametrize(("repeats", "bounded"), [(2, False), (3, True)])
def test_csv_has_no_speedup_bounds_with_too_few_repeats(repeats: int, bounded: bool) -> None:
    summary = run_of_world(SyntheticRun(prompts=20, repeats=repeats))
    row, speedup = table(summary).iloc[1], summary.cells[1].speedup
    assert speedup is not None
    assert speedup.interval is not None
    assert row["compared_repeats"] == repeats
    assert row["speedup"] == pytest.approx(speedup.value)
    bounds = row[["speedup_low", "speedup_high", "tpot_speedup_low", "tpot_speedup_high"]]
    assert bounds.notna().tolist() == [bounded] * 4
    assert pd.notna(row["acceptance_length_emitted_pooled_low"])


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


def test_csv_of_an_unmeasured_run_has_no_rows() -> None:
    assert csv(nothing()).strip() == ""


def test_several_workloads_have_a_workload_column() -> None:
    assert "| Workload |" not in first_table(page(plain()))
    two = {"spec.workloads[1]": {"name": "edit", "dataset": {"source": "jsonl", "uri": "edit.jsonl"}}}
    summary = run_of_world(SyntheticRun(prompts=20, edits=two))
    assert "| Workload |" in first_table(page(summary))
    assert "for edit" in summary.headline


GAMMA = SyntheticRun(
    prompts=20, rate=(4,), repeats=2, edits={"spec.load.arrival": {"process": "Gamma", "burstiness": 0.25}}
)


@cache
def gamma() -> RunSummary:
    """Return the summary of a run with bursty arrivals."""
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
    assert page(summary).count(f"\nLoad: {words}.\n") == 1
    assert set(table(summary).arrivals) == {process}
    assert {cell.to_dict()["arrivals"]["process"] for cell in summary.cells} == {process}


def test_csv_has_the_burstiness_of_a_gamma_process() -> None:
    assert set(table(gamma()).burstiness) == {0.25}
    assert table(plain()).burstiness.isna().all()


def test_csv_has_the_steady_window_of_each_repeat() -> None:
    world = SyntheticRun(prompts=20, concurrency=(2,), repeats=1)
    row, cell = table(run_of_world(world)).iloc[0], run_of_world(world).cells[0]
    (window,) = cell.windows
    assert window is not None
    bounds_s = (window.start_ns / 1e9, window.end_ns / 1e9)
    assert (row.steady_start_s, row.steady_end_s) == pytest.approx(bounds_s, abs=1e-3)
    assert row.steady_share == pytest.approx(window.share)
    assert [len(text.split(";")) for text in table(plain()).steady_start_s] == [3] * len(plain().cells)


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
