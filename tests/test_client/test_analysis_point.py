"""Point summaries: exact acceptance, counts, and client health derived from records if it was not measured."""

from __future__ import annotations

import numpy as np
import pytest

from specbench_client.analysis.estimates.figures import SampleRows, figures_of
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.documents.summary import ClientHealth
from specbench_client.metrics.tidy_frame import steady_rows, tidy
from specbench_testing.present import present
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, frame_of, point_of, record

WORLD = SyntheticRun(prompts=30, concurrency=(3,), repeats=1)
BASELINE, NGRAM = WORLD.plan.points


def test_acceptance_length_is_exactly_the_synthetic_runs() -> None:
    summary, frame = point_of(WORLD, NGRAM)
    rows = [row for row in frame.to_dict("records") if row["phase"] == "steady"]
    steps = sum(len(row["step_accepted"]) for row in rows)
    accepted = sum(sum(row["step_accepted"]) for row in rows)
    assert summary.figures["acceptance_length_emitted_pooled"].value == pytest.approx(1 + accepted / steps, abs=1e-12)
    assert summary.figures["acceptance_length_verified_pooled"].value == pytest.approx(1 + accepted / steps, abs=1e-12)
    assert summary.figures["acceptance_rate"].value == pytest.approx(accepted / (WORLD.drafts * steps), abs=1e-12)
    each = [1 + np.mean(row["step_accepted"]) for row in rows]
    assert summary.figures["acceptance_length_emitted_mean"].value == pytest.approx(np.mean(each), abs=1e-12)


def test_throughput_per_gpu_needs_a_gpu_count() -> None:
    assert point_of(WORLD, NGRAM)[0].figures["output_tps_per_gpu"].value is None
    world = SyntheticRun(prompts=30, concurrency=(3,), repeats=1, edits={"spec.placement": {"gpus": 4}})
    figures = point_of(world, world.plan.points[1])[0].figures
    assert figures["output_tps_per_gpu"].value == pytest.approx(present(figures["output_tps"].value) / 4)


def test_endpoint_acceptance_has_as_many_positions_as_were_ever_accepted() -> None:
    frame = WORLD.records(NGRAM)
    figures = figures_of(SampleRows(tidy([frame], NGRAM.hash)), drafts=0, gpus=0)
    assert {name for name in figures if name.startswith("position_acceptance_rate_")} == {
        f"position_acceptance_rate_{at}" for at in (1, 2, 3)
    }
    assert {f"accepted_exactly_{count}" for count in range(4)} <= set(figures)


def test_counts_exclude_warm_up_and_separate_steady_requests() -> None:
    summary, frame = point_of(WORLD, BASELINE)
    assert summary.counts.requests == 30 == len(frame) - WORLD.warmup
    assert summary.counts.steady_requests == len(steady_rows(tidy([frame]))) < 30
    assert summary.counts.output_tokens == sum(frame["output_tokens"][WORLD.warmup :])
    assert (summary.counts.prompts, summary.counts.conversations, summary.counts.failed_requests) == (30, 30, 0)


def test_missing_client_health_is_derived_from_the_records() -> None:
    summary, _ = point_of(WORLD, BASELINE)
    watch = summary.client_health
    assert watch.reached_concurrency == pytest.approx(3, rel=0.02)
    assert watch.duration_s is not None
    assert 0.5 < present(watch.steady_share) < 1


def test_measured_client_health_is_used() -> None:
    seen = ClientHealth(reached_concurrency=2.9, duration_s=7.0, steady_share=0.5)
    summary, _ = point_of(WORLD, BASELINE, Corruptions(watch=lambda *_: seen))
    assert summary.client_health == seen


def test_point_whose_requests_all_failed_is_summarised() -> None:
    failure = {"error_class": "refused", "sent_ns": None, "last_token_ns": None}
    failed = frame_of([record(conversation_id=f"p{number}#0", **failure) for number in range(4)])
    summary = summarise_point(WORLD.plan, NGRAM, tidy([failed]), ClientHealth(), None, simulated=False)
    assert summary.counts.failed_requests == 4
    assert {figure.value for figure in summary.figures.values()} == {None}
    assert {finding.check for finding in summary.findings} == {"RequestsFailed", "NoSteadyState"}


def test_empty_records_give_no_steady_state() -> None:
    summary = summarise_point(WORLD.plan, NGRAM, tidy([frame_of([])]), ClientHealth(), None, simulated=True)
    assert summary.counts.requests == 0
    assert summary.simulated
    assert [finding.check for finding in summary.findings] == ["NoSteadyState"]


def test_throughput_window_is_reported_with_its_bounds_and_share() -> None:
    summary, frame = point_of(WORLD, NGRAM)
    measured = frame[frame.phase != "warmup"]
    inside = measured[measured.phase == "steady"]
    window, tokens_a_second = summary.window, summary.figures["output_tps"].value
    assert window is not None
    assert tokens_a_second is not None
    assert (window.start_ns, window.end_ns) == (inside.sent_ns.min(), inside.last_token_ns.max())
    whole_ns = measured.last_token_ns.max() - measured.sent_ns.min()
    assert window.share == pytest.approx((window.end_ns - window.start_ns) / whole_ns)
    arrived = [
        count
        for times, counts in zip(measured.chunk_ns, measured.chunk_tokens, strict=True)
        for at, count in zip(times, counts, strict=True)
        if window.start_ns <= at <= window.end_ns
    ]
    assert tokens_a_second == pytest.approx(sum(arrived) / window.length_s)


def test_figures_of_an_uncorrupted_point_have_their_source_and_no_interval() -> None:
    summary, _ = point_of(WORLD, NGRAM)
    assert summary.findings == point_of(WORLD, BASELINE)[0].findings == []
    sources = {name: summary.figures[name].source for name in ("ttft_ms_p50", "acceptance_rate", "tpot_ms_p50")}
    assert sources == {"ttft_ms_p50": "client", "acceptance_rate": "engine (per_step)", "tpot_ms_p50": "both"}
    assert all(figure.interval is None for figure in summary.figures.values())
    assert type(summary).from_json(summary.to_json()) == summary
