"""Restoring a run from the plan in its results, after its resource was lost."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.errors import InvalidSpec
from specbench_api.plan.expansion import expand, restore
from specbench_api.plan.plan import Plan
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.results import S3
from specbench_api.spec.secret_refs import SecretRef
from specbench_testing.resources import resource

UID = "7d0f6bd8-1111-4c4b-9d53-000000000001"
BUCKET = S3(bucket="results", prefix="demo", credentials_secret_ref=SecretRef(name="bench-s3"))
EAGLE = {"name": "e", "method": "eagle3", "model": "acme/eagle", "numSpeculativeTokens": 3}
RUNS: dict[str, dict[str, Any]] = {
    "simulator": {},
    "vllm": {"spec.engine": {"kind": "vllm", "version": "0.33.0"}, "spec.drafters[0]": EAGLE},
    "sglang": {"spec.engine": {"kind": "sglang", "version": "0.5.23"}, "spec.drafters[0]": EAGLE},
    "tensorrt-llm": {"spec.engine": {"kind": "tensorrt-llm", "version": "1.2.1"}, "spec.drafters[0]": EAGLE},
    "llama-cpp": {"spec.engine": {"kind": "llama-cpp", "image": "registry.example/llama:1"}},
    "transformers": {"spec.engine": {"kind": "transformers", "image": "registry.example/transformers:1"}},
    "no baseline": {"spec.baseline": "Skip"},
    "open loop": {"spec.load": {"rate": [2.5], "slots": 8, "repeats": 3, "durationSeconds": 60}},
    "an earlier run's results": {"spec.results.adopt": UID},
}


def planned(edits: dict[str, Any]) -> Plan:
    run = resource(edits)
    run["metadata"]["uid"] = UID
    return expand(parse_run(run))


@pytest.mark.parametrize("edits", RUNS.values(), ids=RUNS.keys())
def test_a_restored_run_has_the_same_plan(edits: dict[str, Any]) -> None:
    plan = planned(edits)
    run = restore(plan, BUCKET)
    again = parse_run({**run.to_dict(), "metadata": {"name": plan.name, "namespace": plan.namespace, "uid": "another"}})
    assert expand(again) == plan
    assert (again.spec.results.adopt, again.results_uid) == (UID, UID)
    assert again.spec.results.s3 == BUCKET


def test_a_plan_that_this_version_would_not_produce_is_rejected() -> None:
    plan = planned({})
    group = plan.groups[0]
    points = [point.model_copy(update={"hash": "0" * 64}) for point in group.points]
    other = plan.model_copy(update={"groups": [group.model_copy(update={"points": points}), *plan.groups[1:]]})
    with pytest.raises(InvalidSpec, match="would plan the run differently and measure everything again"):
        restore(other, BUCKET)
