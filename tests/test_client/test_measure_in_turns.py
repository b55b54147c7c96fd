"""Running servers compared in turns: blocks of new prompts, their size, and the end when a speed-up is decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import REPEATS_IN_TURNS, RunSummary, SpeedupConclusion
from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import Plan
from specbench_api.spec.gate import GateMetric
from specbench_client.analysis.compare.comparison import comparison
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.analysis.curves.build import build_curves
from specbench_client.analysis.explanation.traffic_mix import TrafficMix, predict_mix
from specbench_client.analysis.summary.run import ends_a_round, summarise_run
from specbench_client.analysis.what_if.prompt_overlap import OVERLAP_MEASURES, AnswerOverlaps, with_arm_speedups
from specbench_client.documents.what_if import OverlapBin
from specbench_client.drive.block_size import LEAST, PER_STREAM, SIZES, BlockSize, block_size
from specbench_client.drive.prompts import prompts_of_point
from specbench_client.metrics.pairing import pair_requests
from specbench_client.workload.prompts import Prompts
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.resources import run_of
from specbench_testing.result_pairs import result_of
from specbench_testing.synthetic_records import CREATED, SyntheticRun

ENDPOINTS = [{"name": "none", "url": "http://a:1"}, {"name": "eagle3", "url": "http://b:1"}]


def plan_of(load: dict[str, Any]) -> Plan:
    spec = {"spec.engine": {"kind": "external", "endpoints": ENDPOINTS}, "spec.drafters": [], "spec.load": load}
    return lay_out(run_of(spec))


# Prompts of a block.

PROMPTS = Prompts(tuple(Prompt(f"p{n}", "ab"[n % 2], ()) for n in range(40)), "fingerprint")


def test_every_arm_of_a_repeat_sends_the_same_prompts_and_no_block_sends_those_of_another() -> None:
    plan = plan_of({"concurrency": [1, 2], "requests": 5, "repeats": 4})
    sent = {
        (point.arm, point.level.label, point.repeat): [row.id for row in prompts_of_point(plan, point, PROMPTS).rows]
        for point in plan.points
    }
    blocks = [sent["none", load, repeat][:5] for repeat in range(4) for load in ("1", "2")]
    assert blocks == [sent["eagle3", load, repeat][:5] for repeat in range(4) for load in ("1", "2")]
    assert len({name for block in blocks for name in block}) == 40
    categories = {row.id: row.category for row in PROMPTS.rows}
    assert all(2 <= [categories[name] for name in block].count("a") <= 3 for block in blocks)


@pytest.mark.parametrize("load", [{"requests": 40}, {"requests": 80}, {"durationSeconds": 9}, {}])
def test_blocks_of_all_prompts_send_them_in_file_order(load: dict[str, Any]) -> None:
    plan = plan_of({"concurrency": [1], "repeats": 2, **load})
    assert all(prompts_of_point(plan, point, PROMPTS) is PROMPTS for point in plan.points)


def test_repeats_of_launched_engines_send_the_same_prompts() -> None:
    plan = lay_out(run_of({"spec.load": {"concurrency": [1], "requests": 5, "repeats": 2}}))
    assert all(prompts_of_point(plan, point, PROMPTS) is PROMPTS for point in plan.points)


# Size of a block.


@pytest.mark.parametrize(
    ("load", "request_s", "wanted"),
    [
        ({"concurrency": [1]}, 1.0, LEAST),  # 6 s of requests
        ({"concurrency": [1]}, 20.0, LEAST),  # a request longer than the block: still some prompts
        ({"concurrency": [1]}, 0.2, 32),  # 30, rounded up
        ({"concurrency": [8]}, 1.0, 48),
        ({"concurrency": [1, 64]}, 5.0, 256),  # at least PER_STREAM a stream at the highest load
        ({"rate": [2.0], "slots": 8}, 1.0, 12),  # 6 s of arrivals
        ({"rate": [2.0], "slots": 8}, 10.0, 96),  # long requests: as many as keep the server busy
    ],
)
def test_a_block_is_long_for_a_request_and_short_for_the_machine(
    load: dict[str, Any], request_s: float, wanted: int
) -> None:
    assert block_size(plan_of(load), request_s, prompts=10**6, blocks=4) == BlockSize(wanted, repeats_prompts=False)


def test_sizes_are_few_so_that_the_same_command_chooses_the_same_again() -> None:
    assert list(SIZES) == sorted(set(SIZES))
    assert all(after / before <= 1.6 for before, after in pairwise(SIZES))
    assert SIZES[-1] >= PER_STREAM * 4096


def test_too_few_prompts_are_noticed() -> None:
    load = {"concurrency": [1, 2]}
    assert block_size(plan_of(load), 1.0, prompts=64, blocks=4) == BlockSize(8, repeats_prompts=False)
    assert block_size(plan_of(load), 1.0, prompts=63, blocks=4) == BlockSize(8, repeats_prompts=True)


# The end.


def concluded(world: SyntheticRun, repeats: int) -> RunSummary:
    """The summary of a run that stops when it is decided, after so many repeats."""
    plan = world.plan.model_copy(update={"stop": "WhenDecided"})
    measured = [point for point in plan.points if point.repeat < repeats]
    records = {point.hash: [world.records(point)] for point in measured}
    return summarise_run(plan, [world.honest(point) for point in measured], records, CREATED)


CLEAR = SyntheticRun(repeats=8, step_ms={"ngram": 12.0, "none": 20.0}, alpha={"ngram": 0.6})


def test_a_clear_difference_ends_the_run_and_leaves_nothing_missing() -> None:
    summary = concluded(CLEAR, REPEATS_IN_TURNS)
    assert summary.decided_after == REPEATS_IN_TURNS
    assert (summary.missing, summary.points_total, summary.points_measured) == ([], 12, 12)
    (cell,) = (cell for cell in summary.cells if cell.arm == "ngram")
    assert cell.claims is not None
    assert cell.claims.overall is SpeedupConclusion.FASTER
    assert cell.speedup is not None
    assert cell.speedup.interval is not None
    assert "confidence sequence" in cell.speedup.interval.method
    assert "MissingPoints" not in {finding.check for finding in summary.findings}


@pytest.mark.parametrize("repeats", [2, 4, 5, 7])
def test_a_run_ends_after_an_even_number_of_repeats_from_six_on(repeats: int) -> None:
    """An odd number would leave a linear drift in the ratio (ABBA); few repeats have no useful interval."""
    summary = concluded(CLEAR, repeats)
    assert summary.decided_after is None
    assert len(summary.missing) == 2 * (8 - repeats)


def test_an_undecided_run_goes_on() -> None:
    noisy = SyntheticRun(repeats=8, step_ms={"ngram": 20.0, "none": 20.0}, alpha={"ngram": 0.02}, run_noise=0.1)
    summary = concluded(noisy, 6)
    assert (summary.decided_after, len(summary.missing)) == (None, 4)


def test_no_difference_that_matters_ends_the_run_too() -> None:
    """Exactly equal step times and no accepted draft: the interval is far inside of 5 %."""
    equal = SyntheticRun(
        repeats=8, step_ms={"ngram": 20.0, "none": 20.0}, alpha={"ngram": 0.0}, alpha_spread=0.0, run_noise=0.002
    )
    summary = concluded(equal, 8)
    assert summary.decided_after == 8


def test_the_last_repeat_must_be_complete_on_every_arm() -> None:
    plan = CLEAR.plan.model_copy(update={"stop": "WhenDecided"})
    first = {point.hash for point in plan.points if point.repeat < 6}
    begun = next(point.hash for point in plan.points if point.repeat == 6)
    assert ends_a_round(plan, first)
    assert not ends_a_round(plan, first | {begun})
    assert not ends_a_round(plan, first - {next(iter(first))})
    assert not ends_a_round(CLEAR.plan, first)


# The interval of a run that stops because of it.


def stopped_run() -> StoredResult:
    plan = CLEAR.plan.model_copy(update={"stop": "WhenDecided"})
    return replace(result_of(CLEAR), plan=plan, summary=concluded(CLEAR, CLEAR.repeats))


@pytest.fixture(scope="module")
def stopped_speedups() -> dict[str, Figure]:
    return dict(speedups_of_a_stopped_run())


def speedups_of_a_stopped_run() -> Iterator[tuple[str, Figure]]:
    """Yield every figure that is a speed-up of the stored run, with the analysis that computes it."""
    run = stopped_run()
    (cell,) = (cell for cell in run.summary.cells if cell.arm == "ngram")
    assert cell.speedup is not None
    assert cell.tpot_speedup is not None
    assert cell.end_to_end is not None
    assert cell.prediction is not None
    yield "cell", cell.speedup
    yield "category", cell.by_category["code"]["speedup"]
    yield "per output token", cell.tpot_speedup
    yield "whole requests", cell.end_to_end.speedup
    yield "median", cell.end_to_end.median_speedup
    yield "cost saved", cell.end_to_end.cost_saved
    yield "factors", cell.prediction.measured
    yield "break-even", run.summary.crossover.break_even[0].margin
    for axis in ("draft-tokens", "output-tokens"):
        (curve,) = build_curves(axis, [run], [], CREATED, ()).curves
        yield f"curve over {axis}", curve.points[0].speedup
    (mix,) = predict_mix(run, [cell], TrafficMix({"code": 1.0, "chat": 2.0}))
    yield "mix", mix.speedup
    arm, baseline = (run.rows_of(run.points_of((name, cell.workload, cell.level.label))) for name in ("ngram", "none"))
    names = [f"p{each}" for each in range(CLEAR.prompts)]
    overlaps = AnswerOverlaps(names, dict.fromkeys(OVERLAP_MEASURES, np.full(len(names), 0.9)))
    bins = [OverlapBin(by="bleu4", low=0.8, high=1.0, answers=len(names))]
    (overlap,) = with_arm_speedups(bins, {"ngram": pair_requests(arm, baseline, run.plan)}, overlaps)
    yield "prompt overlap", overlap.speedups["ngram"]
    yield (
        "compare",
        next(each.ratio for each in comparison(run, run, CREATED).cells if each.metric == GateMetric.SPEEDUP),
    )


@pytest.mark.runs
def test_every_speedup_of_a_stopped_run_has_an_interval_that_is_valid_at_any_time(
    stopped_speedups: dict[str, Figure],
) -> None:
    methods = {name: each.interval.method for name, each in stopped_speedups.items() if each.interval}
    assert list(methods) == list(stopped_speedups)
    assert [name for name, method in methods.items() if "confidence sequence" not in method] == []


@pytest.mark.runs
@pytest.mark.parametrize("analysis", ["factors", "curve over draft-tokens"])
def test_the_same_speedup_of_a_stopped_run_is_the_same_in_every_analysis(
    analysis: str, stopped_speedups: dict[str, Figure]
) -> None:
    again, cell = stopped_speedups[analysis], stopped_speedups["cell"]
    assert again.value == pytest.approx(cell.value)
    assert again.interval is not None
    assert cell.interval is not None
    assert (again.interval.low, again.interval.high) == pytest.approx((cell.interval.low, cell.interval.high))
