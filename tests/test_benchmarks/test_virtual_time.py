"""Complete runs in virtual time: corrupted and honest worlds, and two servers compared in turns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specbench_client.documents.figure import Verdict
from specbench_client.documents.finding import Severity
from specbench_client.documents.summary import RunSummary
from specbench_testing.long_cases import long_after
from virtual_time.corrupted_worlds import CORRUPTED_WORLDS
from virtual_time.endpoints import ABAB, ABBA, PAIRS, STEADY, MeasuredRepeats, Outcome, measured_repeats
from virtual_time.endpoints import until_sure as run_until_sure
from virtual_time.honest_worlds import honest_cached_world, honest_world, words
from virtual_time.noise import NO_NOISE
from virtual_time.served_faults import SERVED_FAULTS, ServedRun
from virtual_time.world import World
from virtual_time.world_run import run_of

pytestmark = pytest.mark.draws

NOTES = {"NotInterleaved", "NoisyRepeats", "ShortAnswers", "SingleStreamOnly", "TooFewPrompts", "Simulated"}
"""Findings of severity Info in clean worlds: from their settings, and from the simulated engine."""
SMALL = World(seed=3, prompts=24, repeats=1, output_mean=30, max_tokens=64)


FAULTS = {"ReuseLost", "AcceptanceDecays", "AnswersWorse"}
COMPARE_REPEATS = {*FAULTS, "TemperatureNotApplied"}
OTHER_TEXT = {"GreedyDivergence", "OutputLengthsDiffer"}
"""Doubts about an arm that writes other texts than the baseline."""


def alarms(summary: RunSummary) -> set[str]:
    return {finding.check for finding in summary.findings if finding.severity is not Severity.INFO}


@pytest.mark.parametrize("name", CORRUPTED_WORLDS)
def test_a_corrupted_world_raises_the_expected_alarms(name: str) -> None:
    """One repeat shows the same as the three of `benchmarks/clean-runs`, except where a check compares several."""
    corrupted = CORRUPTED_WORLDS[name]
    repeated = COMPARE_REPEATS.issuperset(corrupted.checks)
    summary = run_of(corrupted.world if repeated else replace(corrupted.world, repeats=1))
    assert set(corrupted.checks) <= alarms(summary), corrupted.words
    doubts = {finding.check for finding in summary.findings if finding.severity.is_doubt}
    assert summary.trustworthy is not bool(doubts)
    doubts -= {"TooFewRepeats"}
    assert doubts <= OTHER_TEXT if set(corrupted.checks) <= FAULTS else doubts, "an arm's fault is no doubt"


HONEST = [*map(honest_world, range(3)), honest_cached_world(4)]
MORE = [*map(honest_world, range(3, 10)), *map(honest_cached_world, range(5, 8))]


@pytest.mark.parametrize("world", long_after(len(HONEST), [*HONEST, *MORE]), ids=words)
def test_a_clean_run_raises_no_alarm(world: World) -> None:
    summary = run_of(world)
    assert [finding for finding in summary.findings if finding.severity is not Severity.INFO] == []
    assert {finding.check for finding in summary.findings} <= NOTES
    assert summary.trustworthy


@pytest.mark.parametrize("name", ["half-of-tasks", "tool-calls", "last-block"])
def test_size_of_a_reported_fault_is_that_of_what_the_engine_did(name: str) -> None:
    fault = SERVED_FAULTS[name]
    served = ServedRun(fault.world(1))
    assert (fault.check, served.cell.level.label) in served.checks
    assert [each.name for each in fault.effects(served) if abs(each.error) >= 0.02] == []


@pytest.mark.parametrize(
    "world",
    [
        replace(honest_world(14), caches=True, shared_tokens=(0, 512, 1536)),
        honest_cached_world(3326),
        honest_cached_world(3626),
    ],
    ids=["prompts-not-cached", "contexts-grow", "engine-pauses"],
)
def test_batches_that_change_are_no_drift_of_step_times(world: World) -> None:
    assert "StepTimeDrift" not in alarms(run_of(world))


def test_a_throttled_engine_with_a_prompt_cache_is_found() -> None:
    throttled = CORRUPTED_WORLDS["throttled"].world
    assert "StepTimeDrift" in alarms(run_of(replace(throttled, caches=True, shared_tokens=(0, 512, 1536))))


def test_a_world_is_determined_by_its_seed() -> None:
    first, again, other = (run_of(replace(SMALL, seed=seed)).to_json() for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_measured_acceptance_and_step_times_match_the_configured_ones() -> None:
    world = replace(SMALL, categories=("code",), prompts=60, acceptance=0.5, noise=NO_NOISE, load={"concurrency": [1]})
    chance = world.config(world.plan.arm("eagle3"), 0).acceptance.positions("code", 3)[0]
    arm, baseline = (cell.figures for cell in run_of(world).cells[::-1])
    assert arm["acceptance_length_verified_pooled"].value == pytest.approx(1 + chance + chance**2 + chance**3, rel=0.07)
    step = world.cost.base_ms + world.cost.per_token_ms
    assert baseline["step_ms_p50"].value == pytest.approx(step + 100 * world.cost.per_kv_ms, rel=0.05)


DRIFT = 0.2


def last(name: str, **changes: object) -> MeasuredRepeats:
    """Measure a pair on machines that get 20 % slower during its four repeats."""
    *_, measured = measured_repeats(replace(PAIRS[name].drifting(DRIFT, 4), **changes))  # type: ignore[arg-type]
    return measured


def test_a_drift_cancels_in_abba_and_not_if_the_baseline_is_always_first() -> None:
    """Blocks are an eighth of the test apart: the later server is 2.3 % slower in each repeat."""
    biases = {order: np.log(value_of(last("equal", noise=STEADY, turns_of_arms=order))) for order in (ABBA, ABAB)}
    assert abs(biases[ABBA]) < 0.006
    assert biases[ABAB] == pytest.approx(-0.023, abs=0.004)


def value_of(measured: MeasuredRepeats) -> float:
    value = measured.speedup(anytime=False).figure.value
    assert value is not None
    return value


@pytest.mark.parametrize("stops", [False, True])
def test_the_speedup_is_that_of_the_cell_of_a_run(stops: bool) -> None:
    measured = last("drafter", stops=stops)
    cell, found = measured.cell(), measured.speedup(anytime=stops)
    assert cell.valid
    assert cell.speedup == found.figure
    assert found.figure.interval is not None
    assert "without the drift between their two orders" in found.figure.interval.method


def test_intervals_under_a_drift_contain_the_truth() -> None:
    pair = PAIRS["equal"].drifting(DRIFT, 4)
    ends = [Outcome.of(list(measured_repeats(replace(pair, seed=seed)))[-1], anytime=False) for seed in range(5)]
    assert sum(end.holds(1.0) for end in ends) >= 4
    assert np.mean([end.width for end in ends]) < 0.12


def test_a_faster_server_is_recognised_and_the_test_ends() -> None:
    pair = replace(PAIRS["10 % faster"].drifting(DRIFT, 8), repeats=16, stops=True)
    end = run_until_sure(pair)["sequence"]
    assert end.claimed is Verdict.FASTER
    assert end.holds(1.1)
    assert 4 <= end.repeats < 16
