"""report.html is one self-contained file that starts with the result."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser

import pytest
from markupsafe import escape

from specbench_api.spec.engine import DialectName
from specbench_api.spec.load import Load
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.summary import RunSummary
from specbench_client.report.html import breakable, coded, load_text, render_html
from specbench_client.report.plots.figures import SPEEDUP, draw_figures
from specbench_testing.resources import external_engine
from specbench_testing.summary_variants import invalid
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

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


@pytest.mark.parametrize("made", [plain, nothing])
def test_page_is_well_formed_and_self_contained(made: Callable[[], RunSummary]) -> None:
    page = PageChecker()
    page.feed(page_of(made))
    page.close()
    assert page.open == []
    assert all(link.startswith("#") for link in page.fetched)
    assert re.findall(r"<script|@import|url\((?!#)", page_of(made)) == []


@pytest.mark.usefixtures("undrawn")
def test_external_endpoint_is_shown_by_address_with_an_unknown_drafter() -> None:
    engine = external_engine(DialectName.VLLM, "http://engine:8000")
    text = render_html(WORLD.plan.model_copy(update={"engine": engine}), plain())
    assert "endpoint: <code>http://engine:8000</code>, used as vllm; already running" in text
    assert "not known: the engine was already running" in text
    assert "GPUs requested" not in text


@pytest.mark.usefixtures("undrawn")
def test_categories_of_an_invalid_cell_are_marked_invalid() -> None:
    sections = [
        text[text.index("Results by category</h2>") :].partition("</table>")[0]
        for text in (render_html(WORLD.plan, invalid(plain())), page_of(plain))
    ]
    assert sections[0].count('<tr class="invalid"><td>') == sections[0].count("] invalid</td>") > 0
    assert "invalid" not in sections[1]


@pytest.mark.usefixtures("undrawn")
def test_text_is_escaped_and_a_simulated_run_has_a_banner() -> None:
    nasty = Finding(check="RequestsFailed", severity=Severity.INVALID, message="<script>`run --new`</script>")
    text = render_html(WORLD.plan, plain().model_copy(update={"findings": [nasty], "simulated": True}))
    assert "<p>&lt;script&gt;<code>run --new</code>&lt;/script&gt;</p>" in text
    assert coded("a lone ` <b>") == "a lone ` &lt;b&gt;"
    assert '<p class="banner">Simulated.' in text
    assert '<p class="banner">' not in page_of(plain)


def test_page_starts_with_headline_next_step_speedups_and_table() -> None:
    text = page_of(plain)
    body = text[text.index("<body>") :]
    order = [plain().headline, "Next:", "<svg", "<table>", '<details class="section"']
    places = [body.index(part) for part in order]
    assert places == sorted(places)
    assert body[: body.index('<details class="section"')].count("<figure") == 1
    assert SPEEDUP in body[: body.index("<table>")]


def test_other_sections_are_collapsed_except_findings_of_an_untrustworthy_run() -> None:
    assert '<details class="section" open>' not in page_of(plain)
    text = page_of(nothing)
    assert text.count('<details class="section" open>') == 1
    assert "Findings (1)</h2>" in text[text.index('<details class="section" open>') :][:120]
    assert page_of(plain).count('<details class="section"') == page_of(plain).count("<summary><h2>")


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
                "open loop, Poisson arrivals (seed 0), at 2.5/s; conversations begin for 60 s a point, 1 repeat,"
                " Interleaved, no warm-up"
            ),
        ),
        (
            {"rate": [1], "slots": 8, "arrival": {"process": "Gamma", "burstiness": 0.25, "seed": 7}},
            "open loop, Gamma arrivals of burstiness 0.25 (seed 7), at 1/s; every prompt once a point",
        ),
        (
            {"slots": 8, "arrival": {"process": "Trace", "uri": "trace.csv"}},
            "open loop, arrivals of the trace trace.csv, at its own speed; every prompt once a point",
        ),
    ],
)
def test_page_describes_the_load(load: dict[str, object], expected: str) -> None:
    assert load_text(Load.model_validate(load)).startswith(expected)


@pytest.mark.usefixtures("undrawn")
def test_page_shows_output_options_and_extra_body_escaped() -> None:
    extra = {"spec.workloads[0].output.stream": False, "spec.workloads[0].extraBody": {"top_k": 20, "note": "<b>"}}
    text = render_html(SyntheticRun(prompts=20, edits=extra).plan, plain())
    assert "whole answers (not streamed)" in text
    assert "top_k" in text
    assert "<b>" not in text


def test_page_has_each_figure_with_its_title_and_caption() -> None:
    plots = draw_figures(plain())
    assert page_of(plain).count('<svg role="img"') == len(plots)
    for title, drawing in plots.items():
        assert f"<strong>{escape(title)}</strong>" in page_of(plain)
        assert escape(drawing.caption) in page_of(plain)
    assert "<svg" not in page_of(nothing)


def test_same_summary_gives_the_same_page() -> None:
    assert render_html(WORLD.plan, plain()) == page_of(plain)


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
