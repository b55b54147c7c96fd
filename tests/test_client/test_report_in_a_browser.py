"""report.html in a real headless Chromium: nothing scrolls sideways, overlaps, is faint, folded on paper or fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specbench_api.outcome.summary import RunSummary
from specbench_client.analysis.what_if.answers import DraftedAnswer, PositionAcceptance, join_answers, shared_answers
from specbench_client.analysis.what_if.cost_models import PUBLISHED_H100
from specbench_client.analysis.what_if.oracle import NamedDrafter, OracleSubject, oracle_report
from specbench_client.analysis.what_if.policies import Pricing
from specbench_client.report.html import render_html, render_plots
from specbench_client.report.plots.what_if import oracle_plots
from specbench_testing.browser import CHROMIUM, Browser
from specbench_testing.summary_variants import invalid, many_cells, mapped, with_long_recommendation, without_baseline
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"), pytest.mark.process]

LOOKS = (Path(__file__).parents[1] / "support/specbench_testing/looks.js").read_text(encoding="utf-8")
DESK, TELEPHONE = {"width": 1280}, {"width": 400}
PAPER = {"width": 1039, "media": "print"}
"""A4 across, without the margins that the page asks for: 275 mm at 96 pixels an inch."""
WAYS: Mapping[str, dict[str, Any]] = {
    "desk, light": {**DESK, "scheme": "light"},
    "desk, dark": {**DESK, "scheme": "dark"},
    "telephone, light": {**TELEPHONE, "scheme": "light"},
    "telephone, dark": {**TELEPHONE, "scheme": "dark"},
    "paper": {**PAPER, "scheme": "dark"},
}
LONG = "a-drafter-with-a-long-name-of-32"
"""As long as a name may be."""
WORKLOADS = [{"name": name, "dataset": {"source": "jsonl", "uri": f"{name}.jsonl"}} for name in ("qualitative", "b")]
WORLDS = {
    "plain": SyntheticRun(prompts=20, concurrency=(1, 2), drafters=("ngram", "suffix")),
    "long": SyntheticRun(
        prompts=12,
        drafters=(LONG,),
        categories=("a category whose name is quite as long as that of any drafter may be", None),
        step_ms={"none": 900.0, LONG: 1700.0},  # latencies of six digits
        edits={"spec.workloads": WORKLOADS},
    ),
    "open": SyntheticRun(prompts=20, rate=(4, 0.5), repeats=1),
    "fitted": SyntheticRun(prompts=60, concurrency=(1, 2, 4), drafters=("ngram", "suffix"), tokens=(20, 300)),
}


@dataclass(frozen=True)
class Seen:
    """What was seen of one page: by way of looking, and of all of them together."""

    ways: Mapping[str, dict[str, Any]]
    asked: list[str]
    complained: list[str]
    paper: bytes


def summaries() -> dict[str, tuple[SyntheticRun, RunSummary]]:
    """Runs of every shape."""
    plain, summary = WORLDS["plain"], run_of_world(WORLDS["plain"])
    return {
        "plain": (plain, run_of_world(plain, Corruptions(simulated=True))),
        "long names": (WORLDS["long"], run_of_world(WORLDS["long"])),
        "open loop": (WORLDS["open"], run_of_world(WORLDS["open"])),
        "seven arms at two loads": (plain, many_cells(summary, arms=7, loads=2)),
        "all invalid": (plain, with_long_recommendation(invalid(summary))),
        "no baseline": (plain, without_baseline(summary)),
        "maps and parts": (WORLDS["fitted"], mapped(WORLDS["fitted"], run_of_world(WORLDS["fitted"]))),
        "nothing measured": (plain, run_of_world(plain, Corruptions(measured=lambda _: False))),
    }


def oracle_page() -> str:
    """What `specbench analyze oracle --with … --plot` draws of two drafters, of answers from short to long."""
    chance = np.random.default_rng(0)
    sides = [
        {
            (f"p{number}", 0, 0): DraftedAnswer(
                f"p{number}", None, 0, 20, PositionAcceptance(chance.integers(0, most, 20 + 12 * number))
            )
            for number in range(30)
        }
        for most in (3, 6)
    ]
    cost = PUBLISHED_H100
    ngram, eagle = (
        NamedDrafter(name, join_answers(side.values()), cost.drafters[name])
        for name, side in zip(("ngram", "eagle"), sides, strict=True)
    )
    subject = OracleSubject("trace.jsonl", eagle, ngram, shared_answers(*sides, unchecked=True), simulated=True)
    report = oracle_report(subject, (1, 2, 3, 5, 7, 10), Pricing((1, 8, 32, 128), cost))
    return render_plots(oracle_plots(report, subject))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Every page, looked at in every way, by one browser."""
    return asyncio.run(_look(tmp_path_factory.mktemp("browser")))


async def _look(folder: Path) -> dict[str, Seen]:
    found = {}
    async with Browser(folder / "profile") as browser:
        pages = {name: render_html(world.plan, summary) for name, (world, summary) in summaries().items()}
        for name, text in {**pages, "plots alone": oracle_page()}.items():
            page = folder / f"{name}.html"
            page.write_text(text, encoding="utf-8")
            async with browser.tab() as tab:
                await tab.open(page)
                ways = {}
                for way, how in WAYS.items():
                    await tab.look(**how)
                    ways[way] = await tab.value(LOOKS)
                found[name] = Seen(ways, tab.requested, tab.errors, await tab.paper())
    return found


def each(seen: dict[str, Seen], what: str) -> dict[str, Any]:
    """One observation of every page in every way, where it is not as it should be."""
    return {
        f"{name}, {way}": looks[what] for name, page in seen.items() for way, looks in page.ways.items() if looks[what]
    }


def test_a_page_asks_for_itself_and_nothing_else(seen: dict[str, Seen]) -> None:
    for name, page in seen.items():
        assert [address.rpartition("/")[2].replace("%20", " ") for address in page.asked] == [f"{name}.html"]


def test_the_console_stays_empty(seen: dict[str, Seen]) -> None:
    assert {name: page.complained for name, page in seen.items() if page.complained} == {}


def test_no_page_scrolls_sideways(seen: dict[str, Seen]) -> None:
    assert each(seen, "sideways") == {}


def test_no_table_and_no_plot_scrolls_at_a_desk_or_is_cut_off_on_paper(seen: dict[str, Seen]) -> None:
    scrolling = each(seen, "scrolling")
    assert {where: what for where, what in scrolling.items() if "telephone" not in where} == {}


def test_no_row_is_so_tall_that_a_telephone_shows_nothing_but_its_first_columns(seen: dict[str, Seen]) -> None:
    assert each(seen, "tall") == {}


def test_letters_are_read_against_what_lies_behind_them(seen: dict[str, Seen]) -> None:
    """A contrast of 4.5 : 1, which WCAG 2 asks for text of this size."""
    assert each(seen, "faint") == {}


def test_labels_of_plots_do_not_overlap_nor_leave_the_plot(seen: dict[str, Seen]) -> None:
    assert each(seen, "overlapping") == {}
    assert each(seen, "outside") == {}


def test_paper_shows_what_a_screen_folds(seen: dict[str, Seen]) -> None:
    folded = each(seen, "folded")
    assert {where for where in folded if "paper" in where} == set()
    assert "plain, desk, light" in folded
    assert all(page.paper.startswith(b"%PDF-") for page in seen.values())


def test_every_plot_has_a_name_and_no_name_within_is_there_twice(seen: dict[str, Seen]) -> None:
    assert each(seen, "unnamed") == {}
    assert each(seen, "ids") == {}
    assert seen["plain"].ways["paper"]["plots"] > 8
    assert seen["maps and parts"].ways["paper"]["plots"] > seen["plain"].ways["paper"]["plots"] + 2
    assert seen["nothing measured"].ways["paper"]["plots"] == 0
