"""Launches that differ in more than the drafter are told, with the fact, the values and the arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from specbench_api.outcome.facts import FACTS, Alike, FactName
from specbench_api.outcome.finding import Severity
from specbench_api.outcome.launched import Launched
from specbench_client.trust.checks import arms_differ
from specbench_client.trust.evidence import RunEvidence, Seen
from specbench_testing.launched import launched
from specbench_testing.records import ONE, Lies, World, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")

WORLD = World(prompts=20, categories=ONE)
SGLANG = World(prompts=20, categories=ONE, edits={"spec.engine.dialect": "sglang"})


def differ(*launches: Launched, world: World = WORLD) -> Sequence[Seen]:
    return arms_differ.CHECK.look(RunEvidence(world.plan, [], [], {}, simulated=False, launches=launches))


def pair(one: dict[str, Any], other: dict[str, Any], world: World = WORLD) -> Sequence[Seen]:
    return differ(launched("none", 0, **one), launched("ngram", 1, **other), world=world)


def test_a_run_whose_launches_differ_is_not_trusted() -> None:
    launches = (launched("none", 0, dtype="float16"), launched("ngram", 1, dtype="bfloat16"))
    summary = run_of_world(WORLD, Lies(launches=launches))
    assert [(finding.check, finding.severity) for finding in summary.findings] == [("ArmsDiffer", Severity.DOUBT)]
    assert not summary.trustworthy


def test_launches_that_are_alike_are_not_spoken_of() -> None:
    same: dict[str, Any] = {"dtype": "bfloat16", "max_model_len": 4096, "prefix_cache": False, "node": "a"}
    assert list(pair(same, same)) == []
    assert list(differ()) == [], "nothing was seen of them"


@pytest.mark.parametrize("name", [name for name in FACTS if FACTS[name].alike is Alike.MUST])
def test_a_fact_that_must_be_alike_is_doubted_with_its_values_and_arms(name: FactName) -> None:
    (finding,) = pair({name.value: "a"}, {name.value: "b"})
    assert (finding.severity, finding.value) == (Severity.DOUBT, 2)
    assert finding.message == f'{name} is not the same in all launches: "a" on none, "b" on ngram'


def test_what_the_drafter_takes_is_expected_and_not_spoken_of() -> None:
    taken = {name.value: 1 for name in FACTS if FACTS[name].alike is Alike.FREE}
    assert {"kv_cache_tokens", "gpu_memory_used_bytes", "drafter_at_work", "started"} <= set(taken)
    assert list(pair(taken, dict.fromkeys(taken, 2))) == []


def test_another_node_is_noted_and_nothing_is_doubted_for_it() -> None:
    (finding,) = pair({"node": "gpu-1"}, {"node": "gpu-2"})
    assert finding.severity is Severity.NOTE


def test_launches_of_one_arm_are_compared_too() -> None:
    (finding,) = differ(*(launched("none", number, driver=version) for number, version in enumerate("112")))
    assert finding.message == 'driver is not the same in all launches: "1" on none, "2" on none'


def test_what_only_one_of_them_tells_is_not_held_against_the_other() -> None:
    assert list(pair({"dtype": "bfloat16"}, {"dtype": None})) == []


def test_flags_and_numbers_are_told_apart() -> None:
    (finding,) = pair({"cuda_graphs": True}, {"cuda_graphs": 1})
    assert "true on none, 1 on ngram" in finding.message


def test_arguments_are_compared_key_by_key_but_for_the_drafters_and_the_processs_own() -> None:
    own = {"speculative_algorithm": None, "spec_x": 1, "port": 30000, "nccl_port": 1, "random_seed": 7, "host": "a"}
    others = dict.fromkeys(own, "other")
    (finding,) = pair(
        {"arguments": {**own, "page_size": 1, "mem_fraction_static": 0.9, "tp_size": 2}},
        {"arguments": {**others, "page_size": 64, "mem_fraction_static": 0.8, "tp_size": 2}},
        SGLANG,
    )
    assert (finding.severity, finding.value) == (Severity.NOTE, 2)
    assert finding.message.endswith(
        "launches: page_size (1 on none, 64 on ngram); mem_fraction_static (0.9 on none, 0.8 on ngram)"
    )


def test_an_argument_that_only_one_of_them_has_differs() -> None:
    (finding,) = pair({"arguments": {"new": [1]}}, {"arguments": {}}, SGLANG)
    assert "new ([1] on none, null on ngram)" in finding.message


def test_an_argument_that_is_a_fact_by_itself_is_said_once() -> None:
    """SGLang lowers max_running_requests to 48 where it speculates: the hidden difference of all hidden differences."""
    one, other = ({"max_running_requests": limit, "arguments": {"max_running_requests": limit}} for limit in (256, 48))
    (finding,) = pair(one, other, SGLANG)
    assert finding.severity is Severity.DOUBT
    assert "256 on none, 48 on ngram" in finding.message


def test_of_many_arguments_the_first_are_named_and_the_rest_are_counted() -> None:
    one, other = ({f"a{number}": value for number in range(11)} for value in ("x" * 100, "y"))
    (finding,) = pair({"arguments": one}, {"arguments": other}, SGLANG)
    assert (finding.value, finding.message.count(" on none")) == (11, 8)
    assert finding.message.endswith(" and 3 more")
    assert "x" * 70 not in finding.message
