"""Reuse of the prompt cache, paired: hit shares, computed tokens, the split of the net speed-up, and its check."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.finding import Severity
from specbench_api.outcome.reuse import Reuse, SplitMissing
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Point
from specbench_client.analysis.breakdown.engine_replay import Budget, EngineCosts, replay
from specbench_client.analysis.breakdown.engine_steps import PointSteps, point_steps, prefill_parts, served_share
from specbench_client.analysis.statistics.log_ratio import LogRatioInputs
from specbench_client.analysis.statistics.row_layout import CellSums, layout_of
from specbench_client.ragged import to_ragged
from specbench_client.report.html import render_html
from specbench_client.report.text.cells import markdown
from specbench_client.report.text.reuse import REUSE_SAYS, SPLIT_MISSING, reuse_lines, reuse_tables
from specbench_client.report.text.text_table import with_interval
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

AS_SERVED = {"spec.promptCache": "AsServed"}
KEPT = {"none": 0.8, "ngram": 0.8}
EQUAL = SyntheticRun(prompts=30, categories=ONE, edits=AS_SERVED, cached=KEPT)
LOST = replace(EQUAL, cached={"none": 0.8, "ngram": 0.2})


def reuse_of(summary: RunSummary) -> Reuse:
    (found,) = (cell.reuse for cell in summary.cells if cell.arm == "ngram")
    assert found is not None
    return found


def value_of(figure: Figure) -> float:
    assert figure.value is not None
    return figure.value


def assert_not_split(summary: RunSummary, reason: SplitMissing) -> Reuse:
    """The figures of the split are missing, and the report gives the reason."""
    found, (cell,) = reuse_of(summary), [cell for cell in summary.cells if cell.arm == "ngram"]
    assert [found.token_ms.value, found.lost_ms.value, found.drafting.value, found.reuse.value] == [None] * 4
    assert cell.split_missing is reason
    (line,) = reuse_lines(summary.cells)
    assert f"the baseline's). Not split: {SPLIT_MISSING[reason]}" in line
    return found


def lost(summary: RunSummary) -> list[tuple[str | None, Severity]]:
    return [(each.arm, each.severity) for each in summary.findings if each.check == "ReuseLost"]


def test_lost_reuse_is_a_fault_with_both_hit_shares_and_its_cost() -> None:
    summary = run_of_world(LOST)
    assert lost(summary) == [("ngram", Severity.FAULT)]
    (message,) = (each.message for each in summary.findings if each.check == "ReuseLost")
    assert message.startswith("20% of the prompt tokens came from the prompt cache, but 80% of the same requests'")
    assert "the arm computed 3.98 times as many, 53 ms more prefill per request" in message


@pytest.mark.parametrize(
    "world",
    [EQUAL, replace(EQUAL, cached={"none": 0.2, "ngram": 0.8}), replace(EQUAL, cached={"none": 0.8, "ngram": 0.795})],
    ids=["equal", "more reuse", "within the threshold"],
)
def test_equal_or_more_reuse_is_not_reported(world: SyntheticRun) -> None:
    assert lost(run_of_world(world)) == []


def test_reuse_is_not_compared_if_the_cache_is_declared_off() -> None:
    summary = run_of_world(replace(LOST, edits={}))
    assert [cell.reuse for cell in summary.cells] == [None, None]
    assert lost(summary) == []


@pytest.mark.parametrize(
    ("silent", "reason"),
    [
        ({"ngram"}, SplitMissing.ARM_NOT_REPORTED),
        ({"none"}, SplitMissing.BASELINE_NOT_REPORTED),
        ({"none", "ngram"}, SplitMissing.NOT_REPORTED),
    ],
)
def test_nothing_is_compared_if_a_side_does_not_report_cached_tokens_and_reports_give_the_reason(
    silent: set[str], reason: SplitMissing
) -> None:
    def edit(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(cached_tokens=None) if point.arm in silent else frame

    summary = run_of_world(replace(LOST, concurrency=(1, 2)), Corruptions(records=edit))
    assert [cell.reuse for cell in summary.cells] == [None] * 4
    assert [cell.split_missing for cell in summary.cells if cell.arm == "ngram"] == [reason] * 2
    line = f"ngram: Reuse of the prompt cache is not compared: {SPLIT_MISSING[reason]}"
    assert reuse_lines(summary.cells) == [line]


def test_baseline_has_neither_reuse_nor_a_reason() -> None:
    baseline = next(cell for cell in run_of_world(LOST).cells if cell.arm == "none")
    assert (baseline.reuse, baseline.split_missing) == (None, None)


def delayed(frame: pd.DataFrame, delays_ms: list[float]) -> pd.DataFrame:
    """The same answers, so many ms later."""
    delays = [round(delay * 1e6) for delay in delays_ms]
    chunks = [[at + delay for at in times] for times, delay in zip(frame.chunk_ns, delays, strict=True)]
    times = {name: frame[name] + delays for name in ("first_byte_ns", "first_token_ns", "last_token_ns")}
    return frame.assign(chunk_ns=pd.Series(chunks, index=frame.index, dtype=object), **times)


def test_split_is_missing_if_latencies_do_not_grow_with_computed_tokens() -> None:
    def flat(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        took = (frame.first_token_ns - frame.intended_ns) / 1e6
        longest = took.max()
        shorter = 1.1 * longest - took  # the longer the prompt, the earlier its first token
        return delayed(frame, (shorter - took).tolist())

    assert_not_split(run_of_world(LOST, Corruptions(records=flat)), SplitMissing.NO_COST)


def test_times_too_short_to_matter_are_not_in_the_message() -> None:
    def soon(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(input_tokens=5, cached_tokens=4 - 4 * (point.arm == "ngram"))

    (message,) = (
        each.message for each in run_of_world(LOST, Corruptions(records=soon)).findings if each.check == "ReuseLost"
    )
    assert "ms more prefill" not in message


def test_figures_of_reuse_are_those_of_the_world() -> None:
    found = reuse_of(run_of_world(LOST))
    assert found.hit_share.value == pytest.approx(0.2, abs=0.005)
    assert found.baseline_hit_share.value == pytest.approx(0.8, abs=0.005)
    assert found.computed_ratio.value == pytest.approx(4.0, rel=0.02)
    assert found.token_ms.value == pytest.approx(LOST.prefill_ms / 100, rel=0.02)
    assert found.lost_ms.value == pytest.approx(value_of(found.lost_tokens) * value_of(found.token_ms))
    for figure in (found.hit_share, found.computed_ratio, found.lost_tokens, found.lost_ms, found.token_ms):
        assert figure.interval is not None
        assert figure.interval.low <= value_of(figure) <= figure.interval.high


def test_split_is_exact_and_its_parts_are_those_of_the_same_world_without_the_loss() -> None:
    found, whole = reuse_of(run_of_world(LOST)), reuse_of(run_of_world(EQUAL))
    assert found.net.value == pytest.approx(value_of(found.drafting) * value_of(found.reuse))
    assert found.drafting.value == pytest.approx(whole.net.value, rel=0.01)
    assert value_of(found.reuse) < 0.95
    for figure in (found.drafting, found.reuse):
        assert figure.interval is not None
        assert figure.interval.low < value_of(figure) < figure.interval.high
    assert whole.reuse.value == pytest.approx(1.0)


def test_split_is_missing_without_variation_of_computed_tokens() -> None:
    def constant(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(input_tokens=500, cached_tokens=100 if point.arm == "ngram" else 400)

    found = assert_not_split(run_of_world(LOST, Corruptions(records=constant)), SplitMissing.SAME_COMPUTED_TOKENS)
    assert found.computed_ratio.value == pytest.approx(4.0)
    assert found.lost_tokens.value == 300
    assert found.net.value is not None


def test_split_is_missing_if_most_of_the_latency_is_not_that_of_steps() -> None:
    def queued(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return delayed(frame, [1e4] * len(frame))

    found = assert_not_split(run_of_world(LOST, Corruptions(records=queued)), SplitMissing.REPLAY_DIFFERS)
    assert found.computed_ratio.value == pytest.approx(4.0, rel=0.02)


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


@pytest.mark.parametrize("arms", [("ngram",), ("none", "ngram")])
def test_split_is_missing_if_all_tokens_of_an_answer_arrive_at_once(arms: tuple[str, ...]) -> None:
    def buffered(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        if point.arm not in arms:
            return frame
        chunks = pd.Series([[at[-1]] * len(at) for at in frame.chunk_ns], index=frame.index, dtype=object)
        return frame.assign(first_token_ns=frame.last_token_ns, chunk_ns=chunks)

    found = assert_not_split(run_of_world(LOST, Corruptions(records=buffered)), SplitMissing.TOO_FEW_STEPS)
    assert found.net.value is not None


@pytest.mark.parametrize("silent", [1, 3])
def test_split_is_missing_if_the_chunks_of_many_answers_are_unknown(silent: int) -> None:
    """Of 30 prompts: one without chunks has no part in the split, but the load of more would be missing from it."""

    def dropped(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        known = ~frame.prompt_id.isin([f"p{number}" for number in range(silent)]) | (point.arm != "ngram")
        return frame.assign(chunk_ns=frame.chunk_ns.where(known, None))

    summary = run_of_world(LOST, Corruptions(records=dropped))
    if silent == 1:
        exact = value_of(reuse_of(run_of_world(LOST)).reuse)
        assert value_of(reuse_of(summary).reuse) == pytest.approx(exact, rel=0.02)
    else:
        assert_not_split(summary, SplitMissing.TOO_FEW_STEPS)


def steps_of(begun_ms: list[float], arrivals_ms: list[list[float]], prompts: list[int]) -> PointSteps:
    """The steps of a point whose chunks arrive so long after the beginning of their requests of one conversation."""
    begun, e2e = np.array(begun_ms), np.array([each[-1] for each in arrivals_ms])
    rows = pd.DataFrame({
        "intended_ns": begun * 1e6, "last_token_ns": (begun + e2e) * 1e6, "input_tokens": prompts, "cached_tokens": 0,
        "tokens": 10, "steps": 9, "drafted_tokens": np.nan, "repeat": 0, "conversation_id": 7,
    })  # fmt: skip
    arrivals = to_ragged([np.array(each) for each in arrivals_ms], np.float32)
    (point,) = point_steps(rows.astype(np.float64).assign(arrival_ms=arrivals), closed=False)
    return point


def test_requests_of_a_conversation_that_overlapped_are_replayed_at_once() -> None:
    """An engine of 10 ms a step and 0.1 ms a token; two requests begin 100 ms after the first one, and one later."""
    firsts = [20.0, 30.0, 30.0, 20.0]
    arrivals = [[first + 10 * step for step in range(10)] for first in firsts]
    point = steps_of([0, 210, 210, 400], arrivals, [100] * 4)
    assert point.previous.tolist()[:3] == [-1, 0, 0]
    assert point.durations[:12] == pytest.approx([20.0] + [10.0] * 9 + [30.0, 10.0])
    costs = EngineCosts(token=0.1, base=10.0)
    assert replay(point, costs, point.computed) == pytest.approx([110, 120, 120, 110])
    assert replay(point, costs, np.zeros(4)) == pytest.approx([100.0] * 4)


def test_prompts_are_computed_in_the_steps_before_their_first_chunk() -> None:
    """A request decodes all the time, 10 ms a step; 700 tokens and then 600 are computed in three steps."""
    decoding = [10.0 * step for step in range(1, 11)]
    point = steps_of([0, 15, 16], [decoding, [35.0, 45.0], [44.0, 54.0]], [10, 700, 600])
    parts = prefill_parts(point, [512.0] * point.ends.size)
    assert sorted(zip(parts.request.tolist(), parts.step.tolist(), parts.tokens.tolist(), strict=True)) == [
        (0, 0, 10), (1, 3, 512), (1, 4, 188), (2, 4, 324), (2, 5, 276),
    ]  # fmt: skip


def test_extra_cost_of_computing_prompts_while_others_decode_is_in_each_such_step() -> None:
    """Steps of 10 ms and 0.01 ms a token, 5 ms longer if prompts are computed too: 512 tokens, and then 188."""
    longer = [11.0, 21.0, 31.0, 51.12, 68.0, 78.0, 88.0, 98.0, 108.0, 118.0]
    point = steps_of([0, 30], [longer, [38.0, 48.0]], [100, 700])
    assert served_share([point]) == 1
    costs = EngineCosts(token=0.01, base=10.0, mixed=5.0, budget=Budget(512))
    assert replay(point, costs, point.computed) == pytest.approx([118, 48])


def test_requests_that_wait_for_the_prompts_of_others_do_not_decode_in_these_steps() -> None:
    """Steps of 10 ms, or of 8 ms and 0.01 ms a token while a request waits for the prompt of another one."""
    point = steps_of([0, 25], [[11.0, 21.0, 31.0, 56.0, 66.0], [21.0, 31.0]], [100, 700])
    assert served_share([point]) == 0
    costs = EngineCosts(token=0.01, base=10.0, mixed=-2.0, budget=Budget(exclusive=True))
    assert replay(point, costs, point.computed) == pytest.approx([66, 31])
    assert replay(point, costs, np.zeros(2)) == pytest.approx([58, 23])


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


def test_numerical_derivatives_give_the_interval_of_a_log_ratio() -> None:
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"repeat": np.repeat([0, 1, 2], 20), "prompt_id": [*map(str, range(20))] * 3, "category": "a"})
    sums = CellSums(layout_of(rows), 2)
    sums.add([rng.lognormal(3, 0.5, 60), rng.lognormal(4, 0.5, 60)])
    inputs = LogRatioInputs.of("ab", sums, seed=1)
    exact, found = inputs.log_ratio({"a": 1, "b": -1}), inputs.log_of(lambda each: np.log(each["a"] / each["b"]))
    assert exact is not None
    assert found is not None
    assert exact.chosen is not None
    assert found.chosen is not None
    assert found.value == pytest.approx(exact.value)
    assert found.chosen.bounds.low == pytest.approx(exact.chosen.bounds.low, rel=1e-6)
    assert found.chosen.bounds.high == pytest.approx(exact.chosen.bounds.high, rel=1e-6)


def test_reports_begin_with_the_split_and_have_tables_by_turn_and_depth() -> None:
    summary = run_of_world(LOST)
    found = reuse_of(summary)
    net, drafting, factor = (
        with_interval(each).replace(" [", "x [") for each in (found.net, found.drafting, found.reuse)
    )
    split = f"Net {net} = drafting {drafting} × reuse {factor} (20% of the prompt tokens from the cache"
    assert split in markdown(LOST.plan, summary).partition("\n|")[0]
    page = render_html(LOST.plan, summary)
    assert split in page.partition("<strong>Next:</strong>")[0]
    for title in ("Reuse of the prompt cache", "By turn", "By depth"):
        assert title in page
    costs, *slices = reuse_tables(summary.cells)
    assert costs.rows[0][3:5] == ["20%", "80%"]
    assert [len(table.rows) for table in slices] == [1, len(found.by_depth)]


def test_reports_say_what_a_split_does_not_show() -> None:
    cell = run_of_world(LOST).cells[-1]
    assert cell.reuse is not None
    factor = cell.reuse.reuse
    assert factor.interval is not None
    wide = factor.model_copy(update={"interval": factor.interval.model_copy(update={"high": 1.1})})
    unclear, definition = reuse_lines(
        [cell.model_copy(update={"reuse": cell.reuse.model_copy(update={"reuse": wide})})]
    )
    assert unclear.endswith("Whether reuse costs or gains is not clear")
    assert definition == REUSE_SAYS
    invalid, _ = reuse_lines([cell.model_copy(update={"valid": False})])
    assert invalid.endswith(". Invalid: see the findings")


@pytest.mark.parametrize("split_missing", [None, SplitMissing.NO_COST])
def test_where_nothing_came_from_a_cache_reports_state_that_instead_of_a_split(
    split_missing: SplitMissing | None,
) -> None:
    cell = run_of_world(LOST).cells[-1]
    assert cell.reuse is not None
    zero = {"value": 0.0}
    reuse = cell.reuse.model_copy(
        update={
            "hit_share": cell.reuse.hit_share.model_copy(update=zero),
            "baseline_hit_share": cell.reuse.baseline_hit_share.model_copy(update=zero),
        }
    )
    (line,) = reuse_lines([cell.model_copy(update={"reuse": reuse, "split_missing": split_missing})])
    assert re.fullmatch(
        r"ngram at concurrency 1: Net \S+x \[\S+ \S+\]\. No prompt tokens came from a cache on either side", line
    )


def test_with_too_few_repeats_the_split_has_no_intervals_and_no_claim() -> None:
    summary = run_of_world(replace(LOST, repeats=2))
    line, _ = reuse_lines(summary.cells)
    assert "[" not in line
    assert line.endswith("80% of the baseline's; 2 repeats: too few to tell)")
    costs, *slices = reuse_tables(summary.cells)
    assert not any("[" in text for table in (costs, *slices) for row in table.rows for text in row)


def test_reports_without_reuse_have_neither_line_nor_tables() -> None:
    summary = run_of_world(replace(LOST, edits={}))
    assert "drafting" not in markdown(LOST.plan, summary).partition("\n|")[0]
    assert "Reuse of the prompt cache" not in render_html(LOST.plan, summary)
