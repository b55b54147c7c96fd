"""Two points have the same hash exactly if their specification is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.plan.canonical import (
    POINT_SCHEMA,
    canonical_json,
    canonical_point,
    canonical_run,
    differing_fields,
    digest,
    digest_of_gate,
    plan_digest,
)
from specbench_api.plan.expansion import arms_of, expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.gate import Gate, GateRequest
from specbench_api.spec.load import Level
from specbench_testing.resources import MISSING, run_of

ENGINE_8_CPUS = {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"cpu": "8"}}}]}}
FULL = {
    "spec.model": {"name": "acme/tiny", "revision": "v1", "path": "/models/tiny"},
    "spec.engine": {"kind": "simulator", "version": "1.2", "args": ["--a=b"], "env": [{"name": "A", "value": "ü"}]},
    "spec.drafters[0]": {"name": "ngram", "method": "ngram", "numSpeculativeTokens": 4, "promptLookupMax": 3},
    "spec.workloads[0]": {
        "name": "chat",
        "dataset": {"source": "jsonl", "uri": "prompts.jsonl", "count": 8, "categories": ["qa"]},
        "sampling": {"temperature": 0.5, "topP": 0.9, "seed": 7},
        "output": {"maxTokens": 64},
    },
    "spec.load": {"concurrency": [1, 8], "requests": 16, "warmupRequests": 2, "repeats": 2},
    "spec.placement": {"gpus": 1, "nodeSelector": {"pool": "a"}, "template": ENGINE_8_CPUS},
}
PINNED = "b4a95bb280bc8059ef92747ffb4375058feda9ffe2dff65c3833ccad051f5852"
"""A change invalidates every stored result: it needs a new POINT_SCHEMA and an entry in the change log."""


def hashes(edits: dict[str, Any]) -> list[str]:
    """Hashes of all points, in order."""
    return [point.hash for point in expand(run_of({**FULL, **edits})).points]


def test_the_hash_of_a_pinned_point_stays_the_same() -> None:
    spec = run_of(FULL).spec
    point = canonical_point(spec, arms_of(spec)[1], spec.workloads[0], Level(concurrency=8), 1)
    assert point["schemaVersion"] == POINT_SCHEMA == "specbench.io/point/v6"
    assert digest(point) == PINNED


def test_a_canonical_point_contains_exactly_the_specified_fields() -> None:
    spec = run_of(FULL).spec
    assert canonical_point(spec, arms_of(spec)[1], spec.workloads[0], Level(concurrency=8), 1) == {
        "schemaVersion": "specbench.io/point/v6",
        "model": {"name": "acme/tiny", "revision": "v1", "path": "/models/tiny"},
        "engine": {
            "kind": "simulator",
            "version": "1.2",
            "tensorParallelSize": 1,
            "args": ["--a=b"],
            "config": {},
            "equalizeArms": "Enabled",
            "env": [{"name": "A", "value": "ü"}],
        },
        "drafter": {
            "method": "ngram",
            "numSpeculativeTokens": 4,
            "draftLengths": [],
            "promptLookupMax": 3,
            "speculativeConfig": {},
            "args": [],
        },
        "workload": {
            "dataset": {"source": "jsonl", "uri": "prompts.jsonl", "categories": ["qa"], "count": 8},
            "sampling": {"temperature": 0.5, "topP": 0.9, "seed": 7},
            "output": {"maxTokens": 64, "ignoreEos": False, "stream": True},
            "extraBody": {},
        },
        "load": {
            "level": {"concurrency": 8},
            "slots": 8,
            "requests": 16,
            "durationSeconds": None,
            "warmupRequests": 2,
        },
        "repeat": 1,
        "hardware": {
            "gpus": 1,
            "gpuResourceName": "nvidia.com/gpu",
            "nodeSelector": {"pool": "a"},
            "template": ENGINE_8_CPUS,
        },
        "promptCache": "Disabled",
    }


@pytest.mark.parametrize(
    "edits",
    [
        {"metadata.name": "other"},
        {"metadata.namespace": "other"},
        {"spec.drafters[0].name": "renamed"},
        {"spec.workloads[0].name": "renamed"},
        {"spec.results.s3": {"bucket": "elsewhere", "prefix": "p"}},
        {"spec.suspend": True},
        {"spec.activeDeadlineSeconds": 60},
        {"spec.startupDeadlineSeconds": 60},
        {"spec.reportDeadlineSeconds": 60},
        {"spec.retries": 3},
        {"spec.ttlSecondsAfterFinished": 0},
        {"spec.slo": {"ttftMs": 500, "tpotMs": 35}},
        {"spec.placement.tolerations": [{"key": "gpu", "operator": "Exists"}]},
        {"spec.placement.priorityClassName": "high"},
        {"spec.placement.queueName": "bench"},
        {"spec.placement.queueName": "bench", "spec.placement.queuePriorityClass": "nightly"},
        {"spec.placement.preemptionBudget": 0},
        {"spec.placement.client": {"serviceAccountName": "bench"}},
        {"spec.placement.client": {"resources": {"limits": {"cpu": "4"}}, "tolerations": [{"key": "a"}]}},
        {"spec.placement.pinNode": "Require"},
        {"spec.placement.affinity": {"podAffinity": {}, "nodeAffinity": {}}},
        {"spec.placement.engineServiceAccountName": "cloud"},
        {"spec.placement.sharedMemory": "8Gi"},
        {"spec.placement.modelCache": {"claimName": "cache"}},
        {"spec.model.tokenSecretRef": {"name": "hub", "key": "token"}},
        {"spec.workloads[0].chatTemplate": {"appliedBy": "Engine"}},
        {  # defaults that are written out
            "spec.workloads[0].output.ignoreEos": False,
            "spec.engine.tensorParallelSize": 1,
            "spec.load.clients": 1,
            "spec.drafters[0].args": [],
        },
    ],
    ids=str,
)
def test_names_deadlines_and_locations_do_not_change_the_hash(edits: dict[str, Any]) -> None:
    assert hashes(edits) == hashes({})


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.model.name": "acme/other"},
        {"spec.model.adapter": {"name": "sql", "model": "/m/sql", "rank": 20}},
        {"spec.model.revision": "v2"},
        {"spec.engine.version": "1.3"},
        {"spec.engine.image": "acme/engine:1"},
        {"spec.engine.args": ["--a=c"]},
        {"spec.engine.env": [{"name": "A", "value": "u"}]},
        {"spec.engine.tensorParallelSize": 1, "spec.placement.gpus": 2},
        {"spec.workloads[0].dataset.uri": "other.jsonl"},
        {"spec.workloads[0].dataset.count": 9},
        {"spec.workloads[0].dataset.categories": ["code"]},
        {"spec.workloads[0].systemPrompt": {"tokens": 8}},
        {"spec.workloads[0].thinkTime": {"seconds": 2}},
        {"spec.workloads[0].systemPrompt": {"text": "Be brief."}},
        {"spec.workloads[0].sampling.seed": 8},
        {"spec.workloads[0].sampling.temperature": 0},
        {"spec.workloads[0].output.maxTokens": 65},
        {"spec.workloads[0].output.stream": False},
        {"spec.workloads[0].chatTemplate": {"appliedBy": "Client"}},
        {"spec.workloads[0].extraBody": {"top_k": 20}},
        {"spec.load.requests": 17},
        {"spec.load.warmupRequests": 3},
        {"spec.load.concurrency": [1, 9]},
        {"spec.load.slots": 9},
        {"spec.load.requests": MISSING, "spec.load.durationSeconds": 16},
        {"spec.load.requests": MISSING, "spec.load.requestsPerStream": 15},
        {"spec.placement.nodeSelector": {"pool": "b"}},
        {"spec.placement.gpuResourceName": "amd.com/gpu"},
        {"spec.placement.template": {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "rdma"}}}},
        {"spec.placement.template": {"metadata": {"labels": {"sidecar.istio.io/inject": "false"}}}},
        {"spec.placement.client": {"template": {"metadata": {"labels": {"sidecar.istio.io/inject": "false"}}}}},
        {"spec.placement.template.spec.containers[0].resources.limits.cpu": "9"},
        {"spec.placement.template.spec.containers[0].resources.limits": {"cpu": "8", "rdma/hca": 1}},
        {"spec.placement.resourceClaimTemplateName": "network"},
        {"spec.placement.gpus": 0, "spec.placement.claimedGpus": 1, "spec.placement.resourceClaimTemplateName": "g"},
        {"spec.placement.runtimeClassName": "gvisor"},
        {"spec.placement.nodes": 2},
        {"spec.placement.affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"spec.model.path": MISSING, "spec.model.pvc": {"claimName": "a", "path": "b", "subPath": "c"}},
    ],
    ids=lambda edits: next(iter(edits)),
)
def test_measured_fields_change_the_hash_of_every_point(edits: dict[str, Any]) -> None:
    assert not set(hashes(edits)) & set(hashes({}))


@pytest.mark.parametrize(
    ("engine", "gpus"), [({"kind": "vllm", "tensorParallelSize": 2}, 2), ({"kind": "simulator"}, 0)]
)
def test_gpus_count_alike_whether_given_or_not(engine: dict[str, Any], gpus: int) -> None:
    default, given = (
        run_of({"spec.engine": engine, "spec.placement": placement}) for placement in ({}, {"gpus": gpus})
    )
    assert canonical_run(default.spec) == canonical_run(given.spec)
    assert expand(default).points == expand(given).points


@pytest.mark.parametrize(
    ("edits", "same"),
    [
        ({}, True),
        ({"spec.placement.queueName": "bench"}, True),
        ({"spec.placement.pinNode": "Require", "spec.model.tokenSecretRef": {"name": "hub", "key": "token"}}, True),
        ({"spec.engine.tensorParallelSize": 1}, True),
        ({"spec.load.requests": 17}, False),
        ({"spec.drafters[0].name": "renamed"}, False),
        ({"spec.placement.runtimeClassName": "gvisor"}, False),
        ({"metadata.name": "other"}, False),
    ],
)
def test_the_digest_of_a_plan_is_that_of_what_it_measures(edits: dict[str, Any], same: bool) -> None:
    plan, other = (expand(run_of({**FULL, **each})) for each in ({}, edits))
    assert (plan_digest(plan) == plan_digest(other)) == (not differing_fields(plan, other)) == same
    assert plan_digest(Plan.from_json(other.to_json())) == plan_digest(other)


@pytest.mark.parametrize("field", ["numSpeculativeTokens", "promptLookupMin", "promptLookupMax"])
def test_a_drafters_field_changes_its_own_points_only(field: str) -> None:
    plan, other = (expand(run_of({**FULL, **edits})) for edits in ({}, {f"spec.drafters[0].{field}": 2}))
    by_arm = {
        arm: {p.hash for p in plan.points if p.arm == arm} == {p.hash for p in other.points if p.arm == arm}
        for arm in ("none", "ngram")
    }
    assert by_arm == {"none": True, "ngram": False}


def test_the_settings_of_a_chat_template_change_the_hash() -> None:
    templates: list[dict[str, Any]] = [
        {},
        {"tokenizer": "a/b"},
        {"template": "a"},
        {"name": "a"},
        {"kwargs": {"a": 1}},
        {"date": "2026-01-02"},
    ]
    found = [hashes({"spec.workloads[0].chatTemplate": {"appliedBy": "Client"} | one})[0] for one in templates]
    assert len(set(found)) == len(templates)


OPEN = {"spec.load": {"rate": [2, 0.5], "slots": 8, "durationSeconds": 60, "warmupRequests": 2}}


def test_a_point_of_an_open_loop_contains_its_arrival_process() -> None:
    spec = run_of({**FULL, **OPEN, "spec.load.arrival": {"process": "Gamma", "burstiness": 0.5}}).spec
    assert canonical_point(spec, arms_of(spec)[0], spec.workloads[0], spec.load.levels[0], 0)["load"] == {
        "level": {"rate": 0.5},
        "slots": 8,
        "requests": None,
        "durationSeconds": 60,
        "warmupRequests": 2,
        "arrival": {"process": "Gamma", "burstiness": 0.5, "seed": 0},
    }


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.load.rate": [3, 0.25]},
        {"spec.load.slots": 9},
        {"spec.load.durationSeconds": 61},
        {"spec.load.arrival": {"process": "Constant"}},
        {"spec.load.arrival": {"seed": 1}},
        {"spec.load.arrival": {"maxInFlight": 8}},
        {"spec.load.arrival": {"process": "Gamma", "burstiness": 4}},
        {"spec.load.arrival": {"process": "Trace", "uri": "trace.csv"}},
    ],
    ids=str,
)
def test_arrival_settings_change_the_hash_of_every_point(edits: dict[str, Any]) -> None:
    assert not set(hashes({**OPEN, **edits})) & set(hashes(OPEN))
    assert hashes({**OPEN, "spec.load.arrival": {"process": "Poisson"}}) == hashes(OPEN), "the default process"


def test_an_unscaled_trace_and_a_scaled_one_have_different_hashes() -> None:
    trace = {"spec.load": {"slots": 8, "arrival": {"process": "Trace", "uri": "trace.csv"}}}
    assert not set(hashes(trace)) & set(hashes({**trace, "spec.load.rate": [1]}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.draws
@given(st.dictionaries(st.text(), JSON))
def test_the_digest_ignores_the_order_of_keys(data: dict[str, Any]) -> None:
    assert digest(dict(reversed(data.items()))) == digest(data)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_have_no_canonical_form(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"x": value})


def test_canonical_text_is_compact_and_not_ascii_escaped() -> None:
    assert canonical_json({"b": "ü", "a": [1, None]}) == '{"a":[1,null],"b":"ü"}'


# A gate: its defaults, its digest, and that it changes neither the plan nor any hash.


BARE: dict[str, Any] = {"baselineRef": {"run": "main"}}


def gate_of(**fields: Any) -> Gate:
    return Gate.model_validate({**BARE, **fields})


def test_a_gate_without_tolerances_tests_speedup_and_tpot_at_five_percent() -> None:
    assert [(each.label, each.max_regression_percent) for each in gate_of().effective_tolerances] == [
        ("speedup", 5),
        ("tpot", 5),
    ]
    assert gate_of().confidence == 0.95
    assert (gate_of().on_inconclusive, gate_of().on_missing, gate_of().require_trustworthy) == ("Fail", "Fail", True)


def test_a_gate_does_not_change_the_plan() -> None:
    assert expand(run_of({"spec.gate": BARE})) == expand(run_of())


def test_the_digest_differs_between_gates_and_includes_defaults() -> None:
    assert digest_of_gate(gate_of()) == digest_of_gate(gate_of(confidence=0.95, tolerances=[]))
    assert digest_of_gate(gate_of()) != digest_of_gate(gate_of(confidence=0.9))
    assert digest_of_gate(gate_of()) != digest_of_gate(Gate.model_validate({"baselineRef": {"run": "other"}}))


@pytest.mark.parametrize("uri", ["s3://bucket/$(HOME)/x", "s3://bucket/ü"])
def test_a_gate_request_survives_a_pods_environment(uri: str) -> None:
    request = GateRequest(gate_digest="a", gate=gate_of(), baseline=uri)
    assert "$(" not in request.to_line()
    assert "\n" not in request.to_line()
    assert GateRequest.from_json(request.to_line()) == request
