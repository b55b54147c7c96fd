"""report.html is one self-contained file that starts with the result."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser

import pytest
from markupsafe import escape

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.summary import RunSummary
from specbench_api.spec.engine import DialectName, Endpoint, Engine, EngineKind
from specbench_api.spec.load import Load
from specbench_client.report import html
from specbench_client.report.html import breakable, coded, load_text, render_html
from specbench_client.report.plots.figures import SPEEDUP, draw_figures
from specbench_client.report.plots.style import Drawing
from specbench_testing.summary_variants import invalid
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=16, concurrency=(1, 2), drafters=("ngram", "suffix"))
SMALL = SyntheticRun(prompts=16)
"""Used for tests of the report as a whole."""
OPEN_WORLD = SyntheticRun(prompts=20, rate=(4, 0.5), repeats=1)
VOID = ("meta", "br", "wbr", "path", "use", "rect", "link")


@cache
def plain() -> RunSummary:
    """Return the summary of an ordinary run."""
    return run_of_world(WORLD)


@cache
def simulated() -> RunSummary:
    """Return the summary of a simulated run."""
    return run_of_world(SMALL, Corruptions(simulated=True))


@cache
def opened() -> RunSummary:
    """Return the summary of an open-loop run."""
    return run_of_world(OPEN_WORLD)


@cache
def nothing() -> RunSummary:
    """Return the summary of a run without measurements."""
    return run_of_world(WORLD, Corruptions(measured=lambda _: False))


@cache
def bare() -> RunSummary:
    """Return the summary of a run whose engine reports nothing about drafting."""
    return run_of_world(
        SMALL,
        Corruptions(
            records=lambda _, frame: frame.assign(
                steps=None, step_accepted=None, drafted_tokens=None, accepted_tokens=None
            ),
            counters=lambda *_: None,
        ),
    )


@cache
def plots_of(made: Callable[[], RunSummary]) -> dict[str, Drawing]:
    """Return the summary's figures, cached because drawing takes a second."""
    return draw_figures(made())


@cache
def page_of(made: Callable[[], RunSummary]) -> str:
    """Return the page with cached plots; `test_same_summary_gives_the_same_page` draws them uncached."""
    with pytest.MonkeyPatch.context() as drawn:
        drawn.setattr(html, "draw_figures", lambda _: plots_of(made))
        return render_html(WORLD.plan, made())


class PageChecker(HTMLParser):
    """Check that every opened element is closed, and collect the links that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("made", [plain, simulated, opened, nothing, bare])
def test_page_is_well_formed_and_self_contained(made: Callable[[], RunSummary]) -> None:
    page = PageChecker()
    page.feed(page_of(made))
    page.close()
    assert page.open == []
    assert all(link.startswith("#") for link in page.fetched)


@pytest.mark.usefixtures("undrawn")
def test_external_endpoint_is_shown_by_address_with_an_unknown_drafter() -> None:
    engine = Engine(
        kind=EngineKind.EXTERNAL,
        endpoints=[Endpoint(name="endpoint", url="http://engine:8000")],
        dialect=DialectName.VLLM,
    )
    world = SyntheticRun(prompts=20, drafters=(), repeats=1)
    text = render_html(world.plan.model_copy(update={"engine": engine}), run_of_world(world))
    assert "endpoint: <code>http://engine:8000</code>, used as vllm; already running" in text
    assert "not known: the engine was already running" in text
    assert "GPUs requested" not in text
    assert "1 repeat, " in text


@pytest.mark.usefixtures("undrawn")
def test_categories_of_an_invalid_cell_are_marked_invalid() -> None:
    text = render_html(WORLD.plan, invalid(plain()))
    section = text[text.index("Results by category</h2>") : text.index("Configuration</h2>")]
    assert section.count('<tr class="invalid"><td>') == section.count("] invalid</td>") > 0
    page = page_of(plain)
    assert "invalid" not in page[page.index("Results by category</h2>") : page.index("Configuration</h2>")]


def test_page_has_no_script_and_no_external_style() -> None:
    text = page_of(plain)
    assert "<script" not in text
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


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


def test_page_supports_light_and_dark_themes() -> None:
    text = page_of(plain)
    assert "prefers-color-scheme: dark" in text
    assert "currentColor" in text


def test_page_lists_arguments_of_every_arm_and_names_of_figures() -> None:
    text = page_of(plain)
    for arm in WORLD.plan.arms:
        assert f"<th>Arm {arm.name}</th>" in text
    assert "--drafter" in text
    for name in ("speedup", "ttft_ms_p50", "acceptance_length_emitted_pooled"):
        assert f"<code>{name}</code>" in text
    assert "<code>docs/reference/metrics.md</code>" in text


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


def test_simulated_run_has_a_banner() -> None:
    assert '<p class="banner">Simulated.' in page_of(simulated)
    assert '<p class="banner">' not in page_of(plain)


@pytest.mark.usefixtures("undrawn")
def test_text_from_engines_is_escaped() -> None:
    nasty = Finding(check="RequestsFailed", severity=Severity.INVALID, message="<script>alert(1)</script>")
    text = render_html(WORLD.plan, plain().model_copy(update={"findings": [nasty]}))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_page_has_each_figure_with_its_title_and_caption() -> None:
    text = page_of(plain)
    assert text.count('<svg role="img"') == len(plots_of(plain))
    for title, drawing in plots_of(plain).items():
        assert f"<strong>{escape(title)}</strong>" in text
        assert escape(drawing.caption) in text
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


def test_backticks_become_escaped_code_elements() -> None:
    assert coded("say `run --new`, <b>") == "say <code>run --new</code>, &lt;b&gt;"
    assert coded("a lone ` <b>") == "a lone ` &lt;b&gt;"
    message = "mend it: `specbench run --new`"
    finding = Finding(check="BaselineInvalid", severity=Severity.INVALID, message=message)
    page = render_html(WORLD.plan, plain().model_copy(update={"findings": [finding]}))
    assert "<p>mend it: <code>specbench run --new</code></p>" in page
    assert "`" not in re.sub(r"<(style|svg).*?</\1>", "", page, flags=re.DOTALL)
