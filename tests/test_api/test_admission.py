"""A real API server accepts the definition, and rejects what `specbench validate` rejects. Nothing is mocked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generators.custom_resources import RUN
from generators.structural_schema import walk
from specbench_api.errors import InvalidSpec
from specbench_api.launch.supported_methods import support_of
from specbench_api.spec.parsing import parse_run
from specbench_testing.api_server_runs import Definition, Runs
from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.invalid_specs import INVALID_SPECS, VALID_SPECS
from specbench_testing.resources import MISSING, Resource, resource

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def runs(cluster: Cluster, crd: Definition) -> Iterator[Runs]:
    """SpecBenchRuns in a namespace of this module."""
    with cluster.namespace("admission") as namespace:
        yield Runs(cluster, namespace)


def test_the_definition_is_structural_and_stored_as_generated(crd: Definition) -> None:
    assert "NonStructuralSchema" not in {row["type"] for row in crd.status["conditions"]}
    assert crd.spec["versions"][0]["schema"] == RUN.definition()["spec"]["versions"][0]["schema"]


def test_the_server_rejects_each_invalid_spec_with_path_and_remedy_and_accepts_each_valid_one(runs: Runs) -> None:
    messages = {case.why: runs.refusal_of(case.resource) for case in INVALID_SPECS}
    wanted = {case.why: (case.path, case.remedy) for case in INVALID_SPECS}
    assert {why: text for why, text in messages.items() if not all(part in text for part in wanted[why])} == {}
    refused = {why: runs.refusal_of(resource(edits)) for why, edits in VALID_SPECS}
    assert {why: text for why, text in refused.items() if text} == {}


def test_the_server_sets_the_same_defaults_as_the_models(runs: Runs) -> None:
    stored = runs.try_out(resource())
    assert stored["spec"] == parse_run(resource()).spec.to_dict()


def test_the_server_keeps_null_values_in_extra_body(runs: Runs) -> None:
    body = {"top_k": None, "deep": {"a": None}}
    stored = runs.try_out(resource({"spec.workloads[0].extraBody": body}))
    assert stored["spec"]["workloads"][0]["extraBody"] == body


def test_a_new_run_has_observed_generation_minus_one(runs: Runs) -> None:
    """kstatus treats a missing status as finished; generation -1 matches no object, so kstatus reports InProgress."""
    assert runs.create(resource(name="fresh"))["status"] == {"observedGeneration": -1}


MEASURED: list[dict[str, Any]] = [
    {"spec.load.repeats": 9},
    {"spec.load.concurrency[1]": 2},
    {"spec.load.slots": 2},
    {"spec.workloads[0].extraBody": {"top_k": 20}},
    {"spec.model.revision": "v2"},
    {"spec.engine.args": ["--x"]},
    {"spec.drafters[1]": {"name": "suffix", "method": "suffix"}},
    {"spec.drafters": []},
    {"spec.workloads[0].output": {"maxTokens": 7}},
    {"spec.placement": {"gpus": 1}},
    {"spec.placement": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}},
    {"spec.model.tokenSecretRef": {"name": "hub"}},
    {"spec.results.s3.prefix": "elsewhere"},
    {"spec.engine.version": "1"},
]
MUTABLE: list[dict[str, Any]] = [
    {"spec.suspend": True},
    {"spec.activeDeadlineSeconds": 600},
    {"spec.startupDeadlineSeconds": 60},
    {"spec.reportDeadlineSeconds": 60},
    {"spec.retries": 3},
    {"spec.ttlSecondsAfterFinished": 0},
    {"metadata.labels": {"team": "a"}},
    {"spec.gate": {"baselineRef": {"run": "main"}}},
    {"spec.slo": {"tpotMs": 35}},
]


def test_only_fields_that_do_not_define_the_measurement_are_mutable(runs: Runs) -> None:
    runs.apply(resource(name="fixed"))
    for edits in MEASURED:
        with pytest.raises(ApiError, match="what is measured cannot be changed in an existing run"):
            runs.apply(resource(edits, name="fixed"))
    for edits in MUTABLE:
        assert runs.apply(resource(edits, name="fixed"))["metadata"]["name"] == "fixed"


def test_keys_and_nested_values_of_extra_body_are_immutable(runs: Runs) -> None:
    """The server compares a map by its keys and whole values, but not an object without a schema."""
    body = "spec.workloads[0].extraBody"
    runs.apply(resource({body: {"top_k": 20, "deep": {"a": [1]}}}, name="extra"))
    for other in ({"min_p": 20, "deep": {"a": [1]}}, {"top_k": 20, "deep": {"a": [2]}}, {"top_k": 20}):
        with pytest.raises(ApiError, match="what is measured cannot be changed in an existing run"):
            runs.apply(resource({body: other}, name="extra"))


def test_applying_the_same_file_twice_changes_nothing(runs: Runs) -> None:
    first = runs.apply(resource(name="same"))
    assert runs.apply(resource(name="same"))["metadata"]["generation"] == first["metadata"]["generation"]


def test_kubectl_get_prints_the_defined_columns_of_a_run(runs: Runs) -> None:
    runs.apply(resource(name="shown"))
    runs.set_status(
        "shown",
        {
            "observedGeneration": 1,
            "phase": "Succeeded",
            "progress": "6/6",
            "best": "1.83 [1.76, 1.90] ngram@8",
            "trust": "Untrustworthy",
            "problem": "WarmupNotSteady",
            "conditions": [_ready("Finished", "all points are measured")],
        },
    )
    columns, cells = runs.table("shown")
    assert columns == ["Name", *(column["name"] for column in RUN.columns)]
    assert cells[1:11] == [
        "Succeeded", "6/6", "1.83 [1.76, 1.90] ngram@8", "Untrustworthy", "WarmupNotSteady", "simulator", "acme/tiny",
        None, "Finished", "all points are measured",
    ]  # fmt: skip


def test_the_status_is_a_subresource(runs: Runs) -> None:
    runs.apply(resource(name="apart"))
    runs.apply({**resource(name="apart"), "status": {"phase": "Succeeded"}})
    assert "phase" not in runs.get("apart")["status"]


def test_rejects_two_conditions_of_the_same_type(runs: Runs) -> None:
    runs.apply(resource(name="twice"))
    ready = _ready("A", "")
    with pytest.raises(ApiError, match="Duplicate value"):
        runs.set_status("twice", {"observedGeneration": 1, "conditions": [ready, ready]})


def _ready(reason: str, message: str) -> dict[str, Any]:
    timestamp = "2026-01-01T00:00:00Z"
    return {"type": "Ready", "status": "True", "reason": reason, "message": message, "lastTransitionTime": timestamp}


SCHEMA = RUN.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
PATHS = [path.replace("[]", "[0]").replace("{}", ".key") for path, _ in walk(SCHEMA, "spec")]


OPEN_LOOP = {"spec.load": {"rate": [2.5], "slots": 8, "arrival": {"process": "Gamma", "burstiness": 0.5}}}
WHOLE = {
    "spec.model.pvc": {"claimName": "c", "path": "p"},
    "spec.engine": {"kind": "simulator", "args": ["a"], "command": ["c"], "env": [{"name": "A"}]},
    "spec.drafters[0].args": ["x"],
    "spec.workloads[0].dataset.categories": ["c"],
    "spec.workloads[0].sampling": {},
    "spec.workloads[0].output": {},
    "spec.placement": {
        "tolerations": [{"key": "a"}],
        "imagePullSecrets": [{"name": "s"}],
        "nodeSelector": {},
        "client": {"nodeSelector": {}, "resources": {"limits": {"cpu": 1}}},
        "template": {
            "metadata": {"labels": {"team": "a"}, "annotations": {"team": "a"}},
            "spec": {
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
                "containers": [
                    {
                        "name": "engine",
                        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                        "resources": {"limits": {"cpu": "1"}},
                        "securityContext": {"capabilities": {"add": []}},
                    }
                ],
            },
        },
    },
}
VALUES = st.one_of(
    st.just(MISSING),
    st.none(),
    st.booleans(),
    st.integers(-2, 70),
    st.sampled_from([0.5, 2.5, -1, 5000, 3_000_000, 2**31]),
    st.sampled_from(["", "a", "A b", "x" * 33, "x" * 5000, "1", "none", "s3://b/k", "http://h", "8Gi", "a/b", "Skip"]),
    st.sampled_from(
        ["ngram", "eagle", "mtp", "suffix", "llama-cpp", "parquet", "Sequential", "Exists", "NoSchedule", "Trace"]
    ),
    st.sampled_from(
        [[], {}, [1], [1, 1], ["a"], ["a", "a"], {"key": "v"}, {"name": "n"}, [{"name": "n"}, {"name": "n"}]]
    ),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    base=st.sampled_from([WHOLE, {**WHOLE, **OPEN_LOOP}]),
    edits=st.dictionaries(st.sampled_from(PATHS), VALUES, min_size=1, max_size=2),
)
def test_server_and_models_accept_the_same_specs(runs: Runs, base: dict[str, Any], edits: dict[str, Any]) -> None:
    try:
        spec = resource({**base, **edits})
    except (KeyError, IndexError, TypeError, AttributeError):
        return  # one edit removes the parent of the other
    assert (not runs.refusal_of(spec)) == _models_accept(spec), json.dumps(spec)


def _models_accept(spec: Resource) -> bool:
    """The part of validation that admission covers: parsing, and supported pairs of engine and method."""
    try:
        run = parse_run(spec)
    except InvalidSpec:
        return False
    return all(support_of(run.spec.engine.kind, drafter.method).supported for drafter in run.spec.drafters)
