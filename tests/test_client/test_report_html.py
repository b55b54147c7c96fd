"""report.html is one file that says first what was found, and fetches nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.summary import RunSummary
from specbench_client.report.html import render_html
from specbench_client.report.plots import INK, png, svgs
from specbench_testing.records import Lies, World, run_of_world

WORLD = World(prompts=20, concurrency=(1, 2), drafters=("ngram", "suffix"))
SUMMARY = run_of_world(WORLD)
SIMULATED = run_of_world(WORLD, Lies(simulated=True))
NOTHING = run_of_world(WORLD, Lies(measured=lambda _: False))
BARE = run_of_world(
    WORLD,
    Lies(
        records=lambda _, frame: frame.assign(
            steps=None, step_accepted=None, drafted_tokens=None, accepted_tokens=None
        ),
        counters=lambda *_: None,
    ),
)
VOID = ("meta", "br", "path", "use", "rect", "link")


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


@pytest.mark.parametrize("summary", [SUMMARY, SIMULATED, NOTHING, BARE])
def test_the_page_is_whole_and_self_contained(summary: RunSummary) -> None:
    page = Nesting()
    page.feed(render_html(WORLD.plan, summary))
    page.close()
    assert page.open == []
    assert all(link.startswith("#") for link in page.fetched)


def test_there_is_no_script_and_no_style_from_elsewhere() -> None:
    text = render_html(WORLD.plan, SUMMARY)
    assert "<script" not in text
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_the_verdict_stands_before_the_table_and_the_table_before_the_plots() -> None:
    text = render_html(WORLD.plan, SUMMARY)
    body = text[text.index("<body>") :]
    assert body.index(SUMMARY.verdict) < body.index("<table>") < body.index("<svg") < body.index("Findings</h2>")


def test_it_reads_in_light_and_dark() -> None:
    text = render_html(WORLD.plan, SUMMARY)
    assert "prefers-color-scheme: dark" in text
    assert INK not in text
    assert "currentColor" in text
    for plot in svgs(SUMMARY):
        dark = re.findall(r"(?:stroke|fill): #(?:000000|ffffff)", plot.svg)
        assert dark == [], "black or white ink vanishes in one of the two"


def test_every_arm_stands_with_its_arguments_and_every_figure_with_its_definition() -> None:
    text = render_html(WORLD.plan, SUMMARY)
    for arm in WORLD.plan.arms:
        assert f"<th>Arm {arm.name}</th>" in text
    assert "--drafter" in text
    for name in ("speedup", "ttft_ms_p50", "acceptance_length_emitted_pooled"):
        assert f"<code>{name}</code>" in text


def test_a_simulation_has_a_banner_and_its_plots_say_so() -> None:
    text = render_html(WORLD.plan, SIMULATED)
    assert '<p class="banner">Simulated.' in text
    assert all("simulated, not a measurement" in plot.title for plot in svgs(SIMULATED))
    assert '<p class="banner">' not in render_html(WORLD.plan, SUMMARY)


def test_what_engines_say_is_escaped() -> None:
    nasty = Finding(check="RequestsFailed", severity=Severity.INVALID, message="<script>alert(1)</script>")
    text = render_html(WORLD.plan, SUMMARY.model_copy(update={"findings": [nasty]}))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_a_plot_without_data_is_left_out() -> None:
    assert len(svgs(SUMMARY)) == 3
    assert svgs(NOTHING) == []
    assert not any("Acceptance" in plot.title for plot in svgs(BARE))


def test_the_same_summary_gives_the_same_page() -> None:
    assert render_html(WORLD.plan, SUMMARY) == render_html(WORLD.plan, SUMMARY)


@pytest.mark.parametrize("summary", [SUMMARY, SIMULATED, NOTHING])
def test_the_png_is_a_png(summary: RunSummary) -> None:
    assert png(summary).startswith(b"\x89PNG\r\n")
