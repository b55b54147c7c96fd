"""The HTML report, and its tables of records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from markupsafe import escape

from generators.docstrings import documented
from generators.metrics_page import render_metrics_page
from generators.records_page import DUCKDB, READING, athena_table
from specbench_api.outcome.layout import records_key, run_root
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import DialectName
from specbench_api.spec.load import Load
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.record import AcceptanceSource, Record, RecordPhase
from specbench_client.documents.summary import RunSummary
from specbench_client.report.html import breakable, coded, load_text, render_html
from specbench_client.report.plots.charts import SPEEDUP, draw_figures
from specbench_client.report.text.findings import continue_run, measure_again
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_client.store.records import FILE_SCHEMA
from specbench_client.store.run_uids import new_run_uid
from specbench_client.stored_runs import write_results
from specbench_client.stored_runs.write_results import conclude
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import TimestampSource
from specbench_client.trust.checks.comparison import missing_points
from specbench_client.trust.checks.load import requests_failed
from specbench_testing.local_results import store_results
from specbench_testing.resources import external_engine
from specbench_testing.summary_variants import invalid
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world

WORLD = SyntheticRun(prompts=16, concurrency=(1, 2), drafters=("ngram", "suffix"))
"""Used for tests of the report as a whole."""
VOID = ("meta", "br", "wbr", "path", "use", "rect", "link")


@cache
def plain() -> RunSummary:
    return run_of_world(WORLD)


@cache
def nothing() -> RunSummary:
    """Return the summary of a run without measurements."""
    return run_of_world(WORLD, Corruptions(measured=lambda _: False))


@cache
def page_of(made: Callable[[], RunSummary]) -> str:
    return render_html(WORLD.plan, made())


class PageChecker(HTMLParser):
    """Check that every opened element is closed, and collect the links that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.mark.runs
@pytest.mark.parametrize("made", [plain, nothing])
def test_page_is_well_formed_and_self_contained(made: Callable[[], RunSummary]) -> None:
    page = PageChecker()
    page.feed(page_of(made))
    page.close()
    assert page.open == []
    assert all(link.startswith("#") for link in page.fetched)
    assert re.findall(r"@import|url\((?!#)", page_of(made)) == []


SCRIPT_LINES_MAX = 60


@pytest.mark.runs
def test_only_a_page_with_the_chart_of_speedups_has_a_script_and_it_is_short() -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", page_of(plain), re.DOTALL)
    assert page_of(plain).count("<script") == 1
    assert len(script.strip().splitlines()) <= SCRIPT_LINES_MAX
    assert "<script" not in page_of(nothing)


@pytest.mark.runs
@pytest.mark.usefixtures("undrawn")
def test_external_endpoint_is_shown_by_address_with_an_unknown_drafter() -> None:
    engine = external_engine(DialectName.VLLM, "http://engine:8000")
    text = render_html(WORLD.plan.model_copy(update={"engine": engine}), plain())
    assert "endpoint: <code>http://engine:8000</code>, used as vllm; already running" in text
    assert "not known: the engine was already running" in text
    assert "GPUs requested" not in text


@pytest.mark.runs
@pytest.mark.usefixtures("undrawn")
def test_categories_of_an_invalid_cell_are_marked_invalid() -> None:
    sections = [
        text[text.index("Results by category</h2>") :].partition("</table>")[0]
        for text in (render_html(WORLD.plan, invalid(plain())), render_html(WORLD.plan, plain()))
    ]
    assert sections[0].count('<tr class="invalid"><td>') == sections[0].count(" invalid</td>") > 0
    assert "invalid" not in sections[1]


@pytest.mark.runs
@pytest.mark.usefixtures("undrawn")
def test_text_is_escaped_and_a_simulated_run_has_a_banner() -> None:
    nasty = Finding(check="RequestsFailed", severity=Severity.INVALID, message="<script>`run --new`</script>")
    text = render_html(WORLD.plan, plain().model_copy(update={"findings": [nasty], "simulated": True}))
    assert "<p>&lt;script&gt;<code>run --new</code>&lt;/script&gt;</p>" in text
    assert coded("a lone ` <b>") == "a lone ` &lt;b&gt;"
    assert '<p class="banner">Simulated.' in text
    assert '<p class="banner">' not in render_html(WORLD.plan, plain())


@pytest.mark.runs
def test_page_starts_with_headline_next_step_speedups_and_table() -> None:
    text = page_of(plain)
    body = text[text.index("<body>") :]
    order = [plain().headline, "Next:", "<svg", "<table>", '<details class="section"']
    places = [body.index(part) for part in order]
    assert places == sorted(places)
    assert body[: body.index('<details class="section"')].count("<figure") == 1
    assert SPEEDUP in body[: body.index("<table>")]


@pytest.mark.runs
@pytest.mark.parametrize(
    ("check", "severity", "times"),
    [
        (requests_failed.name, Severity.INVALID, 1),
        (requests_failed.name, Severity.INFO, 1),
        (missing_points.name, Severity.WARNING, 0),
    ],
)
def test_page_has_how_to_measure_again_once_and_never_beside_how_to_continue(
    check: str, severity: Severity, times: int
) -> None:
    found = Finding(check=check, severity=severity, message="m")
    changed = {"findings": [found], "trustworthy": not severity.is_doubt}
    plan = WORLD.plan.model_copy(update={"uid": new_run_uid(1)})
    page = render_html(plan, plain().model_copy(update=changed))
    assert page.count(coded(measure_again(plan))) == times
    assert page.count(coded(continue_run(plan))) == 1 - times


@pytest.mark.runs
@pytest.mark.usefixtures("undrawn")
def test_page_has_what_to_do_once_for_each_check() -> None:
    found = [
        Finding(check="ClientSaturated", severity=severity, message="m")
        for severity in (Severity.INVALID, Severity.INFO)
    ]
    shown = render_html(WORLD.plan, plain().model_copy(update={"findings": found}))
    assert shown.count("What to do:") == 1


def test_other_sections_are_collapsed_except_findings_of_an_untrustworthy_run() -> None:
    assert '<details class="section" open>' not in page_of(plain)
    text = page_of(nothing)
    assert text.count('<details class="section" open>') == 1
    assert "Findings (1)</h2>" in text[text.index('<details class="section" open>') :][:120]
    assert page_of(plain).count('<details class="section"') == page_of(plain).count("<summary><h2>")


@pytest.mark.runs
@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (
            {"concurrency": [8, 1], "requests": 24},
            (
                "closed loop at concurrency 1, 8; 24 conversations a point, 3 repeats, Interleaved,"
                " at least 4 warm-up requests a launch"
            ),
        ),
        (
            {"rate": [2.5], "slots": 8, "durationSeconds": 60, "warmupRequests": 0, "repeats": 1},
            (
                "open loop, Poisson (seed 0), at 2.5/s; conversations begin for 60 s a point, 1 repeat,"
                " Interleaved, no warm-up"
            ),
        ),
        (
            {"rate": [1], "slots": 8, "arrival": {"process": "Gamma", "burstiness": 0.25, "seed": 7}},
            "open loop, Gamma, burstiness 0.25 (seed 7), at 1/s; every prompt once a point",
        ),
        (
            {"slots": 8, "arrival": {"process": "Trace", "uri": "trace.csv"}},
            "open loop, Trace trace.csv, at its own speed; every prompt once a point",
        ),
    ],
)
def test_page_describes_the_load(load: dict[str, object], expected: str) -> None:
    assert load_text(Load.model_validate(load)).startswith(expected)


@pytest.mark.runs
@pytest.mark.usefixtures("undrawn")
def test_page_shows_output_options_and_extra_body_escaped() -> None:
    extra = {"spec.workloads[0].output.stream": False, "spec.workloads[0].extraBody": {"top_k": 20, "note": "<b>"}}
    text = render_html(SyntheticRun(prompts=20, edits=extra).plan, plain())
    assert "whole answers (not streamed)" in text
    assert "top_k" in text
    assert "<b>" not in text


@pytest.mark.runs
def test_page_has_each_figure_with_its_title_and_caption() -> None:
    plots = draw_figures(plain())
    assert page_of(plain).count('<svg role="img"') == len(plots)
    for title, drawing in plots.items():
        assert f"<strong>{escape(title)}</strong>" in page_of(plain)
        assert escape(drawing.caption) in page_of(plain)
    assert "<svg" not in page_of(nothing)


@pytest.mark.runs
def test_same_summary_gives_the_same_page() -> None:
    assert render_html(WORLD.plan, plain()) == page_of(plain)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("1.83 [1.76, 1.90] indistinguishable", ["1.83 [1.76, 1.90]", "indistinguishable"]),
        ("1,514 / 2,227 / 2,311", ["1,514 /", "2,227 /", "2,311"]),
        ("1.83 (1 repeat)", ["1.83", "(1", "repeat)"]),
        ("–", ["–"]),
        ("ConcurrencyNotReached, SmolLM2", ["Concurrency<wbr>Not<wbr>Reached,", "SmolLM2"]),
        ("<b>", ["&lt;b&gt;"]),
    ],
)
def test_cell_breaks_between_numbers_and_words_but_not_inside_an_interval(text: str, lines: list[str]) -> None:
    assert [line.replace("\u00a0", " ") for line in breakable(text).split(" ")] == lines


PAGE = Path(__file__).parents[2] / "docs/reference/records.md"


def test_every_column_is_documented() -> None:
    assert list(documented(Record)) == [field.name for field in fields(Record)]


def test_documentation_of_nullable_columns_explains_null() -> None:
    descriptions = documented(Record)
    unexplained = [
        field.name for field in fields(Record) if "None" in str(field.type) and "ull" not in descriptions[field.name]
    ]
    assert unexplained == []


@pytest.mark.parametrize("kind", [RecordPhase, AcceptanceSource, TimestampSource, ErrorClass])
def test_every_value_of_an_enumeration_is_documented(kind: type[RecordPhase]) -> None:
    assert set(documented(kind)) == {member.name for member in kind}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two concluded runs, records of killed attempts, and the start of a run without a summary."""
    folder = tmp_path_factory.mktemp("records")
    name = "a-name-before-the-others"
    later = SyntheticRun(prompts=40, repeats=1, categories=ONE, concurrency=(2, 10), edits={"metadata.name": name})
    earlier = SyntheticRun(prompts=6, repeats=1, categories=ONE)
    for uid, world in (
        ("0190b000-0000-7000-8000-000000000000", later),
        ("0190a000-0000-7000-8000-000000000000", earlier),
    ):
        plan = store_results(world, folder / "specbench-results", uid)
        store = FolderStore(folder / "specbench-results" / run_root(plan.namespace, plan.name, uid))
        stored = [key for key in store.keys("points/") if "/records/" in key]
        store.put(records_key(plan.points[0].hash, "killed"), store.get(stored[0]) or b"")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(write_results, "render_html", lambda *_: "")
            conclude(plan, store)
    store_results(earlier, folder / "specbench-results", "0190c000-0000-7000-8000-000000000000", points=1)
    return folder


def steady_requests(results: Path, uid: str = "*") -> Counter[str]:
    """Return the number of steady requests of all runs, or of one, by arm, from the points' lists of files."""
    found = Counter[str]()
    for plan in (results / "specbench-results").glob(f"runs/*/*/{uid}/plan.json"):
        points = PointStore(FolderStore(plan.parent))
        planned = Plan.from_json(plan.read_bytes()).points
        manifests = points.manifests([point.hash for point in planned])
        for point in planned:
            for table in points.read_files(point.hash, manifests[point.hash].files) if point.hash in manifests else ():
                phases, errors = table["phase"].to_pylist(), table["error_class"].to_pylist()
                found[point.arm] += [*zip(phases, errors, strict=True)].count(("steady", None))
    return found


def test_example_code_reads_the_steady_records_of_a_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(results)
    assert READING in PAGE.read_text(encoding="utf-8")
    seen: dict[str, object] = {}
    exec(READING, seen)
    records, run = seen["records"], seen["run"]
    assert isinstance(run, Path)
    assert run.name == "0190b000-0000-7000-8000-000000000000"
    assert isinstance(records, pd.DataFrame)
    assert set(records.phase) == {"steady"}
    assert records.request_id.is_unique
    assert len(records) == steady_requests(results, run.name).total()
    assert set(records.arm) == {"none", "ngram"}


def test_duckdb_query_counts_each_record_once_by_run_and_sorts_loads_as_numbers(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results)
    assert DUCKDB in PAGE.read_text(encoding="utf-8")
    rows = duckdb.sql(DUCKDB.rstrip().rstrip(";")).fetchall()
    counted = Counter[str]()
    for _, _, _, arm, requests, _ in rows:
        counted[arm] += requests
    assert counted == steady_requests(results)
    roots = [str(file.parent) for file in Path("specbench-results").glob("runs/*/*/*/plan.json")]
    expected = [
        (root.removeprefix("specbench-results/runs/"), "chat", load, arm)
        for root in sorted(roots)
        for load in (("2", "10") if "before-the-others" in root else ("1",))
        for arm in (("none",) if "0190c" in root else ("ngram", "none"))
    ]
    assert [row[:4] for row in rows] == expected
    assert all(e2e_ms > 0 for *_, e2e_ms in rows)


ATHENA_TYPES = {"string": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_()}


def test_athena_table_has_the_columns_of_the_export() -> None:
    statement = athena_table()
    assert statement in PAGE.read_text(encoding="utf-8")
    declared = dict(re.findall(r"^  `(\w+)` (\S+?),?$", statement, re.MULTILINE))
    assert list(declared) == FILE_SCHEMA.names
    assert [_arrow_type(text) for text in declared.values()] == FILE_SCHEMA.types


def _arrow_type(text: str) -> pa.DataType:
    element = re.fullmatch(r"array<(\w+)>", text)
    return pa.list_(ATHENA_TYPES[element[1]]) if element else ATHENA_TYPES[text]


METRICS_PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def test_metrics_page_is_up_to_date() -> None:
    stale = "docs/reference/metrics.md is stale: run hack/generate"
    assert METRICS_PAGE.read_text(encoding="utf-8") == render_metrics_page(), stale


def test_every_figure_of_a_summary_is_on_the_metrics_page() -> None:
    summary = run_of_world(SyntheticRun(prompts=20, repeats=1))
    by_position = {f"{kind}position_acceptance_rate_{at}" for kind in ("", "conditional_") for at in range(1, 4)}
    exactly = {f"accepted_exactly_{count}" for count in range(4)}
    names = {name for cell in summary.cells for name in cell.figures} - by_position - exactly
    assert all(f"`{name}`" in render_metrics_page() for name in names)
