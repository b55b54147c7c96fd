"""Tables of the text report, also of the breakdown, and how they are laid out."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.spec.engine import EngineKind
from specbench_client.cli import exit_code
from specbench_client.documents.figure import Figure, FigureInterval, Verdict
from specbench_client.documents.summary import RunSummary
from specbench_client.measure_flags import MEASURED_WORKLOAD
from specbench_client.report.html import render_html
from specbench_client.report.results_csv import csv
from specbench_client.report.table_renderers import (
    escape_markdown,
    fit_columns,
    markdown_report,
    markdown_table,
    rich_table,
)
from specbench_client.report.text.answers import answers_table, lossless_table
from specbench_client.report.text.breakdown import DIMENSIONS, breakdown_topics, ends_topic, reuse_tables
from specbench_client.report.text.curves import break_even_table
from specbench_client.report.text.explanation import factors_table
from specbench_client.report.text.results_table import categories_table, cells_table, speedup_text, terminal_columns
from specbench_client.report.text.run_report import markdown
from specbench_client.report.text.text_table import (
    DASH,
    Report,
    TextTable,
    Topic,
    with_interval,
    without_empty_columns,
)
from specbench_testing.present import present
from specbench_testing.summary_variants import invalid, with_cells
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

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


@cache
def few_repeats(repeats: int) -> RunSummary:
    return run_of_world(replace(WORLD, repeats=repeats))


@pytest.mark.runs
def test_a_run_without_measurements_can_be_shown() -> None:
    assert nothing().name in on_screen(nothing())
    assert nothing().headline in page(nothing())
    assert csv(nothing()).strip() == ""


@cache
def without_baseline() -> RunSummary:
    return run_of_world(BARE)


BARE = SyntheticRun(prompts=12, concurrency=(1, 2), edits={"spec.baseline": "Skip"})
EMPTY = {"", DASH}


@pytest.mark.runs
def test_a_run_without_a_baseline_has_throughput_first_and_no_column_about_speed_ups() -> None:
    summary = without_baseline()
    rates = {cell.level.label: present(cell.value("output_tps")) for cell in summary.cells}
    assert summary.headline.startswith(f"ngram: {rates['2']:,.1f} tokens/s at concurrency 2; p50: TTFT ")
    assert summary.headline.endswith("no baseline, so no speed-up.")
    assert summary.crossovers == []
    assert "Speed-up" not in on_screen(summary)
    for part in markdown(BARE.plan, summary).split("\n\n"):
        if part.startswith("|"):
            head, _, *rows = ([text.strip() for text in line.strip("|").split(" | ")] for line in part.splitlines())
            empty = [name for name, *texts in zip(head, *rows, strict=True) if set(texts) <= EMPTY]
            assert not empty, head


@pytest.mark.runs
def test_html_has_no_empty_column_either() -> None:
    page = render_html(BARE.plan, without_baseline())
    for table in re.findall(r"<thead>.*?</tbody>", page, re.DOTALL):
        head = re.findall(r"<th[^>]*>(.*?)</th>", table, re.DOTALL)
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in table.split("<tr")[2:]]
        assert not [name for name, *texts in zip(head, *rows, strict=True) if set(texts) <= EMPTY], head


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([["a", DASH, ""], ["b", DASH, DASH]], ["x"]),
        ([["a", DASH, "1"], ["b", "2", DASH]], ["x", "y", "z"]),
        ([], ["x", "y", "z"]),
    ],
    ids=["empty", "not in every row", "no rows"],
)
def test_columns_that_are_empty_throughout_are_left_out(rows: list[list[str]], left: list[str]) -> None:
    found = without_empty_columns(TextTable("", ("x", "y", "z"), rows, words=()))
    assert list(found.columns) == left
    assert {len(row) for row in found.rows} <= {len(left)}


@pytest.mark.runs
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


@pytest.mark.runs
@pytest.mark.parametrize("width", [80, 110])
def test_table_fits_a_terminal_without_breaking_numbers_or_words(width: int) -> None:
    for summary in (plain(), broken()):
        lines = on_screen(summary, width).splitlines()
        assert max(len(line) for line in lines) <= width
        assert sum("│ ngram" in line for line in lines) == 2
        names = {name for cell in summary.cells for name in cell.findings}
        assert "Findings" not in "".join(lines) or all(f"│ {name}" in "\n".join(lines) for name in names)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("uid", "kind", "workload", "expected"),
    [
        (LOCAL_UID, EngineKind.LLAMA_CPP, MEASURED_WORKLOAD, "the same command with `--new`"),
        (LOCAL_UID, EngineKind.EXTERNAL, "chat", "the same command with `--new`"),
        (LOCAL_UID, EngineKind.EXTERNAL, MEASURED_WORKLOAD, "repeat the same command; earlier results"),
        (CLUSTER_UID, EngineKind.LLAMA_CPP, "chat", "under another name"),
        (CLUSTER_UID, EngineKind.EXTERNAL, MEASURED_WORKLOAD, "under another name"),
    ],
)
def test_advice_for_measuring_again_depends_on_where_the_run_was_measured(
    uid: str, kind: EngineKind, workload: str, expected: str
) -> None:
    engine = WORLD.plan.engine.model_copy(update={"kind": kind})
    workloads = [WORLD.plan.workloads[0].model_copy(update={"name": workload})]
    plan = WORLD.plan.model_copy(update={"uid": uid, "workloads": workloads, "engine": engine})
    ways = (
        "the same command with `--new`",
        "repeat the same command; earlier results",
        "under another name",
    )
    text = markdown(plan, broken())
    assert [way for way in ways if way in text] == [expected]


@pytest.mark.runs
def test_too_few_repeats_replace_the_interval() -> None:
    for text in (page(few_repeats(1)), on_screen(few_repeats(1), 250)):
        assert "(1 repeat: too few to tell)" in text.split("AL", 1)[1]


@pytest.mark.runs
def test_speedup_is_followed_by_its_conclusion_unless_it_is_significant() -> None:
    cell = plain().cells[1]
    unclear = present(cell.claims).model_copy(update={"overall": Verdict.UNCLEAR})
    lucky = cell.model_copy(update={"claims": unclear})
    equal = present(cell.speedup).model_copy(update={"interval": FigureInterval(low=0.9, high=1.1, method="m")})
    assert speedup_text(cell, equal).endswith("] indistinguishable")
    wide = present(cell.speedup).model_copy(update={"interval": FigureInterval(low=0.5, high=1.6, method="m")})
    assert speedup_text(cell, wide).endswith("] interval too wide")
    assert speedup_text(lucky, lucky.speedup).endswith("] unclear")
    assert speedup_text(lucky, lucky.tpot_speedup).endswith("]"), "only the speed-up has a conclusion"
    assert speedup_text(cell, cell.speedup).endswith("]")


@pytest.mark.parametrize(
    ("compared", "own", "baseline", "counts"),
    [(3, 3, 3, []), (2, 3, 2, ["2", "2", "3", "2"]), (2, 2, 3, ["2", "3"]), (None, 3, 2, [])],
)
def test_a_speedup_over_fewer_repeats_than_other_figures_is_noted(
    compared: int | None, own: int, baseline: int, counts: list[str]
) -> None:
    none, ngram = (cell for cell in plain().cells if cell.level.label == "2")
    cells = [
        none.model_copy(update={"points": none.points[:baseline]}),
        ngram.model_copy(update={"points": ngram.points[:own], "compared_repeats": compared}),
    ]
    caption = cells_table(plain().model_copy(update={"cells": cells})).caption
    assert re.findall(r"\d", "".join(note for note in caption.split(". ") if "repeats" in note)) == counts


@pytest.mark.runs
def test_an_invalid_load_is_marked_in_the_speedup_or_without_a_baseline_in_the_load() -> None:
    invalid = [cell.model_copy(update={"valid": False}) for cell in plain().cells]
    compared = plain().model_copy(update={"cells": invalid})
    lone = compared.cells[1].model_copy(update={"speedup": None, "tpot_speedup": None})
    for summary, marked in ((compared, "Speed-up"), (compared.model_copy(update={"cells": [lone]}), "Load")):
        texts = {column.title.split()[0]: column.text(summary.cells[-1]) for column in terminal_columns(summary)}
        assert [title for title in ("Load", "Speed-up") if "invalid" in texts[title]] == [marked]


@pytest.mark.runs
def test_csv_has_end_to_end_speedup_and_claim() -> None:
    baseline, row = table(plain()).iloc[0], table(plain()).iloc[1]
    assert row["claim"] == "Faster"
    assert row["e2e_speedup_low"] < row["e2e_speedup"] < row["e2e_speedup_high"]
    assert row["requests_per_hour"] / row["baseline_requests_per_hour"] == pytest.approx(row["e2e_speedup"])
    assert baseline[["claim", "e2e_speedup", "speedup", "acceptance_rate"]].isna().all()


@pytest.mark.runs
def test_csv_has_one_row_per_cell_and_speedup_bounds_from_three_repeats() -> None:
    rows = table(plain())
    assert rows[["arm", "concurrency"]].to_numpy().tolist() == [["none", 1], ["ngram", 1], ["none", 2], ["ngram", 2]]
    for repeats, bounded in ((2, False), (3, True)):
        row = table(few_repeats(repeats)).iloc[1]
        assert row["compared_repeats"] == repeats
        assert row["speedup"] == pytest.approx(present(few_repeats(repeats).cells[1].speedup).value)
        bounds = row[["speedup_low", "speedup_high", "tpot_speedup_low", "tpot_speedup_high"]]
        assert bounds.notna().tolist() == [bounded] * 4
        assert pd.notna(row["acceptance_length_emitted_pooled_low"])


@pytest.mark.runs
def test_simulated_run_is_marked_in_every_format() -> None:
    assert "not a measurement" in on_screen(simulated())
    assert "> **Simulated." in page(simulated())
    assert table(simulated())["simulated"].all()
    assert "imulated" not in on_screen(plain()) + page(plain())


@pytest.mark.runs
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


@pytest.mark.runs
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


@pytest.mark.runs
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


@pytest.mark.runs
def test_csv_has_the_steady_window_of_each_repeat() -> None:
    for row, cell in zip(table(plain()).itertuples(), plain().cells, strict=True):
        windows = [present(window) for window in cell.windows]
        starts_s = [float(text) for text in str(row.steady_start_s).split(";")]
        assert starts_s == pytest.approx([window.start_ns / 1e9 for window in windows], abs=1e-3)
        assert row.steady_share == pytest.approx(np.mean([window.share for window in windows]), rel=0.01)


@pytest.mark.runs
def test_latencies_are_shown_as_the_requested_statistics() -> None:
    cell = plain().cells[0]
    columns = {column.title: column.text(cell) for column in terminal_columns(plain(), ("mean", "p90"))}
    shown = columns["TTFT ms\nmean/p90"].split("/")
    expected = [cell.figures[name].value for name in ("ttft_ms_mean", "ttft_ms_p90")]
    assert [float(text) for text in shown] == pytest.approx(expected, abs=0.5)
    assert "TPOT ms mean / p90" in markdown(WORLD.plan, plain(), ("mean", "p90"))


@pytest.mark.runs
def test_narrow_terminal_leaves_out_columns_of_other_statistics_too() -> None:
    wide = cells_table(plain(), ("mean", "p50", "p90", "p95", "p99"))
    assert "E2E ms\nmean/p50/p90/p95/p99" in wide.optional
    assert wide.optional[0] == "Acc."


@pytest.mark.parametrize(
    "tables",
    [
        lambda run: [categories_table(run)],
        lambda run: [table for topic in breakdown_topics(run) for table in topic.tables],
        lambda run: [factors_table(run.cells), break_even_table(run), *reuse_tables(run.cells)],
        lambda run: [answers_table(run), lossless_table(run), cells_table(run)],
    ],
    ids=["categories", "breakdown", "speed-ups", "answers"],
)
def test_every_row_of_an_invalid_cell_says_invalid(tables: Callable[[RunSummary], list[TextTable]]) -> None:
    for table in tables(invalid(plain())):
        assert all(any("invalid" in text for text in row) for row in table.rows if row[0] != "none"), table.title


BREAKDOWN_WORLD = SyntheticRun(prompts=20, repeats=3, turns=2)
UID = "0190a000-0000-7000-8000-000000000000"


@cache
def summary() -> RunSummary:
    return run_of_world(BREAKDOWN_WORLD)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A results folder with only plan and summary, because no records are needed."""
    root = tmp_path / run_root("local", "small", UID)
    root.mkdir(parents=True)
    (root / "plan.json").write_text(BREAKDOWN_WORLD.plan.to_json())
    (root / SUMMARY).write_text(summary().to_json())
    return tmp_path


@pytest.mark.runs
def test_every_dimension_has_a_row_per_class_and_cell() -> None:
    topics = dict(zip(DIMENSIONS, breakdown_topics(summary()), strict=True))
    baseline, ngram = (cell.breakdown for cell in summary().cells)
    assert baseline is not None
    assert ngram is not None
    assert len(topics["position"].tables[0].rows) == len(ngram.by_position) > 2
    assert len(topics["turn"].tables[0].rows) == 4
    assert len(topics["length"].tables[0].rows) == len(baseline.by_length) + len(ngram.by_length)
    assert len(topics["length-position"].tables[0].rows) == sum(len(group.by_position) for group in ngram.by_length)
    assert [row[0] for row in topics["request"].tables[0].rows] == ["none", "ngram"]
    assert all(len(row) == len(topic.tables[0].columns) for topic in topics.values() for row in topic.tables[0].rows)


@pytest.mark.runs
def test_row_has_the_sample_size_and_the_interval_of_its_class() -> None:
    (table,) = breakdown_topics(summary(), ["position"])
    ngram = present(summary().cells[1].breakdown)
    first = ngram.by_position[0]
    figure = first.figures["acceptance_length_emitted_pooled"]
    expected = f"{figure.value:.2f} [{present(figure.interval).low:.2f}, {present(figure.interval).high:.2f}]"
    assert table.tables[0].rows[0] == ("ngram", "chat", "1", "1–15", f"{first.steps:,}", "120", "20", expected)


@pytest.mark.runs
def test_missing_dimension_is_explained_once_for_its_cells() -> None:
    position, part = breakdown_topics(summary(), ["position", "part"])
    assert [line.split(":")[0] for line in position.lines] == ["Missing for none at 1"]
    assert [line.split(":")[0] for line in part.lines] == ["Missing for none at 1", "Missing for ngram at 1"]
    assert part.tables[0].rows == ()
    (length,) = breakdown_topics(summary(), ["length"])
    assert [line.split(":")[0] for line in length.lines] == ["Classes"]


@pytest.mark.runs
def test_simulated_and_invalid_results_are_marked() -> None:
    topics = breakdown_topics(summary())
    assert "not a measurement" in markdown_report(Report(topics, title="n", simulated=True))
    text = markdown_report(Report(topics, title="n"))
    assert "not a measurement" not in text
    assert [title for title in DIMENSIONS.values() if f"## {title}" not in text] == []
    assert {row[2] for topic in breakdown_topics(invalid(summary())) for row in topic.tables[0].rows} == {"1 invalid"}


@pytest.mark.runs
def test_breakdown_command_shows_the_requested_dimension_and_arm(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "breakdown", str(stored), "--by", "turn", "--arm", "ngram"]) == Exit.OK
    printed = capsys.readouterr().out
    assert "Requests by turn" in printed
    assert not any(word in printed for word in ("none", "position"))
    assert exit_code(["analyze", "breakdown", str(stored), "--output", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert [cell["arm"] for cell in document["cells"]] == ["none", "ngram"]
    assert document["cells"][1]["breakdown"]["byTurn"][1]["label"] == "turn 2"


@pytest.mark.runs
def test_breakdown_command_shows_the_ends_first_and_all_classes_on_request(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = [each.label for each in present(summary().cells[1].breakdown).by_position]
    (table,) = ends_topic(summary()).tables
    assert {row[0] for row in table.rows} == {"ngram"}, "the baseline drafts nothing"
    (position,) = (row for row in table.rows if row[3] == "position")
    assert (position[4].split(":")[0], position[5].split(":")[0]) == (labels[0], labels[-1])
    titles = list(DIMENSIONS.values())
    for flags, shown in (((), []), (("--all",), titles)):
        assert exit_code(["analyze", "breakdown", str(stored), *flags]) == Exit.OK
        printed = capsys.readouterr().out
        assert [title for title in titles if title in printed] == shown


@pytest.mark.runs
def test_unknown_arm_and_summary_without_breakdown_are_rejected(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "breakdown", str(stored), "--arm", "eagle"]) == Exit.BAD_INPUT
    assert "--arm eagle" in capsys.readouterr().err
    kept = next(stored.rglob(SUMMARY))
    older = json.loads(kept.read_text())
    for cell in older["cells"]:
        del cell["breakdown"]
    kept.write_text(json.dumps(older))
    assert exit_code(["analyze", "breakdown", str(stored)]) == Exit.BAD_INPUT
    assert "--recompute" in capsys.readouterr().err


SHEET = TextTable(
    "Speed-up of [bold]a[/bold]",
    ("Arm", "TTFT ms\np50/p99", "Speed-up [95 %]", "Says"),
    [("ngram", "1,033/1,871", "1.234 [0.983, 1.424]", "[red]indistinguishable[/red]"), ("none", "–", "", "baseline")],
    words=("Arm", "Says"),
    styles=("red", ""),
    caption="trust [it]",
)


def render(sheet: TextTable, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(rich_table(sheet, width))
    return console.export_text()


def columns(text: str) -> list[str]:
    """Return the text of each column, joined over wrapped lines."""
    lines = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    return ["".join("".join(parts).split()) for parts in zip(*lines, strict=True)]


@pytest.mark.parametrize("width", range(30, 121, 6))
def test_figures_are_complete_at_every_terminal_width(width: int) -> None:
    expected = ["".join("".join(row[place] for row in SHEET.rows).split()) for place in range(4)]
    assert columns(render(SHEET, width)) == expected


def test_a_title_and_a_caption_have_the_width_of_the_terminal_not_of_the_table() -> None:
    title, caption = "where/the/prompts/are.jsonl: 60 rows", "Not shown in 60 columns: p99."
    lines = render(TextTable(title, ("Arm",), [("ngram",)], words=("Arm",), caption=caption), 60).splitlines()
    assert (lines[0], lines[-1]) == (title, caption)


def test_texts_are_wrapped_before_numbers() -> None:
    assert "1.234 [0.983, 1.424]" in render(SHEET, 70)
    assert "[red]indistinguishable[/red]" not in render(SHEET, 70)


def test_narrow_terminal_drops_optional_columns_in_order_and_names_them() -> None:
    sheet = replace(SHEET, optional=("TTFT ms\np50/p99", "Says"))
    assert fit_columns(sheet, 120)[1] == []
    narrow, dropped = fit_columns(sheet, 70)
    assert dropped == ["TTFT ms\np50/p99"]
    assert narrow.columns == ["Arm", "Speed-up [95 %]", "Says"]
    assert fit_columns(sheet, 40)[1] == ["TTFT ms\np50/p99", "Says"]
    assert "Not shown in 40 columns: TTFT ms p50/p99, Says." in " ".join(render(sheet, 40).split())
    assert [len(columns(render(sheet, width))) for width in (120, 70, 40)] == [4, 3, 2]


def test_names_are_not_parsed_as_terminal_markup() -> None:
    text = render(SHEET, 120)
    for part in ("[bold]a[/bold]", "[red]indistinguishable[/red]", "trust [it]", "[95 %]"):
        assert part in text


def test_markdown_right_aligns_numbers_and_shows_missing_values_as_a_dash() -> None:
    assert markdown_report(Report([Topic("", [SHEET])])).split("\n") == [
        "**Speed-up of [bold]a[/bold]**",
        "",
        "| Arm | TTFT ms p50/p99 | Speed-up [95 %] | Says |",
        "|---|---:|---:|---|",
        "| ngram | 1,033/1,871 | 1.234 [0.983, 1.424] | [red]indistinguishable[/red] |",
        "| none | – | – | baseline |",
        "",
        SHEET.caption,
        "",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("draft_model at `x`*", "draft_model at \\`x\\`\\*"),
        ("_a_ ~~b~~ <script>", "\\_a\\_ \\~\\~b\\~\\~ &lt;script>"),
        ("1.02 [0.98, 1.06]", "1.02 [0.98, 1.06]"),
        ("[l](u) [0.98, 1.06]", "\\[l\\](u) \\[0.98, 1.06\\]"),
        ("[l][r]", "\\[l\\]\\[r\\]"),
        ("a|b\n\n# c", "a\\|b # c"),
    ],
)
def test_text_is_escaped_in_markdown(text: str, expected: str) -> None:
    assert escape_markdown(text) == expected


@given(st.lists(st.text(alphabet="a|\\[]()`*_<> \n", max_size=12), min_size=2, max_size=2))
def test_cell_never_ends_its_row_or_starts_another(cells: list[str]) -> None:
    row = markdown_table(TextTable("", ("a", "b"), [cells, ["1", "2"]], words=()))[-2]
    bare, escape = 0, False
    for letter in row:
        bare += letter == "|" and not escape
        escape = letter == "\\" and not escape
    assert bare == 3
    assert "\n" not in row


@pytest.mark.parametrize(("missing", "text"), [("", "9.00 (no interval)"), ("1 repeat: few", "9.00 (1 repeat: few)")])
def test_a_missing_interval_is_explained_by_the_figure(missing: str, text: str) -> None:
    figure = Figure(value=9.0, unit="tokens/s", definition="d", n=1, missing=missing, source="both")
    assert with_interval(figure) == text
