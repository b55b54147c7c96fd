"""Figures compared with values calculated by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_client.documents.record import Record
from specbench_client.metrics import acceptance, latency, time_per_token
from specbench_client.metrics.acceptance import (
    acceptance_by_position,
    acceptance_histogram,
    conditional_acceptance,
    deepest_position,
    position_acceptance,
)
from specbench_client.metrics.catalog import CACHED_SHARE, INPUT_TOKENS, PERCENTILE_FIGURES, RATIOS
from specbench_client.metrics.metric_types import PercentileMetric, RatioMetric, RequestMetric, why_missing
from specbench_client.metrics.rows import Table, has_text, join_tables
from specbench_client.metrics.steady_window import mean_in_flight, steady_window, window_throughput, window_tokens
from specbench_testing.present import present
from specbench_testing.synthetic_records import NS_PER_MS, frame_of, record, tidy_frames
from specbench_testing.tables import filled, lists_of


def rows_of(*records: Record) -> Table:
    return tidy_frames([frame_of(list(records))])


def ms(value: float) -> int:
    return int(value * NS_PER_MS)


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (latency.TTFT_MS, 50.0),
        (latency.TTFT_SENT_MS, 49.0),
        (latency.E2E_MS, 150.0),
        (latency.E2E_SENT_MS, 149.0),
        (time_per_token.TPOT_MS, 10.0),
        (time_per_token.STEP_MS, 10.0),
        (time_per_token.USER_TPS, 100.0),
    ],
)
def test_times_of_a_simple_request(measure: RequestMetric, expected: float) -> None:
    assert measure.values(rows_of(record())).tolist() == pytest.approx([expected])


def test_latency_is_measured_from_the_intended_time() -> None:
    late = rows_of(record(intended_ns=-ms(20)))
    assert [each.values(late).tolist() for each in (latency.TTFT_MS, latency.TTFT_SENT_MS)] == [[70.0], [49.0]]


def test_tokens_after_a_start_that_is_not_counted_are_unknown() -> None:
    times = [ms(50), ms(80), ms(110), ms(140)]
    known = {"chunk_ns": times, "chunk_tokens": None, "last_token_ns": ms(140), "output_tokens": 10, "steps": 3}
    one, other = record(**known, token_conflict="UncountedStart"), record(**known)
    rows = rows_of(one)
    assert timed_parts(one) == pytest.approx([math.nan, math.nan, *timed_parts(other)[2:]], nan_ok=True)
    assert time_per_token.TPOT_MS_POOLED.value(rows) is None
    assert time_per_token.STREAM_TPS.value(rows) == pytest.approx(10 / 0.140)
    for figure, value in ((latency.TTFT_MS, 50), (latency.TTFT_SENT_MS, 49)):
        assert figure.values(rows_of(one, other)).tolist() == pytest.approx([math.nan, value], nan_ok=True)
        assert "UncountedStart" in why_missing(figure, rows)


def test_a_large_first_chunk_leaves_the_first_token_but_no_time_per_token() -> None:
    times = [ms(50), ms(80), ms(110), ms(140)]
    one = record(
        chunk_ns=times, chunk_tokens=None, last_token_ns=ms(140), output_tokens=40, token_conflict="LargeStart"
    )
    rows = rows_of(one)
    assert latency.TTFT_MS.values(rows).tolist() == [50]
    assert time_per_token.TPOT_MS_POOLED.value(rows) is None
    assert "LargeStart" in why_missing(time_per_token.TPOT_MS, rows)
    assert time_per_token.STREAM_TPS.value(rows) == pytest.approx(40 / 0.140)


def test_time_per_token_divides_by_tokens_not_chunks() -> None:
    merged = rows_of(record(chunk_ns=[ms(50), ms(150)], chunk_tokens=[1, 10], steps=4))
    assert time_per_token.TPOT_MS.values(merged).tolist() == [10.0]
    assert time_per_token.STEP_MS.values(merged).tolist() == [25.0]


def timed_parts(one: Record) -> list[float]:
    rows = rows_of(one)
    measures = (time_per_token.TPOT_MS, time_per_token.STEP_MS, latency.E2E_MS, latency.STREAM_END_MS)
    return [float(measure.values(rows)[0]) for measure in measures]


@pytest.mark.parametrize(
    ("tokens", "tpot_ms", "step_ms"),
    [
        ([1, 3, 3, 3], 90 / 9, 90 / 3),
        ([4, 3, 2, 1], 90 / 6, 90 / 3),
        ([5, 0, 4, 1], 90 / 5, 90 / 3),
        ([0, 4, 3, 3], 90 / 9, 90 / 3),
        ([10, 0, 0, 0], math.nan, 90 / 3),
        (None, 90 / 9, 90 / 3),
    ],
    ids=str,
)
def test_tokens_of_the_first_chunk_are_in_no_time(tokens: list[int] | None, tpot_ms: float, step_ms: float) -> None:
    times = [ms(50), ms(80), ms(110), ms(140)]
    one = record(chunk_ns=times, chunk_tokens=tokens, last_token_ns=ms(140), output_tokens=10, steps=3)
    rows = rows_of(one)
    assert timed_parts(one)[:2] == pytest.approx([tpot_ms, step_ms if tpot_ms > 0 else math.nan], nan_ok=True)
    assert time_per_token.TPOT_MS_POOLED.value(rows) == (pytest.approx(tpot_ms) if tpot_ms > 0 else None)
    assert time_per_token.STREAM_TPS.value(rows) == pytest.approx(10 / 0.140), "they were generated"


def test_steps_of_a_first_chunk_with_several_are_in_no_time() -> None:
    merged = record(chunk_ns=[ms(50), ms(80)], chunk_tokens=[7, 6], last_token_ns=ms(80), output_tokens=13, steps=6)
    assert timed_parts(merged)[:2] == pytest.approx([30 / 6, 30 / 3])


LATE = {"last_token_ns": ms(110), "ended_ns": ms(420)}


@pytest.mark.parametrize(
    ("changes", "tpot_ms", "step_ms"),
    [
        ({"chunk_tokens": [1, 2, 2, 1], "output_tokens": 6, "steps": 3}, 60 / 5, 60 / 2),
        ({"chunk_tokens": [1, 2, 2, 0], "output_tokens": 5, "steps": 2}, 60 / 4, 60 / 2),
        ({"chunk_tokens": [1, 4, 4, 2], "output_tokens": 11, "steps": 5}, 60 / 9, 60 / 4),
        ({"chunk_tokens": None, "output_tokens": 6, "steps": None}, 60 / 5, math.nan),
    ],
    ids=["each chunk a step", "no token", "two steps a chunk", "chunks not counted"],
)
def test_tokens_after_the_last_text_but_one_are_in_no_time(
    changes: dict[str, Any], tpot_ms: float, step_ms: float
) -> None:
    counted = changes["chunk_tokens"] is not None
    times = [ms(50), ms(80), ms(110), *([ms(410)] if counted else [])]
    found = timed_parts(record(chunk_ns=times, **changes, **LATE))
    assert found == pytest.approx([tpot_ms, step_ms, 110, 310], nan_ok=True)


@pytest.mark.parametrize(
    ("sizes", "tokens"), [((1, 2, 2, 1), 6), ((1, 2, 3, 0), 6), ((1, 2, 2, 3), 6), ((1, 2, 2, 0), 5)]
)
def test_speedup_counts_an_end_of_sequence_token_wherever_it_arrives(sizes: tuple[int, ...], tokens: int) -> None:
    """Without drafting it has a chunk of its own; a step with drafts emits it with the last text."""
    times = [ms(50), ms(80), ms(110), ms(410)]
    late = record(chunk_ns=times, chunk_tokens=list(sizes), output_tokens=sum(sizes), steps=3, **LATE)
    assert time_per_token.STREAM_TPS.value(rows_of(late)) == pytest.approx(tokens / 0.110)


def test_answers_that_were_not_streamed_have_no_stream_end() -> None:
    whole = record(first_token_ns=None, chunk_ns=None, chunk_tokens=None, last_token_ns=ms(150), ended_ns=ms(150))
    assert np.isnan(latency.STREAM_END_MS.values(rows_of(whole, record()))).all()


def test_pooled_tpot_is_weighted_by_tokens_and_the_mean_by_requests() -> None:
    short = record(output_tokens=2, last_token_ns=ms(80), chunk_ns=[ms(50), ms(80)], chunk_tokens=[1, 1])
    rows = rows_of(record(), short)
    assert time_per_token.TPOT_MS_POOLED.value(rows) == pytest.approx((100 + 30) / 11)
    assert time_per_token.TPOT_MS.values(rows).mean() == pytest.approx(20)
    assert time_per_token.STREAM_TPS.value(rows) == pytest.approx(13 / 0.230)


def test_acceptance_lengths_in_both_definitions_and_both_weightings() -> None:
    first = record(output_tokens=11, steps=4, accepted_tokens=7, drafted_tokens=12)
    second = record(output_tokens=5, steps=4, accepted_tokens=0, drafted_tokens=12)
    rows = rows_of(first, second)
    assert acceptance.EMITTED_POOLED.value(rows) == pytest.approx(14 / 8)
    assert acceptance.EMITTED_MEAN.value(rows) == pytest.approx((10 / 4 + 4 / 4) / 2)
    assert acceptance.VERIFIED_POOLED.value(rows) == pytest.approx(1 + 7 / 8)
    assert acceptance.VERIFIED_MEAN.value(rows) == pytest.approx((1 + 7 / 4 + 1) / 2)
    assert acceptance.ACCEPTANCE_RATE.value(rows) == pytest.approx(7 / 24)


def test_missing_steps_give_no_acceptance_length() -> None:
    rows = rows_of(record(steps=None))
    assert [ratio.value(rows) for ratio in acceptance.RATIOS] == [None] * 9


def test_baseline_with_reported_steps_has_acceptance_length_one() -> None:
    rows = rows_of(record())
    assert [ratio.value(rows) for ratio in acceptance.LENGTHS] == [1.0, 1.0, 1.0, 1.0]
    saved = (acceptance.ACCEPTED_PER_STEP, acceptance.PASSES_SAVED, acceptance.PASSES_PER_TOKEN)
    assert [ratio.value(rows) for ratio in saved] == [0.0, 0.0, 1.0]
    assert [ratio.value(rows) for ratio in (acceptance.ACCEPTANCE_RATE, acceptance.WASTED_VERIFICATION)] == [None] * 2


def test_passes_saved_and_wasted_verification() -> None:
    first = record(output_tokens=11, steps=4, accepted_tokens=6, drafted_tokens=12)
    second = record(output_tokens=5, steps=4, accepted_tokens=0, drafted_tokens=12)
    rows = rows_of(first, second)
    assert acceptance.ACCEPTED_PER_STEP.value(rows) == pytest.approx(6 / 8)
    assert acceptance.PASSES_SAVED.value(rows) == pytest.approx(1 - 8 / 14)
    assert acceptance.PASSES_PER_TOKEN.value(rows) == pytest.approx(8 / 14)
    assert acceptance.WASTED_VERIFICATION.value(rows) == pytest.approx((24 - 6) / (24 + 8))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=20), min_size=1))
def test_acceptance_length_is_one_plus_the_sum_of_products_of_conditional_rates(
    answers: list[list[int]],
) -> None:
    rows = rows_of(*(answer_of(accepted) for accepted in answers))
    rates = [conditional_acceptance(at).value(rows) for at in range(1, 6)]
    products = np.cumprod([rate or 0.0 for rate in rates])
    assert acceptance.EMITTED_POOLED.value(rows) == pytest.approx(1 + products.sum())


def test_acceptance_histogram_matches_a_calculation_by_hand() -> None:
    rows = rows_of(record(step_accepted=[3, 1, 0]), record(step_accepted=[1]), record(step_accepted=None))
    assert [each.value(rows) for each in acceptance_histogram(rows, 3)] == pytest.approx([1 / 4, 2 / 4, 0, 1 / 4])
    assert acceptance_histogram(rows_of(record()), 3) == ()
    assert deepest_position(rows) == 3
    assert deepest_position(rows_of(record())) == 0


def test_number_of_drafts_bounds_the_figures() -> None:
    highest = {ratio.name: ratio.highest for ratio in acceptance.limit_to_drafts(acceptance.RATIOS, 3)}
    assert {highest[ratio.name] for ratio in acceptance.LENGTHS} == {4}
    assert highest["accepted_per_step"] == 3
    assert {highest[name] for name in ("acceptance_rate", "target_passes_saved", "wasted_verification")} == {1}
    assert acceptance.limit_to_drafts(acceptance.RATIOS, 0) == list(acceptance.RATIOS)


def answer_of(accepted: list[int], undrafted: int = 0) -> Record:
    """Return an answer with these draft steps and `undrafted` steps without drafts."""
    tokens = 1 + sum(accepted) + len(accepted) + undrafted
    counts = {"steps": len(accepted) + undrafted, "draft_steps": len(accepted), "step_accepted": accepted}
    drafted = {"drafted_tokens": 5 * len(accepted), "accepted_tokens": sum(accepted)}
    return record(output_tokens=tokens, output_tokens_client=tokens, **counts, **drafted)


def test_omitted_draft_counts_do_not_raise_the_verified_length() -> None:
    drafted = record(output_tokens=11, steps=5, accepted_tokens=5, drafted_tokens=10)
    without_drafts = record(output_tokens=11, steps=10, accepted_tokens=None, drafted_tokens=None)
    rows = rows_of(drafted, without_drafts)
    assert acceptance.EMITTED_POOLED.value(rows) == pytest.approx(20 / 15)
    assert acceptance.VERIFIED_POOLED.value(rows) == pytest.approx(1 + 5 / 15)
    assert acceptance.ACCEPTANCE_RATE.value(rows) == pytest.approx(0.5)


def test_unknown_acceptance_is_not_zero() -> None:
    assert acceptance.VERIFIED_POOLED.value(rows_of(record(output_tokens=11, steps=5, accepted_tokens=None))) is None
    assert acceptance.ACCEPTANCE_RATE.value(rows_of(record(drafted_tokens=0, accepted_tokens=0))) is None


def test_joint_and_conditional_acceptance_by_position() -> None:
    listed = [record(step_accepted=[3, 1, 0], drafted_tokens=9), record(step_accepted=[1], drafted_tokens=3)]
    rows = rows_of(*listed, record(step_accepted=None))
    assert [position_acceptance(at).value(rows) for at in (1, 2, 3)] == pytest.approx([3 / 4, 1 / 4, 1 / 4])
    assert [conditional_acceptance(at).value(rows) for at in (1, 2, 3)] == pytest.approx([3 / 4, 1 / 3, 1.0])
    assert conditional_acceptance(5).value(rows) is None


@pytest.mark.parametrize(
    ("drafted", "expected"),
    [
        ([3, 3, 3, 3], [3 / 4, 2 / 3, 1 / 2]),
        ([3, 1, 3, 3], [3 / 4, 1.0, 1 / 2]),
        ([3, 1, 3, 2], [3 / 4, 1.0, 1.0]),
        ([3, 1], [3 / 4, 2 / 3, 1 / 2]),  # does not fit the accepted ones, so it is not known
        (None, [3 / 4, 2 / 3, 1 / 2]),
    ],
)
def test_a_position_that_was_not_drafted_does_not_count_as_rejected(
    drafted: list[int] | None, expected: list[float]
) -> None:
    rows = rows_of(record(step_accepted=[3, 1, 0, 2], step_drafted=drafted, drafted_tokens=12))
    assert [conditional_acceptance(at).value(rows) for at in (1, 2, 3)] == pytest.approx(expected)
    assert [position_acceptance(at).value(rows) for at in (1, 2, 3)] == pytest.approx([3 / 4, 2 / 4, 1 / 4])


def test_conditional_acceptance_is_missing_where_drafts_of_unknown_length_may_have_ended() -> None:
    unknown = record(step_accepted=[1, 1, 0], drafted_tokens=None, draft_steps=3, accepted_tokens=2)
    known = record(step_accepted=[2], step_drafted=[2], drafted_tokens=2)
    assert conditional_acceptance(1).value(rows_of(unknown)) is None
    assert [conditional_acceptance(at).value(rows_of(unknown, known)) for at in (1, 2)] == [1.0, 1.0]
    assert [position_acceptance(at).value(rows_of(unknown, known)) for at in (1, 2)] == pytest.approx([3 / 4, 1 / 4])


def test_an_accepted_draft_that_was_cut_off_at_the_end_does_not_count_as_rejected() -> None:
    cut = record(step_accepted=[3, 1], step_drafted=[3, 4], drafted_tokens=7, cut_tokens=2)
    rows = rows_of(cut, record(step_accepted=[0], step_drafted=[3], drafted_tokens=3))
    assert [conditional_acceptance(at).value(rows) for at in (1, 2, 3, 4)] == pytest.approx([2 / 3, 1.0, 1.0, 0.0])
    assert [position_acceptance(at).value(rows) for at in (1, 2, 3)] == pytest.approx([2 / 3, 1 / 3, 1 / 3])


def test_no_steps_give_no_positions() -> None:
    assert acceptance_by_position(rows_of(record()), 3) == ()
    assert len(acceptance_by_position(rows_of(record(step_accepted=[1])), 3)) == 6


def test_cached_share_and_input_tokens() -> None:
    rows = rows_of(record(cached_tokens=5), record(cached_tokens=None))
    assert CACHED_SHARE.value(rows) == pytest.approx(0.25)
    assert INPUT_TOKENS.values(rows).tolist() == [20, 20]


def test_percentiles_match_known_values() -> None:
    rows = rows_of(*(record(first_token_ns=ms(at)) for at in range(1, 101)), record(first_token_ns=None))
    by_percent = {each.percent: each.value(rows) for each in PERCENTILE_FIGURES if each.measure is latency.TTFT_MS}
    assert by_percent == pytest.approx({50: 50.5, 90: 90.1, 95: 95.05, 99: 99.01})


def streams(**edits: object) -> Table:
    """Ramp 0-100 ms, steady 40-140 ms, drain 120-220 ms: each has ten chunks of one token, 10 ms apart."""

    def one(phase: str, start: int) -> Record:
        at = [ms(start + 10 * index) for index in range(1, 11)]
        times = {"intended_ns": ms(start), "sent_ns": ms(start), "first_token_ns": at[0], "last_token_ns": at[-1]}
        fields = {"phase": phase, "chunk_ns": at, "chunk_tokens": [1] * 10, "output_tokens": 10}
        return record(**{**fields, **times, **edits})

    return rows_of(one("ramp", 0), one("steady", 40), one("drain", 120))


def test_throughput_counts_all_tokens_in_the_steady_window() -> None:
    rows = streams()
    window = present(steady_window(rows))
    assert (window.start_ns, window.end_ns) == (ms(40), ms(140))
    assert window_tokens(rows, window) == 7 + 10 + 2
    assert mean_in_flight(rows, window) == pytest.approx((60 + 100 + 20) / 100)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"chunk_tokens": None, "output_tokens": 20}, 2 * (7 + 10 + 2)),
        ({"chunk_tokens": [5, *[1] * 9], "output_tokens": 14}, 7 + 14 + 6),
        # The window has 60 of the ramp's 100 ms and 20 of the drain's.
        ({"chunk_ns": None, "chunk_tokens": None, "first_token_ns": None}, 6 + 10 + 2),
        ({"chunk_ns": [ms(100)] * 10}, 6 + 10 + 2),
    ],
    ids=[
        "tokens without chunks are spread evenly",
        "merged tokens count where they arrived",
        "an answer that was not streamed is spread over its time",
        "an answer that arrived at one moment is spread over its time",
    ],
)
def test_tokens_of_an_answer_that_the_window_cuts(edits: dict[str, object], expected: float) -> None:
    rows = streams(**edits)
    assert window_tokens(rows, present(steady_window(rows))) == pytest.approx(expected)


def test_throughput_is_missing_if_an_answer_was_not_counted() -> None:
    whole, uncounted = streams(), streams(chunk_tokens=None, output_tokens=None, output_tokens_client=None)
    later = streams(
        chunk_tokens=None, output_tokens=None, output_tokens_client=None, sent_ns=ms(300), last_token_ns=ms(500)
    )
    both = join_tables([whole, filled(uncounted, point="other")])
    assert [each.tolist() for each in window_throughput(whole)] == [[19], [pytest.approx(0.1)]]
    assert [each.tolist() for each in window_throughput(uncounted)] == [[], []], "missing, not 0"
    assert [each.tolist() for each in window_throughput(both)] == [[19], [pytest.approx(0.1)]]
    drained = later.among(has_text(later, "phase", "drain"))
    beside = join_tables([whole, drained.assign(edge_ns=lists_of([None]))])
    assert window_throughput(beside)[0].tolist() == [19], "uncounted answers outside the window do not matter"


def test_unstreamed_answer_has_only_an_end() -> None:
    whole = rows_of(record(chunk_ns=None, chunk_tokens=None, first_token_ns=None))
    assert time_per_token.STREAM_TPS.value(whole) == pytest.approx(11 / 0.150)
    assert all(math.isnan(measure.values(whole)[0]) for measure in (latency.TTFT_MS, latency.TTFT_SENT_MS))


def test_no_steady_request_gives_no_window() -> None:
    assert steady_window(rows_of(record(phase="ramp"), record(error_class="reset"))) is None


@pytest.mark.parametrize("figure", [*RATIOS, *PERCENTILE_FIGURES], ids=lambda figure: str(figure.name))
def test_no_row_gives_no_figure(figure: RatioMetric | PercentileMetric) -> None:
    assert figure.value(rows_of()) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"output_tokens": 0, "output_tokens_client": 0, "steps": 0},
        {"output_tokens": 1, "output_tokens_client": 1, "steps": 0},
        {"output_tokens": None, "output_tokens_client": None, "steps": 0},
        {"first_token_ns": 150 * NS_PER_MS, "chunk_ns": [150 * NS_PER_MS] * 11},
        {"chunk_ns": None, "chunk_tokens": None, "first_token_ns": None},
    ],
    ids=["no token", "one token", "uncounted", "one read", "not streamed"],
)
def test_answer_without_time_between_tokens_has_no_decode_speed(fields: dict[str, Any]) -> None:
    rows = rows_of(record(**fields))
    assert [measure.name for measure in time_per_token.MEASURES if not math.isnan(measure.values(rows)[0])] == []
    assert time_per_token.TPOT_MS_POOLED.value(rows) is None
    assert time_per_token.TPOT_MS_POOLED.value(rows_of(record(**fields), record())) == pytest.approx(10)
    assert latency.E2E_MS.values(rows).tolist() == pytest.approx([150.0]), "its end was measured"
