"""Run summaries: order of cells, comparison with the paired baseline, and missing parts."""

from __future__ import annotations

import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_client.analysis.summary.run import summarise_run
from specbench_client.documents.summary import Cell, RunSummary
from specbench_testing.present import present
from specbench_testing.synthetic_records import CREATED, Corruptions, SyntheticRun, point_of, run_of_world

pytestmark = pytest.mark.runs

QUIET = SyntheticRun(prompts=40, repeats=3)


def cell(summary: RunSummary, arm: str, concurrency: int = 1) -> Cell:
    return next(each for each in summary.cells if (each.arm, each.level.concurrency) == (arm, concurrency))


def fail(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(error_class="http_5xx")


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


def test_cells_are_sorted_by_load_with_the_baseline_first() -> None:
    summary = run_of_world(SyntheticRun(prompts=20, concurrency=(2, 1), repeats=1, drafters=("ngram", "suffix")))
    assert [(each.level.concurrency, each.arm) for each in summary.cells] == [
        (load, arm) for load in (1, 2) for arm in ("none", "ngram", "suffix")
    ]
    assert cell(summary, "none").speedup is None
    assert summary.points_total == summary.points_measured == 6
    assert summary.created == CREATED


def test_same_records_give_an_identical_summary() -> None:
    world = SyntheticRun(prompts=12, repeats=2)
    measured = {point.hash: point_of(world, point) for point in world.plan.points}

    def summarise() -> RunSummary:
        records = {name: [frame.copy()] for name, (_, frame) in measured.items()}
        return summarise_run(world.plan, [summary for summary, _ in measured.values()], records, CREATED)

    first = summarise()
    assert summarise().to_json() == first.to_json()
    assert run_of_world(world, one_stream=True).to_json() == first.to_json(), "the tests' helper gives the same summary"
    assert RunSummary.from_json(first.to_json()) == first


def test_arm_with_a_missing_point_is_compared_in_its_other_repeats() -> None:
    summary = run_of_world(QUIET, Corruptions(measured=lambda point: (point.arm, point.repeat) != ("ngram", 1)))
    found = cell(summary, "ngram")
    assert len(found.points) == 2
    assert "80 pairs" in present(found.speedup).definition
    assert [finding.check for finding in summary.findings] == ["MissingPoints"]


@pytest.mark.parametrize(
    ("world", "corruptions", "words", "missing"),
    [
        (SyntheticRun(prompts=24, edits={"spec.baseline": "Skip"}), Corruptions(), "this run has no baseline", 0),
        (QUIET, Corruptions(measured=lambda point: point.arm != "none"), "not comparable", 3),
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


def test_unmeasured_run_is_not_trustworthy() -> None:
    summary = run_of_world(QUIET, Corruptions(measured=lambda _: False))
    assert [finding.check for finding in summary.findings] == ["MissingPoints"]
    assert (summary.cells, summary.points_measured) == ([], 0)
    assert summary.headline == "Nothing was measured. Not trustworthy: MissingPoints (see findings)."


def test_invalid_baseline_invalidates_the_comparisons() -> None:
    corruptions = Corruptions(records=lambda point, frame: fail(point, frame) if point.arm == "none" else frame)
    summary = run_of_world(QUIET, corruptions)
    assert not cell(summary, "ngram").valid
    assert "BaselineInvalid" in cell(summary, "ngram").findings
    assert summary.points_invalid == 3


def test_invalid_point_of_one_arm_does_not_affect_other_arms() -> None:
    world = SyntheticRun(prompts=24, drafters=("ngram", "suffix"))
    corruptions = Corruptions(
        records=lambda point, frame: fail(point, frame) if (point.arm, point.repeat) == ("ngram", 0) else frame
    )
    summary = run_of_world(world, corruptions)
    assert (cell(summary, "ngram").valid, cell(summary, "suffix").valid) == (False, True)
    assert summary.points_invalid == 1
    assert not summary.trustworthy


def test_categories_are_compared_and_one_prompt_has_no_interval() -> None:
    world = SyntheticRun(prompts=14, categories=("code",) * 12 + ("odd", None))
    by_category = cell(run_of_world(world), "ngram").by_category
    assert sorted(by_category) == ["code", "odd"]
    assert by_category["code"]["speedup"].interval is not None
    assert by_category["odd"]["speedup"].value is not None
    assert (by_category["odd"]["speedup"].interval, by_category["odd"]["speedup"].n) == (None, 1)


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


def test_acceptance_length_interval_stays_within_possible_values() -> None:
    world = SyntheticRun(prompts=3, drafts=3, alpha={"ngram": 0.2}, alpha_spread=0.2, tokens=(6, 9), repeats=1)
    drafted = next(cell for cell in run_of_world(world).cells if cell.arm == "ngram")
    lengths = [figure for name, figure in drafted.figures.items() if name.startswith("acceptance_length")]
    assert len(lengths) == 4
    for figure in lengths:
        assert figure.interval is not None
        assert 1 <= figure.interval.low <= figure.interval.high <= 4
        assert figure.interval.method.endswith("limited to possible values, from 1 to 4")
