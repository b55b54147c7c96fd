"""report.html in headless Chromium: no sideways scrolling, overlaps, faint text, hidden print content or requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.summary import RunSummary
from specbench_client.report.html import render_html
from specbench_testing.browser import CHROMIUM, Browser
from specbench_testing.summary_variants import invalid, many_cells, with_long_recommendation, without_baseline
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"), pytest.mark.long]

LOOKS = (Path(__file__).parents[1] / "support/specbench_testing/looks.js").read_text(encoding="utf-8")
DESK, TELEPHONE = {"width": 1280}, {"width": 400}
PAPER = {"width": 1039, "media": "print"}
"""A4 landscape without the page's margins: 275 mm at 96 pixels per inch."""
VIEWS: Mapping[str, dict[str, Any]] = {
    "desk, light": {**DESK, "scheme": "light"},
    "desk, dark": {**DESK, "scheme": "dark"},
    "telephone, light": {**TELEPHONE, "scheme": "light"},
    "telephone, dark": {**TELEPHONE, "scheme": "dark"},
    "paper": {**PAPER, "scheme": "dark"},
}
LONG = "a-drafter-with-a-long-name-of-32"
"""The maximum length of a name."""
WORKLOADS = [{"name": name, "dataset": {"source": "jsonl", "uri": f"{name}.jsonl"}} for name in ("qualitative", "b")]
WORLDS = {
    "plain": SyntheticRun(prompts=20, concurrency=(1, 2), drafters=("ngram", "suffix")),
    "long": SyntheticRun(
        prompts=12,
        drafters=(LONG,),
        categories=("a category whose name is quite as long as that of any drafter may be", None),
        step_ms={"none": 900.0, LONG: 1700.0},  # latencies with six digits
        edits={"spec.workloads": WORKLOADS},
    ),
    "open": SyntheticRun(prompts=20, rate=(4, 0.5), repeats=1),
}


@dataclass(frozen=True)
class Seen:
    """Observations of one page: per view, and over all views."""

    views: Mapping[str, dict[str, Any]]
    requests: list[str]
    console_messages: list[str]
    paper: bytes


def summaries() -> dict[str, tuple[SyntheticRun, RunSummary]]:
    plain, summary = WORLDS["plain"], run_of_world(WORLDS["plain"])
    return {
        "plain": (plain, run_of_world(plain, Corruptions(simulated=True))),
        "long names": (WORLDS["long"], run_of_world(WORLDS["long"])),
        "open loop": (WORLDS["open"], run_of_world(WORLDS["open"])),
        "seven arms at two loads": (plain, many_cells(summary, arms=7, loads=2)),
        "all invalid": (plain, with_long_recommendation(invalid(summary))),
        "no baseline": (plain, without_baseline(summary)),
        "eight arms at twelve loads": (plain, many_cells(summary, arms=8, loads=12)),
        "nothing measured": (plain, run_of_world(plain, Corruptions(measured=lambda _: False))),
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    return asyncio.run(_observe_pages(tmp_path_factory.mktemp("browser")))


async def _observe_pages(folder: Path) -> dict[str, Seen]:
    found = {}
    async with Browser(folder / "profile") as browser:
        pages = {name: render_html(world.plan, summary) for name, (world, summary) in summaries().items()}
        for name, text in pages.items():
            page = folder / f"{name}.html"
            page.write_text(text, encoding="utf-8")
            async with browser.tab() as tab:
                await tab.open(page)
                views = {}
                for view, settings in VIEWS.items():
                    await tab.look(**settings)
                    views[view] = await tab.value(LOOKS)
                found[name] = Seen(views, tab.requested, tab.errors, await tab.paper())
    return found


def violations(seen: dict[str, Seen], what: str) -> dict[str, Any]:
    """Return one kind of observation for every page and view that has it."""
    return {
        f"{name}, {view}": looks[what]
        for name, page in seen.items()
        for view, looks in page.views.items()
        if looks[what]
    }


def test_tables_and_plots_do_not_scroll_on_a_desk_or_get_cut_on_paper(seen: dict[str, Seen]) -> None:
    scrolling = violations(seen, "scrolling")
    assert {view: found for view, found in scrolling.items() if "telephone" not in view} == {}


def test_printed_page_shows_collapsed_sections(seen: dict[str, Seen]) -> None:
    folded = violations(seen, "folded")
    assert {view for view in folded if "paper" in view} == set()
    assert "plain, desk, light" in folded
    assert all(page.paper.startswith(b"%PDF-") for page in seen.values())


@pytest.mark.parametrize("what", ["sideways", "tall", "faint", "overlapping", "outside", "unnamed", "ids"])
def test_no_view_of_a_page_has_a_flaw(seen: dict[str, Seen], what: str) -> None:
    """Sideways scrolling, tall rows, a contrast below 4.5 : 1 (WCAG 2), labels over or outside plots, no name or id."""
    assert violations(seen, what) == {}


def test_page_requests_only_itself_and_has_its_plots(seen: dict[str, Seen]) -> None:
    for name, page in seen.items():
        assert [address.rpartition("/")[2].replace("%20", " ") for address in page.requests] == [f"{name}.html"]
        assert page.console_messages == []
    assert [seen[name].views["paper"]["plots"] for name in ("plain", "nothing measured")] == [6, 0]
