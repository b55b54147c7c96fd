"""Launches that differ in more than the drafter are reported with the fact, the values and the arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.provenance import FACTS, FactComparability, FactName, LaunchRecord
from specbench_api.plan.plan import Arm
from specbench_api.spec.engine import Endpoint
from specbench_client.trust.check import CheckResult
from specbench_client.trust.checks import engine
from specbench_client.trust.evidence import RunEvidence
from specbench_testing.observed_launches import observed_launch
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

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


def test_first_arguments_are_named_and_the_rest_counted() -> None:
    one, other = ({f"a{number}": value for number in range(11)} for value in ("x" * 100, "y"))
    (finding,) = pair({"arguments": one}, {"arguments": other}, SGLANG)
    assert (finding.value, finding.message.count(" on none")) == (11, 8)
    assert finding.message.endswith(" and 3 more")
    assert "x" * 70 not in finding.message


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
