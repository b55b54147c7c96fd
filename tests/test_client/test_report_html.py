"""report.html is one file that says first what was found, and fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser

import pytest

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.summary import RunSummary
from specbench_api.spec.engine import DialectName, Engine, EngineKind
from specbench_api.spec.load import Load
from specbench_client.report import html
from specbench_client.report.html import breakable, coded, load_text, render_html
from specbench_client.report.plots.page import SECTIONS, Plot, png, png_title, svgs
from specbench_client.report.plots.styles import PAGE
from specbench_testing.summary_variants import SMALL_WORLDS_LACK, invalid
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")

WORLD = SyntheticRun(prompts=16, concurrency=(1, 2), drafters=("ngram", "suffix"))
SMALL = SyntheticRun(prompts=16)
"""Of what is said of a run as a whole."""
OPEN_WORLD = SyntheticRun(prompts=20, rate=(4, 0.5), repeats=1)
VOID = ("meta", "br", "wbr", "path", "use", "rect", "link")


@cache
def plain() -> RunSummary:
    """An ordinary run."""
    return run_of_world(WORLD)


@cache
def simulated() -> RunSummary:
    """One of the simulator."""
    return run_of_world(SMALL, Corruptions(simulated=True))


@cache
def opened() -> RunSummary:
    """One of open loops."""
    return run_of_world(OPEN_WORLD)


@cache
def nothing() -> RunSummary:
    """One of which nothing was measured."""
    return run_of_world(WORLD, Corruptions(measured=lambda _: False))


@cache
def bare() -> RunSummary:
    """One whose engine tells nothing of its drafting."""
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
def plots_of(made: Callable[[], RunSummary]) -> list[Plot]:
    """Its plots, which take a second to draw."""
    return svgs(made())


@cache
def page_of(made: Callable[[], RunSummary]) -> str:
    """Its page with its plots; that a page draws them itself, `test_the_same_summary_gives_the_same_page` shows."""
    with pytest.MonkeyPatch.context() as drawn:
        drawn.setattr(html, "svgs", lambda _: plots_of(made))
        return render_html(WORLD.plan, made())


class Nesting(HTMLParser):
    """Every element that is opened is closed, and nothing is fetched."""

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
def test_the_page_is_whole_and_self_contained(made: Callable[[], RunSummary]) -> None:
    page = Nesting()
    page.feed(page_of(made))
    page.close()
    assert page.open == []
    assert all(link.startswith("#") for link in page.fetched)


def test_the_steady_window_of_every_point_is_on_the_page() -> None:
    text = page_of(plain)
    section = text[text.index("Steady windows</h2>") : text.index("Definitions</h2>")]
    assert section.count("<tr><td>") == len(WORLD.plan.points)
    (window, *_) = plain().cells[0].windows
    assert window is not None
    assert f"{window.start_ns / 1e9:.3f}</td>" in section
    assert f"{window.share:.0%}</td>" in section


@pytest.mark.usefixtures("undrawn")
def test_an_endpoint_that_ran_already_is_told_by_its_address_and_its_drafter_is_not_known() -> None:
    engine = Engine(kind=EngineKind.EXTERNAL, endpoint="http://engine:8000", dialect=DialectName.VLLM)
    world = SyntheticRun(prompts=20, drafters=(), repeats=1)
    text = render_html(world.plan.model_copy(update={"engine": engine}), run_of_world(world))
    assert "<code>http://engine:8000</code>, which was already running, used as vllm" in text
    assert "not known: the engine was already running" in text
    assert "GPUs requested" not in text
    assert "1 repeat, " in text


@pytest.mark.usefixtures("undrawn")
def test_a_category_of_an_invalid_cell_is_marked_as_such() -> None:
    text = render_html(WORLD.plan, invalid(plain()))
    section = text[text.index("Results by category</h2>") : text.index("Configuration</h2>")]
    assert section.count('<tr class="invalid"><td>') == section.count("] invalid</td>") > 0
    honest = page_of(plain)
    assert "invalid" not in honest[honest.index("Results by category</h2>") : honest.index("Configuration</h2>")]


def test_there_is_no_script_and_no_style_from_elsewhere() -> None:
    text = page_of(plain)
    assert "<script" not in text
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_the_first_screen_is_the_headline_the_next_step_the_speed_ups_and_the_table() -> None:
    text = page_of(plain)
    body = text[text.index("<body>") :]
    order = [plain().headline, "Next:", "<svg", "<table>", '<details class="section"']
    places = [body.index(part) for part in order]
    assert places == sorted(places)
    assert body[: body.index('<details class="section"')].count("<figure") == 1
    assert SECTIONS[0].title in body[: body.index("<table>")]


def test_everything_else_is_folded_under_a_title_but_the_findings_of_an_untrustworthy_run() -> None:
    assert '<details class="section" open>' not in page_of(plain)
    text = page_of(nothing)
    assert text.count('<details class="section" open>') == 1
    assert "Findings (1)</h2>" in text[text.index('<details class="section" open>') :][:120]
    assert page_of(plain).count('<details class="section"') == page_of(plain).count("<summary><h2>")


def test_it_reads_in_light_and_dark() -> None:
    text = page_of(plain)
    assert "prefers-color-scheme: dark" in text
    assert PAGE.ink not in text
    assert PAGE.paper not in text
    assert "currentColor" in text
    for plot in plots_of(plain):
        for svg in plot.panels:
            dark = re.findall(r"(?:stroke|fill): #(?:000000|ffffff)", svg)
            assert dark == [], "black or white ink vanishes in one of the two"


def test_every_arm_has_its_arguments_and_every_figure_is_named_with_a_link_to_its_definition() -> None:
    text = page_of(plain)
    for arm in WORLD.plan.arms:
        assert f"<th>Arm {arm.name}</th>" in text
    assert "--drafter" in text
    for name in ("speedup", "ttft_ms_p50", "acceptance_length_emitted_pooled"):
        assert f"<code>{name}</code>" in text
    assert "<code>docs/reference/metrics.md</code>" in text


@pytest.mark.parametrize(
    ("load", "says"),
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
def test_the_page_says_how_the_engine_was_driven(load: dict[str, object], says: str) -> None:
    assert load_text(Load.model_validate(load)).startswith(says)


@pytest.mark.usefixtures("undrawn")
def test_the_page_says_what_every_request_held_besides() -> None:
    extra = {"spec.workloads[0].output.stream": False, "spec.workloads[0].extraBody": {"top_k": 20, "note": "<b>"}}
    text = render_html(SyntheticRun(prompts=20, edits=extra).plan, plain())
    assert "whole answers (not streamed)" in text
    assert "top_k" in text
    assert "<b>" not in text


def test_plots_of_an_open_loop_stand_over_its_rates() -> None:
    (first,) = plots_of(opened)[0].panels
    assert "conversations a second" in first
    assert "0.5/s" in first
    assert "concurrency" in plots_of(plain)[0].panels[0]


def test_a_simulation_has_a_banner_and_its_plots_say_so() -> None:
    text = page_of(simulated)
    assert '<p class="banner">Simulated.' in text
    assert all("simulated, not a measurement" in plot.title for plot in plots_of(simulated))
    assert '<p class="banner">' not in page_of(plain)


@pytest.mark.usefixtures("undrawn")
def test_what_engines_say_is_escaped() -> None:
    nasty = Finding(check="RequestsFailed", severity=Severity.INVALID, message="<script>alert(1)</script>")
    text = render_html(WORLD.plan, plain().model_copy(update={"findings": [nasty]}))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_a_plot_without_data_is_left_out() -> None:
    told = [section.title for section in SECTIONS if section.title not in SMALL_WORLDS_LACK]
    assert [plot.title for plot in plots_of(plain)] == told
    assert plots_of(nothing) == []
    assert not any("Acceptance" in plot.title for plot in plots_of(bare))


def test_the_same_summary_gives_the_same_page() -> None:
    assert render_html(WORLD.plan, plain()) == page_of(plain)


@pytest.mark.parametrize("made", [plain, simulated, nothing])
def test_the_png_is_a_png(made: Callable[[], RunSummary]) -> None:
    summary = made()
    assert png(summary).startswith(b"\x89PNG\r\n")


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
def test_a_cell_breaks_between_numbers_and_words_and_never_inside_an_interval(text: str, lines: list[str]) -> None:
    assert [line.replace("\u00a0", " ") for line in breakable(text).split(" ")] == lines


def test_what_is_to_be_typed_stands_as_code_and_is_no_markup() -> None:
    assert coded("say `run --new`, <b>") == "say <code>run --new</code>, &lt;b&gt;"
    assert coded("a lone ` <b>") == "a lone ` &lt;b&gt;"
    told = "mend it: `specbench run --new`"
    finding = Finding(check="BaselineInvalid", severity=Severity.INVALID, message=told)
    page = render_html(WORLD.plan, plain().model_copy(update={"findings": [finding]}))
    assert "<p>mend it: <code>specbench run --new</code></p>" in page
    assert "`" not in re.sub(r"<(style|svg).*?</\1>", "", page, flags=re.DOTALL)


def test_the_png_says_what_hollow_marks_are_where_there_are_any() -> None:
    assert png_title(invalid(plain())).endswith("\nHollow: a check made it invalid.")
    assert "Hollow" not in png_title(plain())
