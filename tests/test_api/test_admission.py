"""A real API server accepts the definition, and rejects what `specbench validate` rejects. Nothing is mocked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generators.custom_resources import RUN
from generators.structural_schema import Schema, walk
from specbench_api.errors import InvalidSpec
from specbench_api.launch.support_matrix import support_of
from specbench_api.spec.parsing import parse_run
from specbench_testing.api_server_runs import Definition, Runs
from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.invalid_specs import INVALID_SPECS, VALID_SPECS, InvalidSpecCase
from specbench_testing.resources import MISSING, Resource, resource

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def runs(cluster: Cluster, crd: Definition) -> Iterator[Runs]:
    """SpecBenchRuns of a namespace of our own."""
    with cluster.namespace("admission") as namespace:
        yield Runs(cluster, namespace)


def test_the_definition_is_structural_and_established(crd: Definition) -> None:
    conditions = {row["type"]: row["status"] for row in crd.status["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions


def test_the_server_keeps_the_definition_as_it_was_generated(crd: Definition) -> None:
    wanted = RUN.definition()["spec"]["versions"][0]["schema"]
    assert crd.spec["versions"][0]["schema"] == wanted


@pytest.mark.parametrize("refusal", INVALID_SPECS, ids=lambda refusal: refusal.why)
def test_the_server_rejects_an_invalid_spec_with_path_and_remedy(refusal: InvalidSpecCase, runs: Runs) -> None:
    message = runs.refusal_of(refusal.resource)
    assert refusal.path in message
    assert refusal.remedy in message


@pytest.mark.parametrize(("why", "edits"), VALID_SPECS, ids=[why for why, _ in VALID_SPECS])
def test_the_server_takes_a_good_spec(why: str, edits: Mapping[str, Any], runs: Runs) -> None:
    assert runs.try_out(resource(edits))["kind"] == "SpecBenchRun"


def test_the_server_fills_in_the_very_defaults_of_the_models(runs: Runs) -> None:
    stored = runs.try_out(resource())
    assert stored["spec"] == parse_run(resource()).spec.to_dict()


def test_the_server_keeps_a_null_that_an_engine_is_meant_to_read(runs: Runs) -> None:
    body = {"top_k": None, "deep": {"a": None}}
    stored = runs.try_out(resource({"spec.workloads[0].extraBody": body}))
    assert stored["spec"]["workloads"][0]["extraBody"] == body


def test_a_run_is_unfinished_from_its_first_moment(runs: Runs) -> None:
    """kstatus takes a missing status for a finished one; -1 is no generation, so it says InProgress."""
    assert runs.create(resource(name="fresh"))["status"] == {"observedGeneration": -1}


@pytest.mark.parametrize(
    "edits",
    [
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
        {"spec.model.tokenSecret": {"name": "hub"}},
        {"spec.results.s3.prefix": "elsewhere"},
        {"spec.engine.version": "1"},
    ],
    ids=lambda edits: next(iter(edits)),
)
def test_what_is_measured_is_immutable(edits: Mapping[str, Any], runs: Runs) -> None:
    runs.apply(resource(name="fixed"))
    with pytest.raises(ApiError, match="what is measured cannot be changed in an existing run"):
        runs.apply(resource(edits, name="fixed"))


def test_a_field_of_the_extra_body_cannot_change_its_name_or_its_depth(runs: Runs) -> None:
    """The server compares a map by its keys and whole values; an open object it would not compare so."""
    body = "spec.workloads[0].extraBody"
    runs.apply(resource({body: {"top_k": 20, "deep": {"a": [1]}}}, name="extra"))
    for other in ({"min_p": 20, "deep": {"a": [1]}}, {"top_k": 20, "deep": {"a": [2]}}, {"top_k": 20}):
        with pytest.raises(ApiError, match="what is measured cannot be changed in an existing run"):
            runs.apply(resource({body: other}, name="extra"))


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.suspend": True},
        {"spec.activeDeadlineSeconds": 600},
        {"spec.startupDeadlineSeconds": 60},
        {"spec.ttlSecondsAfterFinished": 0},
        {"metadata.labels": {"team": "a"}},
        {"spec.gate": {"baselineRef": {"run": "main"}}},
        {"spec.slo": {"tpotMs": 35}},
    ],
    ids=lambda edits: next(iter(edits)),
)
def test_suspension_gate_targets_and_deadlines_may_change(edits: Mapping[str, Any], runs: Runs) -> None:
    runs.apply(resource(name="living"))
    assert runs.apply(resource(edits, name="living"))["metadata"]["name"] == "living"


def test_applying_the_same_file_twice_changes_nothing(runs: Runs) -> None:
    first = runs.apply(resource(name="same"))
    assert runs.apply(resource(name="same"))["metadata"]["generation"] == first["metadata"]["generation"]


def test_the_table_of_kubectl_shows_the_columns_that_matter(runs: Runs) -> None:
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


def test_the_status_is_written_apart_from_the_spec(runs: Runs) -> None:
    runs.apply(resource(name="apart"))
    runs.apply({**resource(name="apart"), "status": {"phase": "Succeeded"}})
    assert "phase" not in runs.get("apart")["status"]


def test_two_conditions_of_one_type_are_refused(runs: Runs) -> None:
    runs.apply(resource(name="twice"))
    ready = _ready("A", "")
    with pytest.raises(ApiError, match="Duplicate value"):
        runs.set_status("twice", {"observedGeneration": 1, "conditions": [ready, ready]})


def _ready(reason: str, message: str) -> dict[str, Any]:
    moment = "2026-01-01T00:00:00Z"
    return {"type": "Ready", "status": "True", "reason": reason, "message": message, "lastTransitionTime": moment}


def _paths() -> list[str]:
    found: list[str] = []

    def note(path: str, _: Schema) -> None:
        found.append(path.replace("[]", "[0]").replace("{}", ".key"))

    walk(RUN.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec", note)
    return found


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
        "imagePullSecrets": ["s"],
        "nodeSelector": {},
        "clientNodeSelector": {},
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


@settings(max_examples=600, deadline=None, derandomize=True)
@given(
    base=st.sampled_from([WHOLE, {**WHOLE, **OPEN_LOOP}]),
    edits=st.dictionaries(st.sampled_from(_paths()), VALUES, min_size=1, max_size=2),
)
def test_server_and_models_agree_about_any_edit(runs: Runs, base: dict[str, Any], edits: dict[str, Any]) -> None:
    try:
        spec = resource({**base, **edits})
    except (KeyError, IndexError, TypeError, AttributeError):
        return  # the edits take each other's ground away
    assert _server_takes(spec, runs) == _models_take(spec), json.dumps(spec)


def _server_takes(spec: Resource, runs: Runs) -> bool:
    try:
        runs.try_out(spec)
    except ApiError:
        return False
    return True


def _models_take(spec: Resource) -> bool:
    """As far as admission goes: reading, and the pairs that exist. The rest of planning is no admission."""
    try:
        run = parse_run(spec)
    except InvalidSpec:
        return False
    return all(support_of(run.spec.engine.kind, drafter.method).supported for drafter in run.spec.drafters)
