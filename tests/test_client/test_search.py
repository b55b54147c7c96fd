"""The search of a run: which arms it launches again, when it ends, and what it says about arms that ended early."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from specbench_api.outcome.layout import STATUS
from specbench_api.outcome.status_document import StatusDocument
from specbench_api.plan.plan import Point
from specbench_client.documents.figure import Verdict
from specbench_client.documents.summary import Cell, ClientHealth
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.corrupted_records import failing
from specbench_testing.present import present
from specbench_testing.runs_with_rounds import Retried
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

ARMS = ("fast", "same", "slow", "slower", "slowest")
WORLD = SyntheticRun(
    prompts=24,
    drafters=ARMS,
    step_ms={"fast": 12.0, "same": 12.1, "slow": 20.0, "slower": 30.0, "slowest": 50.0, "none": 11.0},
    edits={"spec.search": {"worthPercent": 15}, "spec.load": {"concurrency": [1], "repeats": 6}},
)


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Retried:
    return Retried(WORLD, Corruptions(), tmp_path, monkeypatch)


def test_only_arms_that_may_change_the_answer_are_launched_again(searched: Retried) -> None:
    run = searched.run(retries=0)
    counts = Counter(group.arm for group in run.plan.groups)
    assert counts["slowest"] == counts["slower"] == 1
    assert counts["none"] == counts["fast"] == max(counts.values()) < 6, "it ends before its last round"
    assert sum(counts.values()) < 3 * 6, "fewer launches than three repeats of everything"
    assert run.is_finished is False, "it is concluded below"
    summary = conclude(run.plan, run.store)
    assert run.reopened().is_finished
    assert (summary.missing, summary.points_total) == ([], len(run.plan.points))
    assert summary.trustworthy
    assert present(summary.recommendation).sentence.startswith("For throughput: use fast at concurrency 1")
    document = StatusDocument.from_json(run.store.get(STATUS) or b"")
    assert [set(cells) for cells in document.rounds] == [set(cells) for cells in run.plan.rounds_added]


def test_an_arm_that_was_launched_once_has_an_interval_from_the_others(searched: Retried) -> None:
    run = searched.run(retries=0)
    cells = {cell.arm: cell for cell in conclude(run.plan, run.store).cells}
    steady = replace(WORLD, run_noise=0.0, edits={"spec.load": {"concurrency": [1], "repeats": 1}})
    truths = {cell.arm: cell for cell in run_of_world(steady).cells}
    for arm, verdict in (("fast", Verdict.FASTER), ("slowest", Verdict.SLOWER)):
        speedup = present(cells[arm].speedup)
        interval = present(speedup.interval)
        assert interval.low < present(present(truths[arm].speedup).value) < interval.high
        assert interval.runs == "launches"
        assert present(cells[arm].claims).overall is verdict
        assert speedup.missing == ""
    assert cells["slowest"].compared_repeats == 1
    assert width(cells["slowest"]) > width(cells["fast"]), "it has one launch, the other several"


def width(cell: Cell) -> float:
    interval = present(present(cell.speedup).interval)
    return interval.high / interval.low


def test_a_search_that_was_interrupted_goes_on_as_if_it_had_not_been(
    searched: Retried, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = searched.run(retries=0).plan.groups
    again = replace(searched, folder=tmp_path / "again", measured=[])
    for interrupted_after in (3, 5, 2):
        again.interrupted_after = interrupted_after
        with pytest.raises(KeyboardInterrupt):
            again.run(retries=0)
    again.interrupted_after = None
    assert again.run(retries=0).plan.groups == expected


def test_a_search_ends_after_its_last_round(searched: Retried) -> None:
    searched.world = replace(WORLD, run_noise=0.2, edits={**WORLD.edits, "spec.load.repeats": 3})
    run = searched.run(retries=2)
    assert {point.repeat for point in run.plan.points} == {0, 1, 2}
    conclude(run.plan, run.store)
    assert len(StatusDocument.from_json(run.store.get(STATUS) or b"").rounds) == 2, "no other one is requested"


def test_nothing_pays_after_two_rounds(searched: Retried) -> None:
    searched.world = replace(WORLD, step_ms={**dict.fromkeys(ARMS, 40.0), "none": 11.0})
    assert searched.run(retries=0).plan.added_rounds <= 2


@pytest.mark.parametrize(("arm", "last"), [("slow", 1), ("none", 0), ("slowest", 0)])
def test_an_arm_without_a_sound_comparison_is_measured_once_more(searched: Retried, arm: str, last: int) -> None:
    """A late client spoiled its points, or those of the baseline, up to a repeat."""

    def watch(point: Point, honest: ClientHealth) -> ClientHealth:
        return honest.model_copy(update={"cpu_share": 0.95} if (point.arm == arm and point.repeat <= last) else {})

    searched.corruptions = Corruptions(watch=watch)
    run = searched.run(retries=0)
    summary = conclude(run.plan, run.store)
    (cell,) = (each for each in summary.cells if each.arm == "slowest")
    assert cell.valid
    assert present(cell.speedup).interval is not None
    repeats = {point.repeat for point in run.plan.points if point.arm == "slowest"}
    assert repeats == ({0, 1} if arm != "slow" else {0})
    saturated = [each for each in summary.findings if each.check == "ClientSaturated"]
    assert not [each for each in saturated if each.severity.is_doubt]
    assert all("; repeat 1 is left out" in each.message or "; repeat 2 is" in each.message for each in saturated)
    assert saturated


def test_an_arm_whose_server_is_at_fault_is_not_launched_again(searched: Retried) -> None:
    def fail(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return failing(frame) if point.arm == "fast" else frame

    searched.corruptions = Corruptions(records=fail)
    counts = Counter(group.arm for group in searched.run(retries=0).plan.groups)
    assert counts["fast"] == 1
    assert counts["same"] > 1
