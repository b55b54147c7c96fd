"""What a user writes is read, or refused with the path and the remedy, by the very rules of admission."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from specbench_api.errors import InvalidSpec, NotYaml
from specbench_api.plan.canonical import digest
from specbench_api.plan.expand import expand
from specbench_api.spec.reading import parse_run, read_run, read_yaml
from specbench_api.spec.run import SpecBenchRun
from specbench_testing.refusals import ACCEPTED, REFUSALS, Refusal
from specbench_testing.resources import resource, run_of


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.why)
def test_a_bad_spec_is_refused_with_its_path_and_its_remedy(refusal: Refusal) -> None:
    with pytest.raises(InvalidSpec) as refused:
        expand(parse_run(refusal.resource)) if refusal.stage == "expanding" else parse_run(refusal.resource)
    problem = next(problem for problem in refused.value.problems if refusal.path in problem.path)
    assert (refusal.locally or refusal.remedy).lower() in str(problem).lower()


@pytest.mark.parametrize(("why", "edits"), ACCEPTED, ids=[why for why, _ in ACCEPTED])
def test_a_good_spec_is_read_and_planned(why: str, edits: Mapping[str, Any]) -> None:
    assert expand(run_of(edits)).points


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_run(resource({"spec.engine.knid": 1, "spec.load.repeats": 0, "spec.results.s3.bucket": "X"}))
    assert [problem.path for problem in refused.value.problems] == [
        "spec.engine.knid",
        "spec.load.repeats",
        "spec.results.s3.bucket",
    ]


def test_a_field_that_resembles_nothing_is_answered_with_what_is_known_there() -> None:
    with pytest.raises(
        InvalidSpec,
        match="known here: concurrency, rate, arrival, slots, requests, durationSeconds, warmupRequests, repeats",
    ):
        parse_run(resource({"spec.load.zzzzzz": 1}))


@pytest.mark.parametrize("value", [float("nan"), {"deep": [float("inf")]}], ids=str)
def test_what_is_no_number_of_json_cannot_be_sent(value: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"extraBody\.field.*: (nan|inf) is no number that JSON has"):
        parse_run(resource({"spec.workloads[0].extraBody": {"field": value}}))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("spec.workloads[0].extraBody", lambda run: run.spec.workloads[0].extra_body),
        ("spec.engine.config", lambda run: run.spec.engine.config),
        ("spec.drafters[0].speculativeConfig", lambda run: run.spec.drafters[0].speculative_config),
    ],
)
def test_a_null_in_an_open_map_is_a_value_and_makes_another_point(
    path: str, found: Callable[[SpecBenchRun], dict[str, Any]]
) -> None:
    engine = {"kind": "tensorrt-llm", "version": "1.2.0"}
    drafter = {"name": "d", "method": "eagle3", "model": "acme/draft"}
    given = {"spec.engine": engine, "spec.drafters[0]": drafter}
    null = run_of({**given, path: {"key": None, "deep": {"key": None, 2026: [None]}}})
    assert found(null) == {"key": None, "deep": {"key": None, "2026": [None]}}
    assert parse_run(null.to_dict()) == null
    hashes = {digest(run_of({**given, path: value}).spec.to_dict()) for value in ({"key": None}, {}, {"key": 0})}
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({"kind": "Deployment"}, "kind: 'Deployment'"),
        ({"apiVersion": "specbench.io/v1"}, "apiVersion: 'specbench.io/v1'"),
    ],
)
def test_another_resource_is_refused_by_what_it_is(edits: Mapping[str, Any], says: str) -> None:
    with pytest.raises(InvalidSpec, match=says):
        parse_run(resource(edits))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "found 0 documents"),
        ("a: 1\n---\nb: 2\n", "found 2 documents"),
        ("- a\n", "found list"),
        ("a: [", "not YAML"),
        ("spec:\n  load: 1\n  load: 2\n", "'load' is written twice"),
        ("a: &a {b: *a}\n", "not YAML: Circular reference"),
        ("a: 2026-13-45\n", "not YAML: month must be"),
        ("a: " + "[" * 5000, "nested too deep"),
    ],
)
def test_text_that_is_no_single_resource_is_refused(text: str, says: str) -> None:
    with pytest.raises(NotYaml, match=says):
        read_yaml(text)


def test_one_document_between_empty_ones_is_read() -> None:
    assert read_yaml("---\n---\na: 1\n---\n") == {"a": 1}


def test_merged_keys_are_no_keys_written_twice() -> None:
    assert read_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\n")["b"] == {"x": 1, "y": 2}


def test_a_version_that_looks_like_a_date_is_text_as_kubectl_reads_it() -> None:
    text = """
apiVersion: specbench.io/v1alpha1
kind: SpecBenchRun
metadata: {name: demo}
spec:
  model: {name: m}
  engine: {kind: simulator, version: 2026-01-31}
  workloads: [{name: w, dataset: {source: jsonl, uri: p.jsonl}}]
  load: {concurrency: [1]}
  results: {s3: {bucket: results}}
"""
    assert read_run(text).spec.engine.version == "2026-01-31"


def test_a_status_that_a_user_pastes_in_is_passed_over() -> None:
    assert parse_run(resource({"status": {"phase": "Nonsense"}})).status is None


def test_reading_keeps_what_the_api_server_adds_to_metadata() -> None:
    run = parse_run(resource({"metadata.uid": "u-1", "metadata.generation": 3, "metadata.managedFields": [{}]}))
    assert (run.metadata.uid, run.metadata.generation) == ("u-1", 3)


@pytest.mark.parametrize("namespace", ["../../../evil", "a/b", "A", ".hidden", "a.b", "-a", ""])
def test_a_namespace_is_a_label_and_no_way_out_of_the_results(namespace: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^metadata\.namespace: (string )?should"):
        parse_run(resource({"metadata.namespace": namespace}))


@pytest.mark.parametrize(
    ("edits", "path"),
    [
        ({"metadata.name": "\ud800"}, "metadata.name"),
        ({"spec.drafters[0].args": ["b", "a\udfff"]}, "spec.drafters[0].args[1]"),
        ({"spec.engine": {"\ud800": 1}}, "spec.engine"),
    ],
    ids=ascii,
)
def test_half_a_surrogate_pair_is_told_with_its_place(edits: Mapping[str, Any], path: str) -> None:
    with pytest.raises(InvalidSpec, match=rf"^{re.escape(path)}: no text: .* \(write the character itself\)$"):
        parse_run(resource(edits))


def test_a_zero_has_no_sign() -> None:
    plus, minus = (run_of({"spec.workloads[0].sampling": {"temperature": zero}}) for zero in (0.0, -0.0))
    assert digest(minus.spec.to_dict()) == digest(plus.spec.to_dict()) == digest(run_of().spec.to_dict())


def test_a_run_survives_its_own_json() -> None:
    run = run_of({"spec.workloads[0].sampling": {"temperature": 0.5}})
    assert type(run).from_json(run.to_json()) == run


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("127.0.0.1:8000", "does not say http:// or https://: give a whole URL, such as http://127.0.0.1:8000"),
        ("http://me:secret@host:1", "holds a name or a password, which would be kept with the results: leave it out"),
        ("http://host:1/v1?key=secret", "goes on behind its path with ? or #: give only where the engine's /v1 lies"),
        ("http://host:99999", "names a port that is none: give the engine's, a whole number from 1 to 65535"),
    ],
)
def test_an_endpoint_that_is_no_plain_address_is_refused_in_words_without_being_repeated(
    endpoint: str, words: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        run_of({"spec.engine": {"kind": "external", "endpoint": endpoint}})
    (problem,) = refused.value.problems
    assert problem.path == "spec.engine.endpoint"
    assert words in problem.message
    assert "secret" not in str(problem)


def test_an_open_map_of_the_client_is_refused_beside_the_engines_template() -> None:
    """By us alone: CEL sees no such map, so the API server takes it and the operator refuses it."""
    spec = resource({"spec.workloads[0].chatTemplate": {"appliedBy": "Engine", "kwargs": {"a": 1}}})
    with pytest.raises(InvalidSpec, match="are the client's"):
        parse_run(spec)
