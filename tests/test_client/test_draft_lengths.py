"""The best measured draft length at each load, and the schedule of an engine that follows from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.outcome.termination import Exit
from specbench_client.analysis.curves.draft_lengths import NO_BATCH, NO_SETTING, NOTHING_PAYS, best_draft_lengths
from specbench_client.analysis.estimates.speedups import SPEEDUP, paired_speedup
from specbench_client.cli import exit_code
from specbench_client.documents.curves import DraftLengthTable
from specbench_client.documents.figure import Verdict
from specbench_client.metrics.pairing import pair_requests
from specbench_client.report.text.curves import draft_lengths_table, schedule_lines
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.run import Run
from specbench_testing.local_results import store_results
from specbench_testing.present import present
from specbench_testing.result_pairs import result_of
from specbench_testing.synthetic_records import ONE, UNCORRUPTED, Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

UID = "0190a000-0000-7000-8000-000000000000"
LOADS = (1, 4)


def arm(length: int, **fields: Any) -> dict[str, Any]:
    return {"name": f"k{length}", "method": "ngram", "numSpeculativeTokens": length, "promptLookupMax": 4, **fields}


def world(step_ms: Mapping[str, float], *more: Mapping[str, Any], engine: str = "vllm", **changes: Any) -> SyntheticRun:
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
    return result_of(world(FAST), SWITCHING)


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
    table = table_of(world({**FAST, "both": 30.0}, schedule), SWITCHING)
    assert present(table.schedule).run_as == "both"
    assert table.arms == ["k5", "k3", "k4"], "a schedule has no single draft length"
    assert schedule_lines(table)[-1] == "Run as a schedule by both: the report has its figures."


@pytest.mark.parametrize(
    ("run", "corruptions", "why"),
    [
        (world(dict.fromkeys(FAST, 60.0)), Corruptions(), NOTHING_PAYS),
        (world(FAST), Corruptions(), "one draft length is the best at every measured load: numSpeculativeTokens: 3"),
        (world(FAST, engine="simulator"), SWITCHING, NO_SETTING),
        (world(FAST, edits={"spec.workloads[0].thinkTime": {"seconds": 1}}, turns=2), SWITCHING, NO_BATCH),
    ],
    ids=["nothing pays", "one length", "engine", "think time"],
)
def test_without_a_schedule_the_reason_is_given(run: SyntheticRun, corruptions: Corruptions, why: str) -> None:
    table = table_of(run, corruptions)
    assert (table.schedule, table.why_no_schedule) == (None, why)
    assert schedule_lines(table) == [f"No schedule: {why}."]


def test_with_too_few_repeats_there_are_neither_intervals_nor_a_conclusion() -> None:
    table = table_of(world(FAST, repeats=2))
    assert {each.conclusion for each in table.loads} == {Verdict.TOO_FEW_REPEATS}
    assert not any("[" in cell for row in draft_lengths_table(table).rows for cell in row)


def test_invalid_cells_are_left_out() -> None:
    failing = Corruptions(records=lambda point, frame: frame.assign(error_class="x") if point.arm == "k3" else frame)
    result = result_of(world(FAST), failing)
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
    where = stored(tmp_path, world(FAST, concurrency=(1,)))
    assert exit_code(["analyze", "draft-lengths", where]) == Exit.OK
    printed = capsys.readouterr().out
    assert "Best draft length: k5, k3, k4 on chat" in printed
    assert "No schedule: one draft length is the best at every measured load" in " ".join(printed.split())
    assert exit_code(["analyze", "draft-lengths", where, "--workload", "chat", "--output", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert [each["draftTokens"] for each in document["tables"][0]["loads"]] == [3]


@pytest.mark.parametrize(("options", "reason"), [([], "NoDraftLengths"), (["--workload", "x"], "NoSuchWorkload")])
def test_a_run_without_comparable_lengths_is_rejected(
    options: Sequence[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = stored(tmp_path, world(FAST, concurrency=(1,), repeats=1, edits={"spec.baseline": "Skip"}))
    assert exit_code(["analyze", "draft-lengths", where, "--output", "json", *options]) == Exit.BAD_INPUT
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["reason"] == reason
