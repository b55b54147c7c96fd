"""Reuse of the prompt cache, paired: hit shares, computed tokens, and the check that finds lost reuse."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_client.documents.breakdown import Reuse, ReuseMissing
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.documents.finding import Severity
from specbench_client.documents.minimum_samples import too_few_repeats
from specbench_client.documents.summary import Cell, RunSummary
from specbench_client.report.html import render_html
from specbench_client.report.text.breakdown import REUSE_MISSING, REUSE_SAYS, reuse_lines, reuse_tables
from specbench_client.report.text.run_report import markdown
from specbench_client.report.text.text_table import with_interval
from specbench_client.trust.checks.prompts import reuse_lost
from specbench_testing.present import present
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

AS_SERVED = {"spec.promptCache": "AsServed"}
KEPT = {"none": 0.8, "ngram": 0.8}
EQUAL = SyntheticRun(prompts=30, categories=ONE, edits=AS_SERVED, cached=KEPT)
LOST = replace(EQUAL, cached={"none": 0.8, "ngram": 0.2})


@pytest.fixture(scope="module")
def lost_run() -> RunSummary:
    return run_of_world(LOST)


def drafting_cell(summary: RunSummary) -> Cell:
    (cell,) = (cell for cell in summary.cells if cell.arm == "ngram")
    return cell


def reuse_of(summary: RunSummary) -> Reuse:
    return present(drafting_cell(summary).reuse)


def lost(summary: RunSummary) -> list[tuple[str | None, Severity]]:
    return [(each.arm, each.severity) for each in summary.findings if each.check == "ReuseLost"]


def test_lost_reuse_is_a_fault_with_both_hit_shares_and_the_computed_tokens(lost_run: RunSummary) -> None:
    assert lost(lost_run) == [("ngram", Severity.FAULT)]
    (message,) = (each.message for each in lost_run.findings if each.check == "ReuseLost")
    assert message.startswith("20% of the prompt tokens came from the prompt cache, but 80% of the same requests'")
    assert message.endswith("the arm computed 3.98 times as many")


@pytest.mark.parametrize(
    "world",
    [EQUAL, replace(EQUAL, cached={"none": 0.2, "ngram": 0.8}), replace(EQUAL, cached={"none": 0.8, "ngram": 0.795})],
    ids=["equal", "more reuse", "within the threshold"],
)
def test_equal_or_more_reuse_is_not_reported(world: SyntheticRun) -> None:
    assert lost(run_of_world(world)) == []


def ratio(low: float, value: float, high: float) -> Figure:
    bounds = FigureInterval(low=low, high=high, method="m")
    return Figure(value=value, unit="ratio", definition="d", n=20, interval=bounds, source="both")


@pytest.mark.parametrize(
    ("computed", "kept", "reported"),
    [
        (ratio(1.06, 1.2, 1.4), ratio(0.9, 1.0, 1.1), True),
        (ratio(1.04, 1.2, 1.4), ratio(0.9, 0.92, 0.94), True),
        (ratio(1.04, 1.2, 1.4), ratio(0.9, 0.94, 0.96), False),
        (ratio(1.04, 1.2, 1.4), None, False),
        (ratio(1.00, 1.04, 1.08), ratio(0.1, 0.2, 0.3), False),
    ],
    ids=["more computed", "less kept", "neither", "no hits", "hardly more computed"],
)
def test_lost_reuse_shows_in_the_interval_of_computed_or_of_kept_tokens(
    computed: Figure, kept: Figure | None, reported: bool
) -> None:
    share = ratio(0.4, 0.5, 0.6)
    reuse = Reuse(hit_share=share, baseline_hit_share=share, kept_share=kept, computed_ratio=computed)
    found = list(reuse_lost.evaluate(cast("Any", SimpleNamespace(reuse=reuse))))
    assert [each.severity for each in found] == [Severity.FAULT] * reported


def test_reuse_is_neither_compared_nor_reported_if_the_cache_is_declared_off() -> None:
    summary = run_of_world(replace(LOST, edits={}))
    assert [cell.reuse for cell in summary.cells] == [None, None]
    assert lost(summary) == []
    assert "Net " not in markdown(LOST.plan, summary).partition("\n|")[0]


@pytest.mark.parametrize(
    ("silent", "reason"),
    [
        ({"ngram"}, ReuseMissing.ARM_NOT_REPORTED),
        ({"none"}, ReuseMissing.BASELINE_NOT_REPORTED),
        ({"none", "ngram"}, ReuseMissing.NOT_REPORTED),
    ],
)
def test_nothing_is_compared_if_a_side_does_not_report_cached_tokens_and_reports_give_the_reason(
    silent: set[str], reason: ReuseMissing
) -> None:
    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(cached_tokens=None) if point.arm in silent else frame

    summary = run_of_world(LOST, Corruptions(records=edit))
    assert [(cell.reuse, cell.reuse_missing) for cell in summary.cells] == [(None, None), (None, reason)]
    line = f"ngram: Reuse of the prompt cache is not compared: {REUSE_MISSING[reason]}"
    assert reuse_lines(summary.cells) == [line]


def test_figures_of_reuse_are_those_of_the_world(lost_run: RunSummary) -> None:
    found = reuse_of(lost_run)
    assert found.hit_share.value == pytest.approx(0.2, abs=0.005)
    assert found.baseline_hit_share.value == pytest.approx(0.8, abs=0.005)
    assert found.computed_ratio.value == pytest.approx(4.0, rel=0.02)
    for figure in (found.hit_share, found.baseline_hit_share, found.computed_ratio):
        assert present(figure.interval).low <= present(figure.value) <= present(figure.interval).high


def test_requests_with_more_cached_than_prompt_tokens_are_left_out() -> None:
    def excess(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        wrong = (frame.prompt_id == "p3") & (point.arm == "ngram")
        return frame.assign(cached_tokens=frame.cached_tokens.where(~wrong, 100 * frame.input_tokens))

    found = reuse_of(run_of_world(LOST, Corruptions(records=excess)))
    assert found.hit_share.value == pytest.approx(0.2, abs=0.005)


def test_total_loss_is_reported_if_the_baseline_reads_all_prompts_from_its_cache() -> None:
    def total(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(cached_tokens=0 if point.arm == "ngram" else frame.input_tokens)

    assert lost(run_of_world(LOST, Corruptions(records=total))) == [("ngram", Severity.FAULT)]


@pytest.mark.parametrize(
    ("kept", "reported"),
    [((0.0, 0.0, 0.0), True), ((0.0, 0.3, 0.3), True), ((0.0, 0.95, 0.95), False), ((0.3, 0.95, 0.95), False)],
    ids=["all", "most", "equal", "more in the first repeat"],
)
@pytest.mark.parametrize("repeats", [2, 3])
def test_lost_reuse_is_reported_although_a_cold_first_repeat_has_none(
    kept: tuple[float, ...], repeats: int, *, reported: bool
) -> None:
    """A ratio of computed tokens of 1, 20 and 20 has the interval [0.27, 1,671]."""

    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        share = (kept if point.arm == "ngram" else (0.0, 0.95, 0.95))[point.repeat]
        return frame.assign(cached_tokens=(frame.input_tokens * share).astype(int))

    summary = run_of_world(replace(LOST, repeats=repeats), Corruptions(records=edit))
    assert bool(lost(summary)) is reported


def test_slices_by_turn_and_by_depth_locate_the_loss() -> None:
    def only_later_turns(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        cached = [400 if turn else 0 for turn in frame.turn]
        if point.arm == "ngram":
            cached = [0] * len(frame)
        return frame.assign(input_tokens=[500 + index % 7 for index in range(len(frame))], cached_tokens=cached)

    world = replace(LOST, turns=2)
    found = reuse_of(run_of_world(world, Corruptions(records=only_later_turns)))
    assert [(each.label, each.hit_share) for each in found.by_turn] == [("1", 0.0), ("2", 0.0)]
    assert [each.label for each in found.by_depth] == ["0", "256–1,023"]
    for first, later in (found.by_turn, found.by_depth):
        assert first.baseline_hit_share == 0
        assert first.computed_ratio.value == pytest.approx(1, rel=0.01)
        assert later.baseline_hit_share == pytest.approx(0.8, rel=0.01)
        assert later.computed_ratio.value == pytest.approx(5, rel=0.06)
    assert sum(each.pairs for each in found.by_turn) == sum(each.pairs for each in found.by_depth)


@pytest.mark.usefixtures("undrawn")
def test_reports_begin_with_the_net_speedup_and_have_tables_by_turn_and_depth(lost_run: RunSummary) -> None:
    cell, found = drafting_cell(lost_run), reuse_of(lost_run)
    net = with_interval(present(cell.end_to_end).speedup)
    line = f"Net {net.replace(' [', 'x [')} (20% of the prompt tokens from the cache, 80% of the baseline's)"
    assert line in markdown(LOST.plan, lost_run).partition("\n|")[0]
    assert line in render_html(LOST.plan, lost_run).partition("<strong>Next:</strong>")[0].replace("&#39;", "'")
    shares, *slices = reuse_tables(lost_run.cells)
    assert [shares.rows[0][3:5], shares.rows[0][6]] == [["20%", "80%"], net]
    assert [len(table.rows) for table in slices] == [1, len(found.by_depth)]
    (invalid, says) = reuse_lines([cell.model_copy(update={"valid": False})])
    assert invalid.endswith(". Invalid: see the findings")
    assert says == REUSE_SAYS
    none = found.hit_share.model_copy(update={"value": 0.0})
    nothing = found.model_copy(update={"hit_share": none, "baseline_hit_share": none})
    assert reuse_lines([cell.model_copy(update={"reuse": nothing})]) == []


def test_with_too_few_repeats_the_net_speedup_has_no_interval(lost_run: RunSummary) -> None:
    few = [
        cell.model_copy(
            update={
                "end_to_end": cell.end_to_end
                and cell.end_to_end.model_copy(
                    update={"speedup": cell.end_to_end.speedup.without_interval(too_few_repeats(2))}
                )
            }
        )
        for cell in lost_run.cells
    ]
    line, _ = reuse_lines(few)
    assert line.endswith("80% of the baseline's; 2 repeats: too few to tell)")
    assert [row[-1] for row in reuse_tables(few)[0].rows] == ["1.46 (2 repeats: too few to tell)"]
