"""Running servers compared in turns: blocks of new prompts, their size, and the end when a speed-up is decided."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from specbench_api.outcome.summary import REPEATS_IN_TURNS, RunSummary, SpeedupConclusion
from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import Plan
from specbench_client.analysis.summary.run import ends_a_round, summarise_run
from specbench_client.drive.block_size import LEAST, PER_STREAM, SIZES, BlockSize, block_size
from specbench_client.drive.prompts import prompts_of_point
from specbench_client.workload.prompts import Prompts
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.resources import run_of
from specbench_testing.synthetic_records import SyntheticRun

ENDPOINTS = [{"name": "none", "url": "http://a:1"}, {"name": "eagle3", "url": "http://b:1"}]


def plan_of(load: dict[str, Any], edits: dict[str, Any] | None = None) -> Plan:
    spec = {"spec.engine": {"kind": "external", "endpoints": ENDPOINTS}, "spec.drafters": [], "spec.load": load}
    return lay_out(run_of(spec | (edits or {})))


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


def test_rows_of_a_trace_keep_their_order() -> None:
    trace = {"source": "mooncake", "uri": "t.jsonl"}
    plan = plan_of({"concurrency": [1], "requests": 5, "repeats": 2}, {"spec.workloads[0].dataset": trace})
    names = [row.id for row in PROMPTS.rows]
    for point in plan.points:
        start = 5 * point.repeat
        assert [row.id for row in prompts_of_point(plan, point, PROMPTS).rows] == names[start:] + names[:start]


def test_turns_of_a_duration_begin_at_prompts_far_from_those_of_earlier_turns() -> None:
    plan = plan_of({"concurrency": [1, 2], "durationSeconds": 9, "repeats": 4})
    orders = {
        (point.arm, point.level.label, point.repeat): [row.id for row in prompts_of_point(plan, point, PROMPTS).rows]
        for point in plan.points
    }
    turns = [orders["none", load, repeat] for repeat in range(4) for load in ("1", "2")]
    assert turns == [orders["eagle3", load, repeat] for repeat in range(4) for load in ("1", "2")]
    starts = [turns[0].index(turn[0]) for turn in turns]
    assert all(turn == turns[0][start:] + turns[0][:start] for turn, start in zip(turns, starts, strict=True))
    for count in (2, 4, 8):  # However many turns there are, each has a similar share of the prompts before the next.
        begun = sorted(starts[:count])
        gaps = [after - before for before, after in pairwise([*begun, begun[0] + 40])]
        assert min(gaps) >= 40 / count / 2


@pytest.mark.parametrize("load", [{"requests": 40}, {"requests": 80}, {}])
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
    return summarise_run(plan, [world.honest(point) for point in measured], records, "2026-01-01T00:00:00Z")


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
