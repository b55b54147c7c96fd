"""Parsing a resource: accepted, or rejected with path and remedy by the rules of admission."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from specbench_api.api_model import ApiModel
from specbench_api.errors import InvalidSpec, NotYaml
from specbench_api.plan.canonical import digest
from specbench_api.plan.expansion import expand
from specbench_api.spec.engine import flaw_of, route_url
from specbench_api.spec.parsing import (
    DEPTH_MAX,
    NODES_MAX,
    TEXT_BYTES_MAX,
    parse_run,
    read_run,
    read_yaml,
    yaml_documents,
)
from specbench_api.spec.pod_template import ONE_CONTAINER, ContainerSecurityContext, EngineContainer, EnginePodSpec
from specbench_api.spec.run import SpecBenchRun
from specbench_testing.invalid_specs import INVALID_SPECS, VALID_SPECS, InvalidSpecCase
from specbench_testing.resources import resource, run_of


@pytest.mark.parametrize("case", INVALID_SPECS, ids=lambda case: case.why)
def test_an_invalid_spec_is_rejected_with_path_and_remedy(case: InvalidSpecCase) -> None:
    with pytest.raises(InvalidSpec) as rejected:
        expand(parse_run(case.resource)) if case.stage == "expanding" else parse_run(case.resource)
    problem = next(problem for problem in rejected.value.problems if case.path in problem.path)
    assert (case.locally or case.remedy).lower() in str(problem).lower()


@pytest.mark.parametrize(("why", "edits"), VALID_SPECS, ids=[why for why, _ in VALID_SPECS])
def test_a_valid_spec_is_parsed_and_planned(why: str, edits: Mapping[str, Any]) -> None:
    assert expand(run_of(edits)).points


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InvalidSpec) as rejected:
        parse_run(resource({"spec.engine.knid": 1, "spec.load.repeats": 0, "spec.results.s3.bucket": "X"}))
    assert [problem.path for problem in rejected.value.problems] == [
        "spec.engine.knid",
        "spec.load.repeats",
        "spec.results.s3.bucket",
    ]


TEMPLATE = "spec.placement.template"
POD = f"{TEMPLATE}.spec"
CLIENT_CPU = "spec.placement.client.resources.limits.cpu"


def engine_container(**fields: Any) -> dict[str, Any]:
    return {POD: {"containers": [{"name": "engine", **fields}]}}


@pytest.mark.parametrize(
    ("edits", "path", "message"),
    [
        (
            {POD: {"containers": [{"name": "engine"}, {"name": "proxy"}]}},
            f"{POD}.containers",
            f"list should have at most 1 item, not 2 ({ONE_CONTAINER})",
        ),
        (
            {POD: {"containers": [{"name": "proxy"}]}},
            f"{POD}.containers[0].name",
            f"input should be 'engine', not 'proxy' ({ONE_CONTAINER})",
        ),
        (
            {TEMPLATE: {"metadata": {"labels": {"sidecar.istio.io/inject": False}}}},
            f"{TEMPLATE}.metadata.labels[sidecar.istio.io/inject]",
            'input should be a valid string, not false (quote it: "false")',
        ),
        (
            engine_container(env=[{"name": "A", "value": "1"}]),
            f"{POD}.containers[0].env[0]",
            "value is not supported here: set plain values in spec.engine.env",
        ),
        ({CLIENT_CPU: 0.5}, CLIENT_CPU, '0.5 is neither text nor a whole number: quote it: "0.5"'),
        (
            {"spec.placement.sharedMemory": 16},
            "spec.placement.sharedMemory",
            'input should be a valid string, not 16 (quote it: "16")',
        ),
        ({POD: {"tolerations": []}}, f"{POD}.tolerations", "unknown field (set placement.tolerations)"),
        (
            {POD: {"serviceAccountName": "a"}},
            f"{POD}.serviceAccountName",
            "unknown field (set placement.engineServiceAccountName)",
        ),
        (engine_container(image="a:1"), f"{POD}.containers[0].image", "unknown field (set engine.image)"),
        (
            {"spec.load.clients": 2},
            "spec.load.clients",
            "unknown field (one client sends the whole load: give it more CPU (placement.client.resources))",
        ),
    ],
    ids=str,
)
def test_an_error_is_one_line_with_a_remedy(edits: Mapping[str, Any], path: str, message: str) -> None:
    with pytest.raises(InvalidSpec) as rejected:
        parse_run(resource(edits))
    assert str(rejected.value) == f"{path}: {message}"
    assert not rejected.value.complete


BODY = "spec.workloads[0].extraBody"


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"spec.load.zzzzzz": 1}, "known fields: concurrency, rate, arrival, slots, requests, requestsPerStream"),
        ({"kind": "Deployment"}, "kind: 'Deployment'"),
        ({"apiVersion": "specbench.io/v1"}, "apiVersion: 'specbench.io/v1'"),
        ({BODY: {"field": float("nan")}}, r"extraBody\.field: nan is not valid JSON"),
        ({BODY: {"field": {"deep": [float("inf")]}}}, r"extraBody\.field.*: inf is not valid JSON"),
        # What the template does not support has an alternative.
        ({POD: {"hostNetwork": True}}, "unknown field .not supported: .*k8s.v1.cni.cncf.io/networks"),
        (
            {POD: {"volumes": [{"name": "a", "hostPath": {"path": "/a"}}]}},
            "unknown field .not supported: .*a local PersistentVolume",
        ),
        (
            engine_container(securityContext={"privileged": True}),
            "unknown field .not supported: .*the capability IPC_LOCK",
        ),
        # CEL cannot access this map, so the API server accepts it and only the operator rejects it.
        (
            {"spec.workloads[0].chatTemplate": {"appliedBy": "Engine", "kwargs": {"a": 1}}},
            "need appliedBy: Client",
        ),
        # A namespace cannot leave the folder of the results.
        *(
            ({"metadata.namespace": namespace}, r"^metadata\.namespace: (string )?should")
            for namespace in ("../../../evil", "a/b", "A", ".hidden", "a.b", "-a", "")
        ),
        # An unpaired surrogate
        *(
            (edits, rf"^{re.escape(path)}: is not valid text: .* \(write the character itself\)$")
            for edits, path in (
                ({"metadata.name": "\ud800"}, "metadata.name"),
                ({"spec.drafters[0].args": ["b", "a\udfff"]}, "spec.drafters[0].args[1]"),
                ({"spec.engine": {"\ud800": 1}}, "spec.engine"),
            )
        ),
    ],
    ids=ascii,
)
def test_what_cannot_be_read_is_rejected_where_it_is(edits: Mapping[str, Any], expected: str) -> None:
    with pytest.raises(InvalidSpec, match=expected):
        parse_run(resource(edits))


@pytest.mark.parametrize("model", [EnginePodSpec, EngineContainer, ContainerSecurityContext])
def test_fields_that_remedies_name_exist(model: type[ApiModel]) -> None:
    spec = run_of({"spec.placement.securityContext": {}}).spec
    for remedy in model.remedies.values():
        named: Any = spec
        for step in remedy.removeprefix("set ").split(".") if remedy.startswith("set ") else ():
            aliases = {field.alias: name for name, field in type(named).model_fields.items()}
            named = getattr(named, aliases[step])


@pytest.mark.parametrize("levels", [100, 5000])
def test_a_value_nested_too_deeply_is_rejected_where_it_is(levels: int) -> None:
    deep: Any = 1
    for level in range(levels):
        deep = [deep] if level % 2 else {"a": deep}
    run = resource({})
    run["spec"]["workloads"][0]["extraBody"] = {"field": deep}
    with pytest.raises(InvalidSpec, match=r"spec: is nested too deeply: more than 64 levels \(nest less\)"):
        parse_run(run)


@pytest.mark.parametrize("shape", [lambda many: [{}] * many, lambda many: {str(row): 0 for row in range(many)}])
def test_a_resource_with_too_many_values_is_rejected_where_they_are(shape: Callable[[int], Any]) -> None:
    run = resource({})
    run["spec"]["workloads"][0]["extraBody"] = {"field": shape(NODES_MAX)}
    with pytest.raises(InvalidSpec, match=r"^spec: has more than 50000 values \(write less, or split the resource\)$"):
        parse_run(run)
    run["spec"]["workloads"][0]["extraBody"] = {"field": shape(NODES_MAX - 100)}
    assert parse_run(run)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("spec.workloads[0].extraBody", lambda run: run.spec.workloads[0].extra_body),
        ("spec.engine.config", lambda run: run.spec.engine.config),
        ("spec.drafters[0].speculativeConfig", lambda run: run.spec.drafters[0].speculative_config),
    ],
)
def test_a_null_in_an_open_map_is_a_value_and_changes_the_hash(
    path: str, found: Callable[[SpecBenchRun], dict[str, Any]]
) -> None:
    engine = {"kind": "tensorrt-llm", "version": "1.2.0"}
    drafter = {"name": "d", "method": "eagle3", "model": "acme/draft"}
    given = {"spec.engine": engine, "spec.drafters[0]": drafter}
    run = run_of({**given, path: {"key": None, "deep": {"key": None, 2026: [None]}}})
    assert found(run) == {"key": None, "deep": {"key": None, "2026": [None]}}
    assert parse_run(run.to_dict()) == run
    hashes = {digest(run_of({**given, path: value}).spec.to_dict()) for value in ({"key": None}, {}, {"key": 0})}
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "found 0 documents"),
        ("a: 1\n---\nb: 2\n", "found 2 documents"),
        ("- a\n", "found list"),
        ("a: [", "not valid YAML"),
        ("a: 2026-13-45\n", "not valid YAML: month must be"),
    ],
)
def test_text_that_is_not_a_single_resource_is_rejected(text: str, expected: str) -> None:
    with pytest.raises(NotYaml, match=expected):
        read_yaml(text)


def test_empty_documents_are_ignored() -> None:
    assert read_yaml("---\n---\na: 1\n---\n") == {"a": 1}


def test_a_version_that_looks_like_a_date_is_text_as_in_kubectl() -> None:
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


def test_parsing_keeps_metadata_of_the_api_server_and_ignores_a_status() -> None:
    meta = {"metadata.uid": "u-1", "metadata.generation": 3, "metadata.managedFields": [{}]}
    run = parse_run(resource({**meta, "status": {"phase": "Nonsense"}}))
    assert (run.metadata.uid, run.metadata.generation, run.status) == ("u-1", 3, None)


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("127.0.0.1:8000", "does not begin with http:// or https://: write a full URL, such as http://127.0.0.1:8000"),
        (
            "http://me:secret@host:1",
            "contains a user name or password, which would be stored with the results: remove it",
        ),
        (
            "http://host:1/v1?key=secret",
            "has a query or fragment (? or #) after its path: write only the part before it",
        ),
        ("http://host:99999", "has an invalid port: write the engine's, a whole number from 1 to 65535"),
    ],
)
def test_an_invalid_endpoint_is_rejected_without_repeating_it(endpoint: str, words: str) -> None:
    with pytest.raises(InvalidSpec) as rejected:
        run_of({
            "spec.engine": {"kind": "external", "endpoints": [{"name": "a", "url": endpoint}]}, "spec.drafters": [],
        })  # fmt: skip
    (problem,) = rejected.value.problems
    assert problem.path == "spec.engine.endpoints[0].url"
    assert words in problem.message
    assert "secret" not in str(problem)


@pytest.mark.parametrize(
    ("address", "path", "url"),
    [
        ("http://h:1", "/v1/models", "http://h:1/v1/models"),
        ("http://[::1]:8000/", "/metrics", "http://[::1]:8000/metrics"),
        ("https://h/api", "/v1/chat/completions", "https://h/api/v1/chat/completions"),
        ("https://h/v1beta/openai/chat/completions", "/v1/completions", "https://h/v1beta/openai/completions"),
        (
            "https://h/openai/deployments/m/chat/completions/?api-version=2024-10-21",
            "/v1/chat/completions",
            "https://h/openai/deployments/m/chat/completions/?api-version=2024-10-21",
        ),
        ("http://h/v1/chat/completions/", "/v1/completions", "http://h/v1/completions/"),
        ("http://h/v1/chat/completions/", "/v1/models", "http://h/v1/models"),
        ("http://h/v1/chat/completions/", "/metrics", "http://h/metrics"),
        ("http://h/a/chat/completions", "/metrics", "http://h/a/metrics"),
        ("http://h/v1/chat/completions", "/v1/models", "http://h/v1/models"),
    ],
)
def test_url_of_a_route(address: str, path: str, url: str) -> None:
    assert flaw_of(address) is None
    assert route_url(address, path) == url


@pytest.mark.parametrize("query", ["?api-version=1&key=secret", "?api-version=", "?api-version=a b", "?API-VERSION=1"])
def test_an_address_has_no_other_query_than_the_version_of_the_api(query: str) -> None:
    assert flaw_of(f"http://h/p{query}") is not None


# YAML that anybody may have written is read in bounded time and memory, or rejected with line and remedy.

# Every level repeats the level before nine times: 9**30 values in fewer than 700 bytes.
BILLION_LAUGHS = "a0: &a0 [x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 3)}]\n" for level in range(1, 30)
)
NESTED_ALIASES = "a0: &a0 [x]\n" + "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 90))
NESTED_MERGES = "a0: &a0 {k: x}\n" + "".join(
    f"a{level}: &a{level} {{<<: [*a{level - 1}, *a{level - 1}], k{level}: 1}}\n" for level in range(1, 40)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(BILLION_LAUGHS, f"more than {NODES_MAX:,} keys and values, aliases repeated.*line", id="laughs"),
        pytest.param(NESTED_MERGES, f"more than {NODES_MAX:,} keys and values", id="merges"),
        pytest.param(NESTED_ALIASES, f"nested too deeply: more than {DEPTH_MAX} levels.*line", id="nested aliases"),
        pytest.param("a: " + "[" * 100_000, "nested too deeply.*line 1", id="lists", marks=pytest.mark.draws),
        pytest.param("- " * 1000, "nested too deeply.*line 1", id="block lists"),
        pytest.param("a: [" + "1," * NODES_MAX + "1]", "more than 50,000 keys", id="values", marks=pytest.mark.draws),
        pytest.param("a: &a [*a]", r"the alias \*a is inside the value that it repeats", id="alias in itself"),
        pytest.param("a: *b", "undefined alias", id="undefined alias"),
        pytest.param("a: " + "1:" * 200_000 + "1", "a number of 400001 characters", id="sexagesimal integer"),
        pytest.param("a: " + "1:" * 300 + "1.5", "a number of 603 characters", id="sexagesimal float"),
        pytest.param("a: 0x" + "f" * 10_000, "a number of 10002 characters", id="hexadecimal"),
        pytest.param('a: !!int ""', "does not fit its type", id="empty integer"),
        pytest.param("a: !!bool maybe", "does not fit its type", id="not a bool"),
        pytest.param("a: !!timestamp soon", "does not fit its type", id="not a timestamp"),
        pytest.param("a: !!python/object/apply:os.getcwd []", "could not determine a constructor", id="python object"),
        pytest.param("{? [a]: 1}", "unhashable key", id="list as a key"),
        pytest.param("a: 1\na: 2", "the key 'a' is written twice.*line 2", id="duplicate key"),
        pytest.param("a: '" + "x" * TEXT_BYTES_MAX + "'", r"run\.yaml: is larger than 1024 KiB", id="large"),
    ],
)  # fmt: skip
def test_hostile_yaml_is_rejected_with_what_and_where(text: str, message: str) -> None:
    with pytest.raises(NotYaml, match=f"(?s){message}") as rejected:
        yaml_documents(text, "run.yaml")
    assert rejected.value.problems[0].path == "run.yaml"
    assert len(str(rejected.value)) < 1000


def test_anchors_aliases_and_merges_within_the_limits_are_read() -> None:
    text = "base: &base {a: 1, b: [1, 2]}\nother: {<<: *base, a: 2}\nlist: [*base, *base]\n"
    (document,) = yaml_documents(text)
    assert document["other"] == {"a": 2, "b": [1, 2]}
    assert document["list"] == [{"a": 1, "b": [1, 2]}] * 2
