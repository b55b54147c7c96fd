"""What is wrong with a run as a whole; and fifty honest runs of which nothing is said."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.plan.plan import Point
from specbench_client.trust import checks
from specbench_client.trust.check import Check
from specbench_client.trust.table import CELL_CHECKS, POINT_CHECKS, REMEDIES, RUN_CHECKS
from specbench_testing.launched import launched
from specbench_testing.records import ONE, Lies, World, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")

INVALID, DOUBT, NOTE = Severity.INVALID, Severity.DOUBT, Severity.NOTE
ALONE = {"spec.baseline": "Skip"}
TOLD = ("steps", "draft_steps", "drafted_tokens", "accepted_tokens", "step_accepted", "acceptance_source")
ALL: tuple[Check[Any], ...] = (*POINT_CHECKS, *CELL_CHECKS, *RUN_CHECKS)


def found(world: World, lies: Lies | None = None) -> list[tuple[str, Severity]]:
    return [(finding.check, finding.severity) for finding in findings(world, lies)]


def findings(world: World, lies: Lies | None = None) -> list[Finding]:
    return run_of_world(world, lies or Lies()).findings


def small(**edits: Any) -> World:
    return World(prompts=20, categories=ONE, edits=edits)


@pytest.mark.parametrize(
    ("prompts", "expected"), [(4, [("FewPrompts", DOUBT)]), (12, [("FewPrompts", NOTE)]), (20, [])]
)
def test_few_prompts_are_noted_and_very_few_doubted(prompts: int, expected: list[tuple[str, Severity]]) -> None:
    assert found(World(prompts=prompts, categories=ONE)) == expected


@pytest.mark.parametrize(
    ("repeats", "expected"), [(1, [("TooFewRepeats", DOUBT)]), (2, [("TooFewRepeats", DOUBT)]), (3, [])]
)
def test_a_comparison_from_too_few_repeats_is_doubted(repeats: int, expected: list[tuple[str, Severity]]) -> None:
    assert found(World(prompts=20, categories=ONE, repeats=repeats)) == expected


@pytest.mark.parametrize(
    ("alone", "also"), [({"spec.baseline": "Skip"}, [("AcceptanceAlone", NOTE)]), ({"spec.drafters": []}, [])]
)
def test_too_few_repeats_are_noted_where_nothing_is_compared(
    alone: dict[str, Any], also: list[tuple[str, Severity]]
) -> None:
    world = World(prompts=20, categories=ONE, repeats=1, edits=alone)
    assert sorted(found(world)) == [*also, ("TooFewRepeats", NOTE)]


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({}, []),
        ({"spec.drafters": []}, []),
        (ALONE, [("AcceptanceAlone", NOTE)]),
    ],
)
def test_acceptance_without_a_baseline_is_noted(edits: dict[str, Any], expected: list[tuple[str, Severity]]) -> None:
    summary = run_of_world(small(**edits))
    assert [(each.check, each.severity) for each in summary.findings] == expected
    assert summary.trustworthy
    longest = [cell.figures["acceptance_length_emitted_pooled"].value or 0 for cell in summary.cells]
    assert all(each.value == pytest.approx(max(longest), rel=0.1) for each in summary.findings)


def test_where_no_acceptance_is_told_none_stands_alone() -> None:
    def untold(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.drop(columns=list(TOLD)).assign(**dict.fromkeys(TOLD))

    seen = found(small(**ALONE), Lies(records=untold, counters=lambda *_: None))
    assert "AcceptanceAlone" not in dict(seen)


@pytest.mark.parametrize(
    ("left", "felt", "expected"),
    [
        (910_000, "", []),
        (890_000, "none of its speed-ups", [("KvCacheLost", NOTE)]),
        (100, "have felt the loss", [("KvCacheLost", NOTE)]),
        (None, "", []),
    ],
)
def test_a_drafter_that_takes_the_kv_caches_room_is_noted_with_what_the_loads_felt(
    left: int | None, felt: str, expected: list[tuple[str, Severity]]
) -> None:
    seen = (launched("none", 0, kv_cache_tokens=1_000_000), launched("ngram", 1, kv_cache_tokens=left))
    summary = run_of_world(small(), Lies(launches=seen))
    assert [(each.check, each.severity) for each in summary.findings] == expected
    assert summary.trustworthy
    assert all(each.arm == "ngram" and felt in each.message for each in summary.findings)


def test_arms_one_after_the_other_are_noted() -> None:
    load = {"concurrency": [1], "repeats": 3, "order": "Sequential"}
    assert found(small(**{"spec.load": load})) == [("NotInterleaved", NOTE)]
    alone = small(**{"spec.load": load, "spec.baseline": "Skip"})
    assert found(alone) == [("AcceptanceAlone", NOTE)], "one arm has nothing to be interleaved with"


def test_one_repeat_cannot_be_interleaved() -> None:
    load = {"concurrency": [1], "repeats": 1, "order": "Sequential"}
    assert found(small(**{"spec.load": load})) == [("TooFewRepeats", DOUBT)]


def test_text_past_its_end_is_noted() -> None:
    seen = findings(small(**{"spec.workloads[0].output": {"maxTokens": 80, "ignoreEos": True}}))
    assert [(each.check, each.severity, each.workload) for each in seen] == [("IgnoreEos", NOTE, "chat")]


def test_arguments_of_one_arm_alone_are_noted() -> None:
    drafter = {"name": "ngram", "method": "ngram", "args": ["--seed=7"]}
    seen = findings(small(**{"spec.drafters": [drafter]}))
    assert [(each.check, each.arm) for each in seen] == [("HiddenDifference", "ngram")]
    assert "--seed=7" in seen[0].message


def test_a_simulation_is_noted_and_stays_trustworthy_as_one() -> None:
    summary = run_of_world(small(), Lies(simulated=True))
    assert [finding.check for finding in summary.findings] == ["Simulated"]
    assert summary.simulated
    assert summary.trustworthy


def test_a_research_runtime_is_noted_and_its_runs_stay_trustworthy() -> None:
    seen = findings(small(**{"spec.engine": {"kind": "transformers"}}))
    assert [(each.check, each.severity) for each in seen] == [("ResearchRuntime", NOTE)]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("transformers-5.19.0 (research runtime)", [("ResearchRuntime", NOTE)]), ("0.33.0", []), (None, [])],
)
def test_an_endpoint_that_says_it_is_a_research_runtime_is_noted(
    version: str | None, expected: list[tuple[str, Severity]]
) -> None:
    summary = run_of_world(small(), Lies(launches=(launched("none", 0, engine_version=version),)))
    assert [(each.check, each.severity) for each in summary.findings] == expected
    assert summary.verdict.startswith("on a research runtime: ") == bool(expected)


@pytest.mark.parametrize(("share", "expected"), [(1.0, []), (0.4, [("LowerGradeClock", NOTE)]), (None, [])])
def test_times_that_are_not_the_kernels_are_noted_once_for_the_run(
    share: float | None, expected: list[tuple[str, Severity]]
) -> None:
    lies = Lies(watch=lambda _, seen: seen.model_copy(update={"kernel_clock_share": share}))
    assert found(small(), lies) == expected


def test_missing_points_are_doubted_and_named() -> None:
    lies = Lies(measured=lambda point: (point.arm, point.repeat) != ("ngram", 2))
    seen = findings(small(), lies)
    assert [(each.check, each.severity) for each in seen] == [("MissingPoints", DOUBT)]
    assert "1 of 6 points have no result: ngram/chat at 1, repeat 2" in seen[0].message


@pytest.mark.draws
@pytest.mark.parametrize("seed", range(50))
def test_an_honest_run_raises_no_alarm(seed: int) -> None:
    load, noise = (1, 2, 4)[seed % 3], (0.002, 0.01)[seed % 2]
    categories = (("code", "chat"), (None,))[seed % 2]
    world = World(20 + 3 * load, 1 + seed // 2 % 2, categories, seed=seed, concurrency=(load,), run_noise=noise)
    summary = run_of_world(world)
    assert summary.findings == []
    assert summary.trustworthy
    assert summary.points_invalid == 0


@pytest.mark.draws
@pytest.mark.parametrize("seed", range(4))
def test_an_honest_open_loop_raises_no_alarm(seed: int) -> None:
    world = World(200, 1 + seed % 2, seed=seed, tokens=(10, 30), rate=(2, 8), repeats=1)
    summary = run_of_world(world)
    notes = {finding.check for finding in summary.findings if finding.severity is Severity.NOTE}
    assert [finding.check for finding in summary.findings if finding.check not in notes] == ["TooFewRepeats"]
    assert notes == {"ShortAnswers"}, "answers of 10 to 30 tokens are what it speaks of"
    assert [cell.level.label for cell in summary.cells] == ["2/s", "2/s", "8/s", "8/s"]


def test_every_file_of_the_room_is_a_check_in_the_table() -> None:
    files = [module.name for module in pkgutil.iter_modules(checks.__path__)]
    told = {importlib.import_module(f"{checks.__name__}.{name}").CHECK.name for name in files}
    assert told == {check.name for check in ALL}
    assert len(files) == len(ALL)


@pytest.mark.parametrize("check", ALL, ids=lambda check: str(check.name))
def test_every_check_has_a_name_for_status_and_says_what_to_do(check: Any) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]{2,62}", check.name)
    assert check.severities
    assert all(text.strip() for text in (check.says, check.threshold, check.argument, check.remedy))
    assert REMEDIES[check.name] == check.remedy
