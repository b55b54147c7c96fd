"""Summaries of points and runs: their figures, what is counted, and what a run has seen."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome.provenance import FactName
from specbench_api.plan.plan import Point
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import DialectName
from specbench_client.analysis.estimates.cell_figures import SampleRows, figures_of
from specbench_client.analysis.estimates.point_rows import load_rows
from specbench_client.analysis.summary.cells import MeasuredCell
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.analysis.summary.run import SHOWN_FACTS, arm_environments, summarise_run
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.documents.summary import ArmEnvironment, Cell, ClientHealth, RunSummary
from specbench_client.metrics.acceptance import EMITTED_POOLED, most_drafts_reported
from specbench_client.metrics.metric_types import RatioMetric
from specbench_client.metrics.tidy_frame import steady_rows
from specbench_client.report.html import render_html
from specbench_client.report.text.applicability import (
    APPLICABILITY_TITLE,
    applicability_line,
    applicability_table,
    environments_table,
)
from specbench_client.report.text.run_report import markdown, run_topics
from specbench_client.report.text.text_table import DASH
from specbench_testing.corrupted_records import undeclared_drafter
from specbench_testing.observed_launches import observed_launch
from specbench_testing.present import present
from specbench_testing.synthetic_records import (
    CREATED,
    Corruptions,
    SyntheticRun,
    frame_of,
    point_of,
    record,
    record_table,
    run_of_world,
    tidy_frames,
)

QUIET = SyntheticRun(prompts=40, repeats=3)


def cell(summary: RunSummary, arm: str, concurrency: int = 1) -> Cell:
    return next(each for each in summary.cells if (each.arm, each.level.concurrency) == (arm, concurrency))


def fail(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(error_class="http_5xx")


@pytest.mark.runs
def test_known_speedup_is_inside_the_interval() -> None:
    summary = run_of_world(QUIET)
    found = cell(summary, "ngram")
    length, rate = found.figures["acceptance_length_emitted_pooled"].value, found.tpot_speedup
    assert length is not None
    assert rate is not None
    assert present(rate.interval).low < length * 10 / 12 < present(rate.interval).high
    assert rate.value == pytest.approx(length * 10 / 12, rel=0.01)
    assert found.speedup is not None
    assert present(found.speedup.value) < present(rate.value), "drafting does not speed up the prefill"


@pytest.mark.runs
def test_cells_are_sorted_by_load_with_the_baseline_first() -> None:
    summary = run_of_world(SyntheticRun(prompts=20, concurrency=(2, 1), repeats=1, drafters=("ngram", "suffix")))
    assert [(each.level.concurrency, each.arm) for each in summary.cells] == [
        (load, arm) for load in (1, 2) for arm in ("none", "ngram", "suffix")
    ]
    assert cell(summary, "none").speedup is None
    assert summary.points_total == summary.points_measured == 6
    assert summary.created == CREATED


@pytest.mark.runs
def test_same_records_give_an_identical_summary() -> None:
    world = SyntheticRun(prompts=12, repeats=2)
    measured = {point.hash: point_of(world, point) for point in world.plan.points}

    def summarise() -> RunSummary:
        records = {name: [record_table(frame)] for name, (_, frame) in measured.items()}
        return summarise_run(world.plan, [summary for summary, _ in measured.values()], records, CREATED)

    first = summarise()
    assert summarise().to_json() == first.to_json()
    assert run_of_world(world, one_stream=True).to_json() == first.to_json(), "the tests' helper gives the same summary"
    assert RunSummary.from_json(first.to_json()) == first


@pytest.mark.runs
def test_arm_with_a_missing_point_is_compared_in_its_other_repeats() -> None:
    summary = run_of_world(QUIET, Corruptions(measured=lambda point: (point.arm, point.repeat) != ("ngram", 1)))
    found = cell(summary, "ngram")
    assert len(found.points) == 2
    assert "80 pairs" in present(found.speedup).definition
    assert [finding.check for finding in summary.findings] == ["MissingPoints"]


@pytest.mark.runs
@pytest.mark.parametrize(
    ("world", "corruptions", "words", "missing"),
    [
        (SyntheticRun(prompts=24, edits={"spec.baseline": "Skip"}), Corruptions(), "no baseline, so no speed-up", 0),
        (QUIET, Corruptions(measured=lambda point: point.arm != "none"), "the baseline is unknown", 3),
    ],
    ids=["skipped", "not measured"],
)
def test_without_a_baseline_there_is_no_speedup(
    world: SyntheticRun, corruptions: Corruptions, words: str, missing: int
) -> None:
    summary = run_of_world(world, corruptions)
    assert [each.speedup for each in summary.cells] == [None]
    assert words in summary.headline
    assert (len(summary.missing), summary.trustworthy) == (missing, not missing)


@pytest.mark.runs
def test_unmeasured_run_is_not_trustworthy() -> None:
    summary = run_of_world(QUIET, Corruptions(measured=lambda _: False))
    assert [finding.check for finding in summary.findings] == ["MissingPoints"]
    assert (summary.cells, summary.points_measured) == ([], 0)
    assert summary.headline == "Not trustworthy (MissingPoints): Nothing was measured."


@pytest.mark.runs
def test_invalid_baseline_invalidates_the_comparisons() -> None:
    corruptions = Corruptions(records=lambda point, frame: fail(point, frame) if point.arm == "none" else frame)
    summary = run_of_world(QUIET, corruptions)
    assert not cell(summary, "ngram").valid
    assert "BaselineInvalid" in cell(summary, "ngram").findings
    assert summary.points_invalid == 3


@pytest.mark.runs
def test_invalid_point_of_one_arm_does_not_affect_other_arms() -> None:
    world = SyntheticRun(prompts=24, drafters=("ngram", "suffix"))
    corruptions = Corruptions(
        records=lambda point, frame: fail(point, frame) if (point.arm, point.repeat) == ("ngram", 0) else frame
    )
    summary = run_of_world(world, corruptions)
    assert (cell(summary, "ngram").valid, cell(summary, "suffix").valid) == (False, True)
    assert summary.points_invalid == 1
    assert not summary.trustworthy


@pytest.mark.runs
def test_categories_are_compared_and_one_prompt_has_no_interval() -> None:
    world = SyntheticRun(prompts=14, categories=("code",) * 12 + ("odd", None))
    by_category = cell(run_of_world(world), "ngram").by_category
    assert sorted(by_category) == ["code", "odd"]
    assert by_category["code"]["speedup"].interval is not None
    assert by_category["odd"]["speedup"].value is not None
    assert (by_category["odd"]["speedup"].interval, by_category["odd"]["speedup"].n) == (None, 1)


@pytest.mark.runs
def test_conversations_are_compared_in_the_turns_that_have_equal_histories() -> None:
    def other_words(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(output_sha256=[f"{point.arm}{point.repeat}-{index}" for index in range(len(frame))])

    world = SyntheticRun(prompts=24, turns=2, temperature=1.0)
    summary = run_of_world(world, Corruptions(records=other_words))
    assert "72 later turns unpaired" in present(cell(summary, "ngram").speedup).definition
    assert [finding.check for finding in summary.findings] == ["UnpairedRequests"]
    assert summary.trustworthy
    equal = cell(run_of_world(SyntheticRun(prompts=24, turns=2)), "ngram").speedup
    assert "144 pairs" in present(equal).definition


@pytest.mark.runs
def test_acceptance_length_interval_stays_within_possible_values() -> None:
    world = SyntheticRun(prompts=3, drafts=3, alpha={"ngram": 0.2}, alpha_spread=0.2, tokens=(6, 9), repeats=1)
    drafted = next(cell for cell in run_of_world(world).cells if cell.arm == "ngram")
    lengths = [figure for name, figure in drafted.figures.items() if name.startswith("acceptance_length")]
    assert len(lengths) == 4
    for figure in lengths:
        assert figure.interval is not None
        assert 1 <= figure.interval.low <= figure.interval.high <= 4
        assert figure.interval.method.endswith("limited to possible values, from 1 to 4")


@pytest.mark.runs
@pytest.mark.parametrize(("reported", "limits"), [(True, "from 1 to 4"), (False, "from 1 on")])
def test_an_acceptance_length_of_an_endpoint_is_limited_by_the_drafts_of_its_answers(
    reported: bool, limits: str
) -> None:
    world = SyntheticRun(prompts=3, drafts=3, alpha={"ngram": 0.2}, alpha_spread=0.2, tokens=(6, 9), repeats=1)
    point = next(each for each in world.plan.points if each.arm == "ngram")
    records = world.records(point)
    rows = tidy_frames([records if reported else records.assign(drafted_tokens=None, draft_steps=None)], point.hash)
    length = figures_of(SampleRows(rows, 1), 0, 0)["acceptance_length_emitted_pooled"]
    assert present(length.interval).method.endswith(limits)
    plan, _ = undeclared_drafter(world, DialectName.VLLM)
    measured = MeasuredCell(plan, plan.arm("ngram"), plan.workloads[0], point.level, rows, ())
    assert measured.most_drafts == (3 if reported else 0)
    deeper = records.assign(step_accepted=records["step_accepted"].map(lambda steps: [4, *steps[1:]]))
    rows = tidy_frames([deeper], point.hash)
    assert most_drafts_reported(rows) == 4, "one step may have more than the answer's mean"


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
    figures = figures_of(SampleRows(tidy_frames([frame], NGRAM.hash)), drafts=0, gpus=0)
    assert {name for name in figures if name.startswith("position_acceptance_rate_")} == {
        f"position_acceptance_rate_{at}" for at in (1, 2, 3)
    }
    assert {f"accepted_exactly_{count}" for count in range(4)} <= set(figures)


def test_counts_exclude_warm_up_and_separate_steady_requests() -> None:
    summary, frame = point_of(WORLD, BASELINE)
    assert summary.counts.requests == 30 == len(frame) - WORLD.warmup
    assert summary.counts.steady_requests == len(steady_rows(tidy_frames([frame]))) < 30
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
    summary = summarise_point(WORLD.plan, NGRAM, tidy_frames([failed]), ClientHealth(), None, simulated=False)
    assert summary.counts.failed_requests == 4
    assert {figure.value for figure in summary.figures.values()} == {None}
    assert {finding.check for finding in summary.findings} == {"RequestsFailed", "NoSteadyState"}


def test_empty_records_give_no_steady_state() -> None:
    summary = summarise_point(WORLD.plan, NGRAM, tidy_frames([frame_of([])]), ClientHealth(), None, simulated=True)
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


LAUNCHED = SyntheticRun(prompts=4, drafters=("ngram", "suffix"))
KV = FactName.KV_CACHE_TOKENS


def rows(*launches: object) -> dict[str, ArmEnvironment]:
    return {row.arm: row for row in arm_environments(LAUNCHED.plan, launches)}  # type: ignore[arg-type]


def kv_cache_lost(row: ArmEnvironment) -> float | None:
    return present(row.kv_cache_lost).value


@pytest.mark.runs
def test_launched_arms_have_one_row_in_plan_order() -> None:
    found = rows(observed_launch("suffix", 2), observed_launch("none", 0), observed_launch("none", 3))
    assert {arm: row.launches for arm, row in found.items()} == {"none": ["0-a", "3-a"], "suffix": ["2-a"]}
    assert list(found) == ["none", "suffix"]
    assert all(set(row.facts) == set(SHOWN_FACTS) for row in found.values())


@pytest.mark.runs
def test_kv_cache_loss_is_relative_to_the_baseline() -> None:
    found = rows(observed_launch("none", 0, kv_cache_tokens=1000), observed_launch("ngram", 1, kv_cache_tokens=750))
    assert kv_cache_lost(found["ngram"]) == pytest.approx(0.25)
    assert found["none"].kv_cache_lost is None


@pytest.mark.runs
def test_values_that_vary_between_launches_are_reported_as_median() -> None:
    base = [observed_launch("none", number, kv_cache_tokens=tokens) for number, tokens in enumerate((990, 1000, 1100))]
    mine = [
        observed_launch("ngram", number, kv_cache_tokens=tokens) for number, tokens in enumerate((400, 500, 600), 3)
    ]
    found = rows(*base, *mine)
    assert found["none"].facts[KV].value == 1000
    assert found["none"].facts[KV].source == "a witness; the median of 3 launches"
    assert kv_cache_lost(found["ngram"]) == pytest.approx(0.5)
    assert present(found["ngram"].kv_cache_lost).n == 3


@pytest.mark.runs
@pytest.mark.parametrize(("baseline", "arm"), [(None, 750), (1000, None), (0, 0)])
def test_unknown_kv_cache_loss_has_no_value(baseline: int | None, arm: int | None) -> None:
    mine = observed_launch("ngram", 1, kv_cache_tokens=arm)
    assert kv_cache_lost(rows(observed_launch("none", 0, kv_cache_tokens=baseline), mine)["ngram"]) is None
    assert kv_cache_lost(rows(mine)["ngram"]) is None, "without a baseline"


@pytest.mark.runs
def test_texts_that_differ_between_launches_are_listed_in_the_reason() -> None:
    fact = rows(observed_launch("none", 0, dtype="float16"), observed_launch("none", 3, dtype="bfloat16"))["none"].facts
    assert fact[FactName.DTYPE].reason == "its launches differ: float16, bfloat16"


@pytest.mark.runs
def test_known_value_of_another_launch_is_used() -> None:
    facts = rows(observed_launch("none", 0, dtype=None), observed_launch("none", 3, dtype="float16"))["none"].facts
    assert facts[FactName.DTYPE].value == "float16"
    assert facts[FactName.GPU].reason == "it was not reported where the engine runs"


SEEN = Corruptions(
    launches=(
        observed_launch("none", 0, engine_version="0.33.0", gpu="NVIDIA H200", gpu_count=2, dtype="bfloat16",
                 max_model_len=8192, kv_cache_tokens=400_000),
        observed_launch("ngram", 1, engine_version="0.33.0", cpu="A processor", dtype="bfloat16", quantization="fp8",
                 kv_cache_tokens=300_000, drafter_weights_bytes=3 << 20),
    )
)  # fmt: skip


@pytest.mark.runs
@pytest.mark.usefixtures("undrawn")
def test_environment_rows_show_engine_machine_and_cost_with_dashes() -> None:
    summary = run_of_world(LAUNCHED, SEEN)
    assert environments_table(summary).rows == [
        ["none", "1", "0.33.0", "2 × NVIDIA H200", "bfloat16", "8,192", "400,000", "–", "–"],
        ["ngram", "1", "0.33.0", "A processor", "bfloat16, fp8", "–", "300,000", "25.0%", "3 MiB"],
    ]
    assert ">Engines and hardware</h2>" in render_html(LAUNCHED.plan, summary)
    assert "Engines and hardware" not in render_html(LAUNCHED.plan, run_of_world(LAUNCHED))


GERMAN = SyntheticRun(prompts=6, concurrency=(1, 2), edits={"spec.workloads[0].dataset.languages": ["de", "ko"]})
ON_H100 = (
    observed_launch("none", 0, engine_version="0.33.0", gpu="H100", gpu_count=4, dtype="bfloat16", quantization="fp8"),
    observed_launch("ngram", 1, engine_version="0.33.0", gpu="H100", gpu_count=4, dtype="bfloat16", quantization="fp8"),
)


def applicability_values(world: SyntheticRun, corruptions: Corruptions) -> dict[str, str]:
    return {row[0]: row[1] for row in applicability_table(world.plan, run_of_world(world, corruptions)).rows}


@pytest.mark.runs
def test_memory_row_shows_the_kv_cache_share_a_drafter_takes() -> None:
    seen = (observed_launch("none", 0, kv_cache_tokens=1000), observed_launch("ngram", 1, kv_cache_tokens=750))
    assert applicability_values(GERMAN, Corruptions(launches=seen))["Memory"] == "ngram takes 25.0% of the KV cache"


@pytest.mark.runs
def test_applicability_is_in_html_markdown_and_terminal_output() -> None:
    plan, summary = GERMAN.plan, run_of_world(GERMAN, Corruptions(launches=ON_H100))
    assert APPLICABILITY_TITLE in [topic.title for topic in run_topics(plan, summary)]
    assert f"## {APPLICABILITY_TITLE}" in markdown(plan, summary)
    line = applicability_line(plan, summary)
    assert line.startswith("these prompts and their language, ")
    assert all(word in line for word in ("bfloat16, fp8", "4 × H100", "concurrency 1, 2"))
    assert "quantisation unknown" in applicability_line(plan, run_of_world(GERMAN))


@pytest.mark.runs
def test_known_conditions_are_shown_and_unknown_ones_are_a_dash() -> None:
    values = applicability_values(GERMAN, Corruptions(launches=ON_H100))
    assert values["Batch"] == "concurrency 1, 2"
    assert values["Prompt cache"] == "disabled"
    assert (values["Language"], values["Quantisation"], values["Hardware"]) == ("de, ko", "bfloat16, fp8", "4 × H100")
    assert values["Engine"].endswith(" 0.33.0")
    assert values["Acceptance"].startswith("ngram ")
    assert f"at most {GERMAN.tokens[1]}" in values["Output length"]
    unknown = applicability_values(GERMAN, Corruptions())
    assert {unknown[name] for name in ("Memory", "Quantisation", "Hardware")} == {DASH}


@pytest.mark.parametrize(
    ("bounds", "value", "ratio", "expected"),
    [
        ((0.5, 3), 2, replace(EMITTED_POOLED, highest=4.0), (1, 3, "; limited to possible values, from 1 to 4")),
        ((2, 5), 4, replace(EMITTED_POOLED, highest=4.0), (2, 4, "; limited to possible values, from 1 to 4")),
        ((0.5, 3), 1, EMITTED_POOLED, (1, 3, "; limited to possible values, from 1 on")),
        ((0.5, 3), 1 - 1e-12, EMITTED_POOLED, (1, 3, "; limited to possible values, from 1 on")),
        ((1, 4), 2, replace(EMITTED_POOLED, highest=4.0), (1, 4, "")),
        ((0.5, 6), 4.5, replace(EMITTED_POOLED, highest=4.0), (0.5, 6, "")),  # the value itself is impossible
        ((0.5, 6), 0.9, EMITTED_POOLED, (0.5, 6, "")),
    ],
)
def test_intervals_are_limited_to_possible_values(
    bounds: tuple[float, float], value: float, ratio: RatioMetric, expected: tuple[float, float, str]
) -> None:
    interval = FigureInterval(low=bounds[0], high=bounds[1], method="t")
    figure = Figure(value=value, unit=ratio.unit, definition="d", n=1, source="both", interval=interval)
    found = present(figure.within(ratio.lowest, ratio.highest).interval)
    assert (found.low, found.high, found.method.removeprefix("t")) == expected


@pytest.mark.parametrize("measured", list(product([True, False], repeat=2)))
def test_points_without_measured_rows_do_not_matter(measured: tuple[bool, ...]) -> None:
    world = SyntheticRun(prompts=4, concurrency=(1,), repeats=2)
    points = [point for point in world.plan.points if point.arm == BASELINE_NAME]
    frames = {point.hash: world.records(point) for point in points}
    records = {
        name: [record_table(frame if has_rows else frame[frame["phase"] == "warmup"])]
        for (name, frame), has_rows in zip(frames.items(), measured, strict=True)
    }
    rows = load_rows(world.plan, [world.honest(point) for point in points], records)
    assert len(rows) == sum(
        (frames[name]["phase"] != "warmup").sum() for name, has_rows in zip(frames, measured, strict=True) if has_rows
    )
