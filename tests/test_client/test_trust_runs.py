"""Checks on a run as a whole and its launches, and valid runs without findings."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.provenance import FACTS, FactComparability, FactName, LaunchRecord
from specbench_api.plan.plan import Arm, Point
from specbench_api.spec.engine import Endpoint
from specbench_client.documents.finding import Severity
from specbench_client.trust import checks
from specbench_client.trust.check import Check, CheckResult
from specbench_client.trust.checks import engine
from specbench_client.trust.checks.engine import ENDPOINTS_SHARE_A_HOST
from specbench_client.trust.evidence import RunEvidence
from specbench_client.trust.registry import ANSWER_CHECKS, CELL_CHECKS, CHECK_BY_NAME, POINT_CHECKS, RUN_CHECKS
from specbench_testing.long_cases import long_after
from specbench_testing.observed_launches import observed_launch
from specbench_testing.present import present
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_findings, run_of_world

pytestmark = pytest.mark.runs

INVALID, WARNING, INFO = Severity.INVALID, Severity.WARNING, Severity.INFO
NO_BASELINE = {"spec.baseline": "Skip"}
SEQUENTIAL = {"concurrency": [1], "repeats": 3, "order": "Sequential"}
DRAFTING_COLUMNS = ("steps", "draft_steps", "drafted_tokens", "accepted_tokens", "step_accepted", "acceptance_source")
ALL: tuple[Check[Any], ...] = (*POINT_CHECKS, *CELL_CHECKS, *ANSWER_CHECKS, *RUN_CHECKS)


def found(world: SyntheticRun, corruptions: Corruptions | None = None) -> list[tuple[str, Severity]]:
    return [(finding.check, finding.severity) for finding in run_findings(world, corruptions or Corruptions())]


def small(**edits: Any) -> SyntheticRun:
    return SyntheticRun(prompts=20, categories=ONE, edits=edits)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({}, []),
        ({"spec.drafters": []}, []),
        (NO_BASELINE, [("AcceptanceWithoutBaseline", INFO)]),
        ({"spec.load": SEQUENTIAL}, [("NotInterleaved", INFO)]),
        ({"spec.load": SEQUENTIAL, **NO_BASELINE}, [("AcceptanceWithoutBaseline", INFO)]),  # nothing to interleave
        ({"spec.load": {**SEQUENTIAL, "repeats": 1}}, [("TooFewRepeats", WARNING)]),
        ({"spec.workloads[0].output": {"maxTokens": 80, "ignoreEos": True}}, [("IgnoreEos", INFO)]),
        ({"spec.engine": {"kind": "transformers"}}, [("ResearchRuntime", INFO)]),
        (
            {"spec.engine": {"kind": "vllm"}, "spec.drafters[0].speculativeConfig": {"rejection_sample_method": "fly"}},
            [("LossyVerification", INFO)],
        ),
    ],
)
def test_findings_that_the_plan_alone_causes(edits: dict[str, Any], expected: list[tuple[str, Severity]]) -> None:
    assert found(small(**edits)) == expected


def test_acceptance_without_a_baseline_is_info_with_the_length() -> None:
    summary = run_of_world(small(**NO_BASELINE))
    assert summary.trustworthy
    longest = present(summary.cells[0].figures["acceptance_length_emitted_pooled"].value)
    assert [each.value for each in summary.findings] == [pytest.approx(longest, rel=0.1)]

    def without_acceptance(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(**dict.fromkeys(DRAFTING_COLUMNS))

    hidden = Corruptions(records=without_acceptance, counters=lambda *_: None)
    assert "AcceptanceWithoutBaseline" not in dict(found(small(**NO_BASELINE), hidden))


@pytest.mark.parametrize(
    ("prompts", "expected"), [(4, [("TooFewPrompts", WARNING)]), (12, [("TooFewPrompts", INFO)]), (20, [])]
)
def test_few_prompts_are_info_and_very_few_a_warning(prompts: int, expected: list[tuple[str, Severity]]) -> None:
    assert found(SyntheticRun(prompts=prompts, categories=ONE)) == expected


@pytest.mark.parametrize(
    ("repeats", "measured", "words"),
    [
        (2, {("none", 0), ("ngram", 0)}, "no load was measured more than once so far (2 repeats are planned): the"),
        (2, {("none", 0), ("none", 1), ("ngram", 0)}, "no load was measured more than twice: the"),
        (1, {("none", 0)}, "no load was measured more than once: the"),
        (2, {(arm, repeat) for arm in ("none", "ngram") for repeat in (0, 1)}, "each load was measured twice: the"),
    ],
    ids=["one of two repeats", "one arm complete", "one arm missing", "complete"],
)
def test_too_few_repeats_are_counted_as_far_as_they_were_measured(
    repeats: int, measured: set[tuple[str, int]], words: str
) -> None:
    world = SyntheticRun(prompts=20, categories=ONE, repeats=repeats)
    seen = run_findings(world, Corruptions(measured=lambda point: (point.arm, point.repeat) in measured))
    (few,) = [finding for finding in seen if finding.check == "TooFewRepeats"]
    assert few.message.startswith(words)
    assert (few.severity, few.value) == (WARNING, 1 if "once" in words else 2)


@pytest.mark.parametrize(
    ("alone", "also"), [({"spec.baseline": "Skip"}, [("AcceptanceWithoutBaseline", INFO)]), ({"spec.drafters": []}, [])]
)
def test_too_few_repeats_are_info_without_a_comparison(alone: dict[str, Any], also: list[tuple[str, Severity]]) -> None:
    world = SyntheticRun(prompts=20, categories=ONE, repeats=1, edits=alone)
    assert sorted(found(world)) == [*also, ("TooFewRepeats", INFO)]


@pytest.mark.parametrize(
    ("left", "effect", "expected"),
    [
        (910_000, "", []),
        (890_000, "no speed-up of this run includes the cost", [("KvCacheReduced", INFO)]),
        (100, "its speed-ups include the cost", [("KvCacheReduced", INFO)]),
        (None, "", []),
    ],
)
def test_reduced_kv_cache_is_info_with_its_effect_on_the_loads(
    left: int | None, effect: str, expected: list[tuple[str, Severity]]
) -> None:
    launches = (
        observed_launch("none", 0, kv_cache_tokens=1_000_000),
        observed_launch("ngram", 1, kv_cache_tokens=left),
    )
    seen = run_findings(small(), Corruptions(launches=launches))
    assert [(each.check, each.severity) for each in seen] == expected
    assert all(each.arm == "ngram" and effect in each.message for each in seen)


def test_arguments_of_one_arm_are_info() -> None:
    drafter = {"name": "ngram", "method": "ngram", "args": ["--seed=7"]}
    (seen,) = run_findings(small(**{"spec.drafters": [drafter]}))
    assert (seen.check, seen.arm) == ("ArmSpecificArguments", "ngram")
    assert "--seed=7" in seen.message


@pytest.mark.parametrize(("host", "expected"), [("gpu-1", ["none and ngram answer at the same host"]), ("gpu-2", [])])
def test_endpoints_at_one_host_are_info(host: str, expected: list[str]) -> None:
    urls = {"none": "http://gpu-1:8000", "ngram": f"http://{host}:8001"}
    arms = [Arm(name=name, endpoint=Endpoint(name=name, url=url)) for name, url in urls.items()]
    plan = small().plan.model_copy(update={"arms": arms})
    found = ENDPOINTS_SHARE_A_HOST.evaluate(RunEvidence(plan, [], [], {}, simulated=False))
    assert [(each.severity, each.message.partition(",")[0]) for each in found] == [(INFO, text) for text in expected]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("transformers-5.19.0 (research runtime)", [("ResearchRuntime", INFO)]), ("0.33.0", []), (None, [])],
)
def test_endpoint_that_reports_a_research_runtime_is_info(
    version: str | None, expected: list[tuple[str, Severity]]
) -> None:
    assert found(small(), Corruptions(launches=(observed_launch("none", 0, engine_version=version),))) == expected


@pytest.mark.parametrize(("share", "expected"), [(1.0, []), (0.4, [("UserSpaceTimestamps", INFO)]), (None, [])])
def test_user_space_timestamps_are_reported_once_per_run(
    share: float | None, expected: list[tuple[str, Severity]]
) -> None:
    corruptions = Corruptions(watch=lambda _, seen: seen.model_copy(update={"kernel_clock_share": share}))
    assert found(small(), corruptions) == expected


def test_simulated_run_is_info() -> None:
    assert found(small(), Corruptions(simulated=True)) == [("Simulated", INFO)]


def test_missing_points_are_a_warning_and_named() -> None:
    (seen,) = run_findings(small(), Corruptions(measured=lambda point: (point.arm, point.repeat) != ("ngram", 2)))
    assert (seen.check, seen.severity) == ("MissingPoints", WARNING)
    assert "1 of 6 points have no result: ngram/chat at 1, repeat 3" in seen.message


@pytest.mark.draws
@pytest.mark.parametrize("seed", long_after(4, range(50)))
def test_valid_run_has_no_findings(seed: int) -> None:
    load, noise = (1, 2, 4)[seed % 3], (0.002, 0.01)[seed % 2]
    categories = (("code", "chat"), (None,))[seed % 2]
    world = SyntheticRun(20 + 3 * load, 1 + seed // 2 % 2, categories, seed=seed, concurrency=(load,), run_noise=noise)
    summary = run_of_world(world)
    assert (summary.findings, summary.trustworthy, summary.points_invalid) == ([], True, 0)


@pytest.mark.draws
@pytest.mark.parametrize("seed", long_after(2, range(4)))
def test_valid_open_loop_has_only_expected_findings(seed: int) -> None:
    world = SyntheticRun(200, 1 + seed % 2, seed=seed, tokens=(10, 30), rate=(2, 8), repeats=1)
    summary = run_of_world(world)
    # Answers of 10 to 30 tokens are short.
    assert {finding.check for finding in summary.findings} == {"TooFewRepeats", "ShortAnswers"}
    assert [cell.level.label for cell in summary.cells] == ["2/s", "2/s", "8/s", "8/s"]


def test_every_check_is_in_the_registry() -> None:
    modules = [
        importlib.import_module(f"{checks.__name__}.{each.name}") for each in pkgutil.iter_modules(checks.__path__)
    ]
    defined = [value.name for module in modules for value in vars(module).values() if isinstance(value, Check)]
    assert sorted(defined) == sorted(CHECK_BY_NAME)


@pytest.mark.parametrize("check", ALL, ids=lambda check: str(check.name))
def test_every_check_has_a_camel_case_name_and_a_remedy(check: Any) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]{2,62}", check.name)
    assert check.severities
    assert all(text.strip() for text in (check.description, check.threshold, check.rationale, check.remedy))
    assert CHECK_BY_NAME[check.name] is check


WORLD = SyntheticRun(prompts=20, categories=ONE)
SGLANG = SyntheticRun(prompts=20, categories=ONE, edits={"spec.engine.dialect": "sglang"})


def differ(*launches: LaunchRecord, world: SyntheticRun = WORLD) -> Sequence[CheckResult]:
    return engine.ARM_ENVIRONMENTS_DIFFER.evaluate(
        RunEvidence(world.plan, [], [], {}, simulated=False, launches=launches)
    )


def pair(one: dict[str, Any], other: dict[str, Any], world: SyntheticRun = WORLD) -> Sequence[CheckResult]:
    return differ(observed_launch("none", 0, **one), observed_launch("ngram", 1, **other), world=world)


def test_run_whose_launches_differ_is_untrustworthy() -> None:
    launches = (observed_launch("none", 0, dtype="float16"), observed_launch("ngram", 1, dtype="bfloat16"))
    summary = run_of_world(WORLD, Corruptions(launches=launches))
    assert [(finding.check, finding.severity) for finding in summary.findings] == [
        ("ArmEnvironmentsDiffer", Severity.WARNING)
    ]
    assert not summary.trustworthy


@pytest.mark.parametrize(("root", "expected"), [(None, [Severity.WARNING]), ("acme/tiny", [])])
def test_endpoints_with_other_names_of_models_are_a_warning(root: str | None, expected: list[Severity]) -> None:
    """A server that reports what it loaded may call it as it likes; of another, the name is all that is known."""
    arms = [
        Arm(name=name, endpoint=Endpoint(name=name, url=f"http://{name}:8000", model=model))
        for name, model in (("none", "tiny"), ("ngram", "large"))
    ]
    launches = (observed_launch("none", 0, model=root), observed_launch("ngram", 1, model=root))
    plan = WORLD.plan.model_copy(update={"arms": arms})
    found = engine.ARM_ENVIRONMENTS_DIFFER.evaluate(RunEvidence(plan, [], [], {}, simulated=False, launches=launches))
    assert [each.severity for each in found] == expected


@pytest.mark.parametrize("name", [name for name in FACTS if FACTS[name].comparability is FactComparability.MUST])
def test_differing_required_fact_is_a_warning_with_values_and_arms(name: FactName) -> None:
    (finding,) = pair({name.value: "a"}, {name.value: "b"})
    assert (finding.severity, finding.value) == (Severity.WARNING, 2)
    assert finding.message == f'{name} is not the same in all launches: "a" on none, "b" on ngram'


def test_facts_that_a_drafter_changes_are_not_reported() -> None:
    taken = {name.value: 1 for name in FACTS if FACTS[name].comparability is FactComparability.FREE}
    assert {"kv_cache_tokens", "gpu_memory_used_bytes", "drafter_at_work", "started"} <= set(taken)
    assert list(pair(taken, dict.fromkeys(taken, 2))) == []


def test_launches_of_one_arm_are_compared_too() -> None:
    (finding,) = differ(*(observed_launch("none", number, driver=version) for number, version in enumerate("112")))
    assert finding.message == 'driver is not the same in all launches: "1" on none, "2" on none'


def test_arguments_are_compared_except_those_of_drafter_and_process() -> None:
    own = {"speculative_algorithm": None, "spec_x": 1, "port": 30000, "nccl_port": 1, "random_seed": 7, "host": "a"}
    others = dict.fromkeys(own, "other")
    (finding,) = pair(
        {"arguments": {**own, "page_size": 1, "mem_fraction_static": 0.9, "tp_size": 2}},
        {"arguments": {**others, "page_size": 64, "mem_fraction_static": 0.8, "tp_size": 2}},
        SGLANG,
    )
    assert (finding.severity, finding.value) == (Severity.INFO, 2)
    assert finding.message.endswith(
        "launches: page_size (1 on none, 64 on ngram); mem_fraction_static (0.9 on none, 0.8 on ngram)"
    )


SAME: dict[str, Any] = {"dtype": "bfloat16", "max_model_len": 4096, "prefix_cache": False, "node": "a"}


@pytest.mark.parametrize(
    ("one", "other", "world", "expected"),
    [
        (SAME, SAME, WORLD, None),
        ({"dtype": "bfloat16"}, {"dtype": None}, WORLD, None),
        ({"node": "gpu-1"}, {"node": "gpu-2"}, WORLD, (Severity.INFO, '"gpu-1" on none, "gpu-2" on ngram')),
        (
            {"draft_sampling": "greedy"},
            {"draft_sampling": "probabilistic"},
            WORLD,
            (Severity.INFO, '"greedy" on none, "probabilistic" on ngram'),
        ),
        (
            {"draft_verification": "token match"},
            {"draft_verification": "acceptance thresholds (lossy)"},
            WORLD,
            (Severity.INFO, '"token match" on none, "acceptance thresholds (lossy)" on ngram'),
        ),
        ({"cuda_graphs": True}, {"cuda_graphs": 1}, WORLD, (Severity.WARNING, "true on none, 1 on ngram")),
        (
            {"arguments": {"new": [1]}},
            {"arguments": {}},
            SGLANG,
            (Severity.INFO, "new ([1] on none, null on ngram)"),
        ),
        # SGLang lowers max_running_requests to 48 when it speculates, without reporting it.
        (
            {"max_running_requests": 256, "arguments": {"max_running_requests": 256}},
            {"max_running_requests": 48, "arguments": {"max_running_requests": 48}},
            SGLANG,
            (Severity.WARNING, "256 on none, 48 on ngram"),
        ),
    ],
)
def test_pair_of_launches(
    one: dict[str, Any], other: dict[str, Any], world: SyntheticRun, expected: tuple[Severity, str] | None
) -> None:
    found = pair(one, other, world)
    assert [each.severity for each in found] == ([expected[0]] if expected else [])
    assert all(expected and expected[1] in each.message for each in found)
