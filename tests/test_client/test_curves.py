"""Curves: speed-up over load, draft length and output length, and the best draft length at each load."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.plan.plan import Point
from specbench_client.analysis.curves.axes import AXIS_KINDS
from specbench_client.analysis.curves.build import build_curves
from specbench_client.analysis.curves.draft_lengths import NO_BATCH, NO_SETTING, NOTHING_PAYS, best_draft_lengths
from specbench_client.analysis.estimates.speedups import SPEEDUP, paired_speedup
from specbench_client.cli import exit_code
from specbench_client.documents.curves import CrossoverKind, Curves, DraftLengthTable
from specbench_client.documents.figure import FigureInterval, Verdict
from specbench_client.documents.summary import RunSummary
from specbench_client.metrics.pairing import pair_requests
from specbench_client.report.table_renderers import markdown_report
from specbench_client.report.text.curves import (
    break_even_table,
    crossover_lines,
    crossover_table,
    curves_csv,
    curves_report,
    draft_lengths_table,
    schedule_lines,
)
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.run import Run
from specbench_testing.local_results import store_results
from specbench_testing.present import present
from specbench_testing.result_pairs import result_of, without_records
from specbench_testing.synthetic_records import ONE, UNCORRUPTED, Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs


PROMPTS = 8
DATASET = {"source": "jsonl", "uri": "prompts.jsonl"}


def world(**changes: Any) -> SyntheticRun:
    return SyntheticRun(**{"prompts": PROMPTS, "categories": ("code",), "tokens": (16, 32), **changes})


def arms(**lengths: int) -> Mapping[str, Any]:
    """Return edits: arms of one drafter by name, with their draft lengths."""
    return {
        "spec.drafters": [
            {"name": name, "method": "ngram", "numSpeculativeTokens": length, "promptLookupMax": 4}
            for name, length in lengths.items()
        ]
    }


def workloads(*fields: Mapping[str, Any]) -> Mapping[str, Any]:
    common = {"dataset": DATASET, "sampling": {"temperature": 0.0, "seed": 1}, "output": {"maxTokens": 32}}
    return {"spec.workloads": [{"name": f"w{number}", **common, **each} for number, each in enumerate(fields)]}


TEMPERATURES = workloads(*({"sampling": {"temperature": heat, "seed": 1}} for heat in (0.5, 0.0, 1.0)))


@pytest.mark.parametrize(
    ("by", "run", "curves"),
    [
        (
            "draft-tokens",
            world(
                drafters=("k3", "k4", "x"),
                edits={
                    "spec.drafters": [
                        *arms(k4=4, k3=3)["spec.drafters"],
                        {"name": "x", "method": "ngram", "numSpeculativeTokens": 3, "promptLookupMax": 9},
                    ]
                },
            ),
            [("k4, k3 on chat at concurrency 1", [3, 4]), ("x on chat at concurrency 1", [3])],
        ),
        (
            "temperature",
            world(concurrency=(1, 2), edits=TEMPERATURES),
            [(f"ngram on w0, w1, w2 at concurrency {load}", [0, 0.5, 1]) for load in (1, 2)],
        ),
        ("concurrency", world(concurrency=(1, 2, 3)), [("ngram on chat", [1, 2, 3])]),
    ],
    ids=["draft-tokens", "temperature", "concurrency"],
)
def test_cells_that_differ_only_in_the_axis_form_one_curve(
    by: str, run: SyntheticRun, curves: Sequence[tuple[str, Sequence[float]]]
) -> None:
    result = result_of(run)
    found = build_curves(by, result)
    assert [(curve.title, [point.place for point in curve.points]) for curve in found.curves] == curves
    assert found.left_out == []
    points = [point for curve in found.curves for point in curve.points]
    assert found.comparisons == len(points)
    cells = [cell.speedup for cell in result.summary.cells if cell.arm != "none"]
    assert sorted(point.speedup.value or 0 for point in points) == sorted(each.value or 0 for each in cells if each)


def test_curve_over_loads_has_the_summarys_crossover() -> None:
    run = result_of(world(concurrency=(1, 2, 3), prompts=16))
    (curve,) = build_curves("concurrency", run).curves
    assert curve.crossover == run.summary.crossovers[0].crossover


def test_crossover_is_between_the_right_two_points() -> None:
    steps = {"k3": 12.0, "k4": 13.0, "k8": 40.0}
    result = result_of(world(drafters=tuple(steps), step_ms=steps, edits=arms(k8=8, k3=3, k4=4)))
    (curve,) = build_curves("draft-tokens", result).curves
    assert curve.crossover.kind is CrossoverKind.REACHED
    assert 4 < present(curve.crossover.at.value) < 8


def fail_the_arm(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(error_class="x") if point.arm == "ngram" else frame


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (lambda: result_of(world(), Corruptions(records=fail_the_arm)), "invalid (RequestsFailed, NoSteadyState)"),
        (lambda: without_records(result_of(world())), "its records are gone"),
        (lambda: result_of(world(edits={"spec.baseline": "Skip"})), "not compared with a baseline"),
        (lambda: result_of(world(rate=(20.0,), prompts=30)), "it has no concurrency"),
    ],
    ids=["invalid", "no records", "no baseline", "no place"],
)
def test_cells_that_cannot_be_on_a_curve_are_left_out_with_the_reason(measured: Callable[[], Run], reason: str) -> None:
    result = measured()
    found = build_curves("concurrency", result)
    (cell,) = (cell for cell in result.summary.cells if cell.arm == "ngram")
    assert (found.curves, found.left_out) == ([], [f"ngram on chat at {cell.level.words}: {reason}"])
    assert f"left out: {found.left_out[0]}" in curves_report(found).topics[-1].lines


def lengthen_every_other_prompt(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
    long = [int(prompt[1:]) % 2 == 1 if prompt.startswith("p") else False for prompt in frame["prompt_id"]]
    return frame.assign(input_tokens=[2000 if each else 130 for each in long])


def test_requests_are_binned_by_measured_length_and_pooled_over_workloads() -> None:
    corruptions = Corruptions(records=lengthen_every_other_prompt)
    edits = workloads({}, {"dataset": {**DATASET, "uri": "others.jsonl"}})
    (curve,) = build_curves("input-tokens", result_of(world(edits=edits), corruptions)).curves
    assert [(point.label, round(point.place)) for point in curve.points] == [("about 128", 130), ("about 2,048", 2000)]
    assert [point.speedup.n for point in curve.points] == [PROMPTS] * 2, "each bin has half of each set's prompts"
    assert [point.workload for point in curve.points] == ["w0, w1"] * 2
    assert sum(point.pairs for point in curve.points) == 2 * 3 * PROMPTS


def test_output_length_bins_use_the_baselines_lengths() -> None:
    edits = workloads({}, {"output": {"maxTokens": 200}})
    (curve,) = build_curves("output-tokens", result_of(world(tokens=(20, 200), prompts=24, edits=edits))).curves
    labels = [point.label for point in curve.points]
    assert labels == [f"about {2**power}" for power in (4, 5, 6, 7, 8)][-len(labels) :]
    assert all(low.place < high.place for low, high in pairwise(curve.points))
    assert sum(point.pairs for point in curve.points) == 2 * 3 * 24
    assert max(point.speedup.n for point in curve.points) < 24, "both workloads have the same prompts"


def test_conclusions_are_corrected_over_every_point_of_every_curve() -> None:
    equal: dict[str, Any] = {
        "alpha": {"ngram": 0.0},
        "alpha_spread": 0.0,
        "step_ms": {"ngram": 10.0},
        "run_noise": 0.02,
    }
    found = build_curves("temperature", result_of(world(**equal, edits=TEMPERATURES)))
    assert [point.conclusion for point in found.curves[0].points] == [Verdict.INDISTINGUISHABLE] * 3
    assert found.curves[0].crossover.kind is CrossoverKind.INDISTINGUISHABLE


def test_table_shows_no_interval_without_run_variation() -> None:
    found = build_curves("temperature", result_of(world(repeats=2)))
    assert found.curves[0].points[0].conclusion is Verdict.TOO_FEW_REPEATS
    assert found.comparisons == 0
    assert "| 0 | ngram | chat | 16 |" in markdown_report(curves_report(found))
    row = markdown_report(curves_report(found)).split("| 16 |")[1].splitlines()[0]
    assert "[" not in row
    assert "too few repeats" in row
    (line,) = curves_csv(found).splitlines()[1:]
    assert ",,," in line


@pytest.mark.parametrize("by", AXIS_KINDS)
def test_every_axis_has_its_limit_and_round_trips_through_json(by: str) -> None:
    found = build_curves(by, result_of(world(prompts=6, repeats=1)))
    assert found.limit == AXIS_KINDS[by].limit
    assert Curves.from_json(found.to_json()) == found
    assert found.axis == by


@pytest.mark.parametrize("simulated", [False, True])
def test_simulated_curves_are_marked(simulated: bool) -> None:
    found = build_curves("temperature", result_of(world(), replace(UNCORRUPTED, simulated=simulated)))
    assert found.simulated is simulated
    assert ("Simulated." in markdown_report(curves_report(found))) is simulated


# The break-even acceptance length is the ratio of step times, independent of acceptance.


WORLD = SyntheticRun(prompts=24, categories=ONE)
STEP_RATIO = 12 / 10


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return run_of_world(WORLD)


@pytest.mark.parametrize("alpha", [0.2, 0.8])
def test_break_even_is_the_ratio_of_step_times(alpha: float) -> None:
    summary = run_of_world(SyntheticRun(prompts=40, categories=ONE, alpha={"ngram": alpha}))
    cell = summary.cells[1]
    (row,) = break_even_table(summary).rows
    needed, low, high = (float(text) for text in re.findall(r"[\d.]+", row[3]))
    measured, margin = (float(text.split()[0]) for text in row[4:])
    assert low < STEP_RATIO < high
    assert needed == pytest.approx(STEP_RATIO, rel=0.01)
    assert measured == pytest.approx(cell.figures["acceptance_length_emitted_pooled"].value, abs=0.006)
    assert margin == pytest.approx(present(cell.tpot_speedup).value, abs=0.006)


def test_break_even_is_missing_without_steps() -> None:
    without_steps = Corruptions(
        records=lambda _, frame: frame.assign(steps=None, step_accepted=None, accepted_tokens=None)
    )
    assert break_even_table(run_of_world(WORLD, without_steps)).rows == []


@pytest.fixture(scope="module")
def three_loads() -> RunSummary:
    """Return a run with an invalid second load."""
    failing = Corruptions(
        records=lambda at, frame: frame.assign(error_class="x") if at.level.concurrency == 2 else frame
    )
    return run_of_world(SyntheticRun(prompts=14, categories=ONE, concurrency=(1, 2, 4)), failing)


def test_invalid_comparison_is_marked(summary: RunSummary) -> None:
    failing = Corruptions(records=lambda point, frame: frame.assign(error_class="x") if point.repeat == 0 else frame)
    invalid_run = run_of_world(WORLD, failing)
    assert break_even_table(invalid_run).rows[0][2].endswith(" invalid")
    assert break_even_table(summary).rows[0][-1].endswith("]")


def test_one_load_gives_no_crossover(summary: RunSummary) -> None:
    (row,) = crossover_table(summary).rows
    assert row[3] == "no crossover: only concurrency 1 has a usable speed-up"
    assert crossover_lines(summary) == []
    empty = summary.model_copy(update={"crossovers": []})
    assert crossover_table(empty).rows == []


@pytest.mark.parametrize(
    ("low", "suffix"),
    [(0.16, "; 18% [16%, 20%] of the speed-up is lost from the smallest load to the largest"), (-0.01, "")],
)
def test_significant_loss_is_reported(low: float, suffix: str, three_loads: RunSummary) -> None:
    (by_load,) = three_loads.crossovers
    interval = FigureInterval(low=low, high=0.2, level=0.95, method="")
    lost = present(by_load.crossover.lost).model_copy(update={"value": 0.18, "interval": interval})
    crossover = by_load.crossover.model_copy(update={"lost": lost})
    found = [by_load.model_copy(update={"crossover": crossover})]
    (line,) = crossover_lines(three_loads.model_copy(update={"crossovers": found}))
    assert line == f"ngram on chat: {crossover.message}{suffix}"


def test_invalid_loads_and_too_few_repeats_are_left_out_with_a_reason(three_loads: RunSummary) -> None:
    (by_load,) = three_loads.crossovers
    assert by_load.crossover.places == [1.0, 4.0]
    assert by_load.crossover.left_out == ["concurrency 2: invalid (RequestsFailed, NoSteadyState, BaselineInvalid)"]
    (few,) = run_of_world(SyntheticRun(prompts=14, categories=ONE, concurrency=(1, 2), repeats=2)).crossovers
    assert few.crossover.kind is CrossoverKind.INSUFFICIENT_DATA
    assert "2 repeats: too few to tell" in few.crossover.message


UID = "0190a000-0000-7000-8000-000000000000"
LOADS = (1, 4)


def arm(length: int, **fields: Any) -> dict[str, Any]:
    return {"name": f"k{length}", "method": "ngram", "numSpeculativeTokens": length, "promptLookupMax": 4, **fields}


def world_of_lengths(
    step_ms: Mapping[str, float], *more: Mapping[str, Any], engine: str = "vllm", **changes: Any
) -> SyntheticRun:
    """Return a run of the draft lengths 3, 4 and 5, with these step times by arm."""
    drafters = [*(arm(length) for length in (5, 3, 4)), *more]
    edits = {"spec.drafters": drafters, "spec.engine": {"kind": engine}, **changes.pop("edits", {})}
    names = tuple(str(each["name"]) for each in drafters)
    settings = {"prompts": 24, "categories": ONE, "tokens": (16, 32), "concurrency": LOADS, "repeats": 3, **changes}
    return SyntheticRun(drafters=names, step_ms=step_ms, edits=edits, **settings)


def slower_under_load(factors: Mapping[str, float]) -> Corruptions:
    """Return an edit: at the larger load, an arm's answers take so many times as long."""

    def edit(point: Any, frame: Any) -> Any:
        factor = factors.get(point.arm, 1.0) if point.level.concurrency == LOADS[1] else 1.0
        if factor == 1:
            return frame
        begun, slower = frame["intended_ns"], frame.copy()
        for name in ("first_token_ns", "last_token_ns"):
            slower[name] = begun + ((frame[name] - begun) * factor).astype("int64")
        slower["chunk_ns"] = [
            [start + round((at - start) * factor) for at in times]
            for times, start in zip(frame["chunk_ns"], begun, strict=True)
        ]
        return slower

    return Corruptions(records=edit)


FAST = {"k3": 12.0, "k4": 15.0, "k5": 18.0}
SWITCHING = slower_under_load({"k3": 1.6, "k4": 1.1, "k5": 1.6})


def table_of(run: SyntheticRun, corruptions: Corruptions = UNCORRUPTED) -> DraftLengthTable:
    """Return the one table of a run."""
    result = result_of(run, corruptions)
    (table,) = best_draft_lengths(result, result.summary.cells).tables
    return table


@pytest.fixture(scope="module")
def switching() -> Run:
    """Three drafts are the best at one stream, and four at four streams."""
    return result_of(world_of_lengths(FAST), SWITCHING)


def test_best_length_at_each_load_is_compared_with_the_next_best_over_the_same_requests(
    switching: Run,
) -> None:
    (table,) = best_draft_lengths(switching, switching.summary.cells).tables
    assert [(each.load, each.measured) for each in table.loads] == [("1", [0, 3, 4, 5]), ("4", [0, 3, 4, 5])]
    for each, (best, other) in zip(table.loads, ((3, 4), (4, 3)), strict=True):
        assert (each.draft_tokens, each.next_draft_tokens) == (best, other)
        assert each.conclusion is Verdict.FASTER
        keys = [(f"k{length}", "chat", each.load) for length in (best, other)]
        rows = [switching.rows_of(switching.points_of(key)) for key in keys]
        assert each.ratio == paired_speedup(SPEEDUP, pair_requests(rows[0], rows[1], switching.plan), 1).figure
        assert each.speedup == switching.cells_by_key[keys[0]].speedup


def test_schedule_has_the_best_lengths_in_the_engines_form_and_was_not_run(switching: Run) -> None:
    (table,) = best_draft_lengths(switching, switching.summary.cells).tables
    schedule = present(table.schedule)
    assert (schedule.config, schedule.problems, schedule.run_as) == ([[1, 1, 3], [2, 4, 4]], [], None)
    assert "--speculative-config" in schedule.arguments
    assert schedule.drafter["draftLengths"] == [{"batchSize": 1, "tokens": 3}, {"batchSize": 4, "tokens": 4}]
    assert schedule_lines(table)[-1].startswith("Not run as a schedule. To measure it, add the arm {")


def test_a_schedule_that_was_an_arm_is_named() -> None:
    schedule = arm(4, name="both", draftLengths=[{"batchSize": 1, "tokens": 3}, {"batchSize": 4, "tokens": 4}])
    table = table_of(world_of_lengths({**FAST, "both": 30.0}, schedule), SWITCHING)
    assert present(table.schedule).run_as == "both"
    assert table.arms == ["k5", "k3", "k4"], "a schedule has no single draft length"
    assert schedule_lines(table)[-1] == "Run as a schedule by both: the report has its figures."


@pytest.mark.parametrize(
    ("run", "corruptions", "why"),
    [
        (world_of_lengths(dict.fromkeys(FAST, 60.0)), Corruptions(), NOTHING_PAYS),
        (
            world_of_lengths(FAST),
            Corruptions(),
            "one draft length is the best at every measured load: numSpeculativeTokens: 3",
        ),
        (world_of_lengths(FAST, engine="simulator"), SWITCHING, NO_SETTING),
        (world_of_lengths(FAST, edits={"spec.workloads[0].thinkTime": {"seconds": 1}}, turns=2), SWITCHING, NO_BATCH),
    ],
    ids=["nothing pays", "one length", "engine", "think time"],
)
def test_without_a_schedule_the_reason_is_given(run: SyntheticRun, corruptions: Corruptions, why: str) -> None:
    table = table_of(run, corruptions)
    assert (table.schedule, table.why_no_schedule) == (None, why)
    assert schedule_lines(table) == [f"No schedule: {why}."]


def test_with_too_few_repeats_there_are_neither_intervals_nor_a_conclusion() -> None:
    table = table_of(world_of_lengths(FAST, repeats=2))
    assert {each.conclusion for each in table.loads} == {Verdict.TOO_FEW_REPEATS}
    assert not any("[" in cell for row in draft_lengths_table(table).rows for cell in row)


def test_invalid_cells_are_left_out() -> None:
    failing = Corruptions(records=lambda point, frame: frame.assign(error_class="x") if point.arm == "k3" else frame)
    result = result_of(world_of_lengths(FAST), failing)
    found = best_draft_lengths(result, result.summary.cells)
    assert [each.measured for each in found.tables[0].loads] == [[0, 4, 5]] * 2
    assert [line.partition(":")[0] for line in found.left_out] == [
        f"k3 on chat at concurrency {load}" for load in LOADS
    ]


def stored(root: Path, run: SyntheticRun) -> str:
    plan = store_results(run, root, UID)
    FolderStore(root / run_root(plan.namespace, plan.name, UID)).put(SUMMARY, run_of_world(run).to_json().encode())
    return str(root)


def test_command_prints_the_table_and_one_json_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = stored(tmp_path, world_of_lengths(FAST, concurrency=(1,)))
    assert exit_code(["analyze", "draft-lengths", where]) == Exit.OK
    printed = capsys.readouterr().out
    assert "Best draft length: k5, k3, k4 on chat" in printed
    assert "No schedule: one draft length is the best at every measured load" in " ".join(printed.split())
    assert exit_code(["analyze", "draft-lengths", where, "--workload", "chat", "--output", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert [each["draftTokens"] for each in document["tables"][0]["loads"]] == [3]


@pytest.mark.parametrize(
    ("options", "reason", "code"),
    [([], "NoDraftLengths", Exit.UNTRUSTWORTHY), (["--workload", "x"], "NoSuchWorkload", Exit.BAD_INPUT)],
)
def test_a_run_without_comparable_lengths_is_rejected(
    options: Sequence[str], reason: str, code: Exit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = stored(tmp_path, world_of_lengths(FAST, concurrency=(1,), repeats=1, edits={"spec.baseline": "Skip"}))
    assert exit_code(["analyze", "draft-lengths", where, "--output", "json", *options]) == code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["reason"] == reason
