"""An invalid campaign is rejected with all problems, each with path, message and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from specbench_api.campaign import expansion
from specbench_api.campaign.expansion import expand_campaign, schedule_problem
from specbench_api.errors import InvalidSpec, Problem
from specbench_api.spec.parsing import parse_campaign, parse_resource
from specbench_api.spec.run import RunSpec
from specbench_api.spec.secrets import SECRET_FIELDS, TEMPLATE_SECRETS, TEMPLATE_WORDS, secrets_named
from specbench_testing.campaign_secrets import ACCEPTED, REFUSED
from specbench_testing.resources import ENGINE, TEMPERATURE, campaign, campaign_of, resource


def problems_of(edits: dict[str, Any]) -> list[Problem]:
    with pytest.raises(InvalidSpec) as rejected:
        expand_campaign(campaign_of(edits))
    return list(rejected.value.problems)


LONG = {"path": "load.requests", "values": list(range(1, 65))}
LONGER = {"path": "load.repeats", "values": list(range(1, 33))}
BY_NAME = "workloads[name=chat].sampling.temperature"
MANY = {"path": "load.warmupRequests", "values": [1, 2, 3]}


@pytest.mark.parametrize(
    ("edits", "path", "expected"),
    [
        ({"spec.tmplate": {}}, "spec.tmplate", "did you mean template"),
        ({"spec.template.spec.load.repeats": 0}, "spec.template.spec.load.repeats", "greater than or equal to 1"),
        ({"spec.template.spec.engine.knid": 1}, "spec.template.spec.engine.knid", "did you mean kind"),
        ({"spec.axes[0].value": [1]}, "spec.axes[0].value", "did you mean values"),
        ({"spec.axes[0].values": []}, "spec.axes[0].values", "at least 1 item"),
        ({"spec.axes[0].values": [float("nan")]}, "spec.axes[0].values[0]", "nan is not valid JSON"),
        ({"spec.axes[0].path": ""}, "spec.axes[0].path", "at least 1 character"),
        ({"spec.axes[0].path": "[0].x"}, "spec.axes[0].path", "should match the required form"),
        ({"spec.axes[0].name": "set"}, "spec.axes[0]", "cannot be named set"),
        ({"spec.axes[1].path": "engine.kind"}, "spec.axes", "'engine.kind' is used twice"),
        ({"metadata.name": "n" * 29}, "metadata.name", "at most 28 characters"),
        ({"metadata.name": "9nights"}, "metadata.name", "should match the required form"),
        ({"spec.failurePolicy": "Retry"}, "spec.failurePolicy", "'Continue' or 'Stop'"),
        ({"spec.maxFailedRuns": 2}, "spec", "maxFailedRuns has no effect without failurePolicy: Stop"),
        ({"spec.timeZone": "UTC"}, "spec", "timeZone has no effect without schedule"),
        ({"spec.startingDeadlineSeconds": 60}, "spec", "startingDeadlineSeconds has no effect without schedule"),
        ({"spec.schedule": "every day"}, "spec.schedule", "should match the required form"),
        ({"spec.rerun": "a b"}, "spec.rerun", "should match the required form"),
        ({"spec.budget": {"gpuHours": 0}}, "spec.budget.gpuHours", "greater than 0"),
        ({"spec.runHistoryLimit": 0}, "spec.runHistoryLimit", "greater than or equal to 1"),
    ],
    ids=str,
)
def test_parsing_rejects_what_the_schema_rejects(edits: dict[str, Any], path: str, expected: str) -> None:
    with pytest.raises(InvalidSpec) as rejected:
        parse_campaign(campaign(edits))
    problem = next(problem for problem in rejected.value.problems if problem.path == path)
    assert expected in str(problem)


@pytest.mark.parametrize(
    ("edits", "path", "expected"),
    [
        ({"spec.exclude": [{"engin": "vllm"}]}, "spec.exclude[0].engin", "is not an axis (axes: engine, temperature)"),
        ({"spec.exclude": [{}]}, "spec.exclude[0]", "has no value of an axis"),
        ({"spec.exclude": [{"engine": "vllm", "set": {}}]}, "spec.exclude[0].set", "is not an axis"),
        ({"spec.include": [{"k": 1}]}, "spec.include[0].k", "is not an axis"),
        ({"spec.include": [{"engine": "vllm", "set": 5}]}, "spec.include[0].set", "is not a mapping of fields"),
        (
            {"spec.include": [{"temperature": 0, "set": {"engine.kind": "vllm"}}]},
            "spec.include[0].set.engine.kind",
            "write engine: VALUE next to set",
        ),
        (
            {"spec.include": [{"engine": "vllm", "set": {"load.repeats": n}} for n in (1, 2)]},
            "spec.include[1].set",
            "to another value than an earlier row",
        ),
        ({"spec.exclude": [{"engine": "vllm"}, {"engine": "sglang"}]}, "spec.axes", "0 combinations remain"),
        ({"spec.axes": [LONG, LONGER, MANY]}, "spec.axes", "6144 combinations exceed the maximum"),
        ({"spec.axes": [LONG, LONGER]}, "spec.axes", "2048 combinations remain"),
        (
            {"spec.axes": [{"path": "workloads[0].output.maxTokens", "values": [1]},
                           {"path": "load.maxTokens", "values": [1]}]},
            "spec.axes[1]",
            "has the same name 'maxTokens' as another axis",
        ),
        (
            {"spec.axes": [TEMPERATURE, {**TEMPERATURE, "name": "t", "path": BY_NAME}]},
            "spec.axes[1]",
            "is the same field as workloads[0].sampling.temperature",
        ),
        ({"spec.axes[0].values": ["x" * 20_000]}, "spec.axes[0].values[0]", "has 20002 bytes"),
        (
            {"spec.template.spec.results.adopt": "1b4e28ba-2fa1-11d2-883f-0016d3cca427"},
            "spec.template.spec.results.adopt",
            "every run of the matrix",
        ),
        (
            {"spec.template.spec.drafters[0].method": "lookahead", "spec.template.spec.engine.kind": "vllm"},
            "spec.template.spec.drafters[0].method",
            "vllm does not support lookahead",
        ),
        ({"spec.template.metadata": {"labels": {"a b": "x"}}}, "spec.template.metadata.labels", "is not a valid key"),
        (
            {"spec.template.metadata": {"annotations": {"specbench.io/combination": "x"}}},
            "spec.template.metadata.annotations",
            "is reserved",
        ),
        (
            {"spec.axes": [{"path": "load.repeat", "values": [1]}]},
            "[repeat=1] spec.load.repeat",
            "unknown field (did you mean repeats?)",
        ),
        ({"spec.schedule": "0 24 * * *"}, "spec.schedule", "'24' is not a valid hour: use 0 to 23"),
        ({"spec.schedule": "0 3 * * *", "spec.timeZone": "Europe/Berln"}, "spec.timeZone", "is not a time zone"),
    ],
    ids=lambda given: str(given)[:60],
)  # fmt: skip
def test_planning_rejects_problems_beyond_the_schema(edits: dict[str, Any], path: str, expected: str) -> None:
    problem = next(problem for problem in problems_of(edits) if problem.path == path)
    assert expected in str(problem)


def test_all_invalid_combinations_are_reported_with_each_problem_once() -> None:
    edits = {
        "spec.axes": [{**ENGINE, "values": ["vllm", "sglang", "llama-cpp"]}, TEMPERATURE],
        "spec.template.spec.drafters[0]": {"name": "suffix", "method": "suffix"},
        "spec.include": [{"engine": "vllm", "temperature": 9}],
    }
    first, second, third = problems_of(edits)
    assert first.path == (
        "[engine=sglang temperature=0; engine=sglang temperature=0.7; engine=sglang temperature=1]"
        " spec.drafters[0].method"
    )
    assert "sglang does not support suffix" in first.message
    assert first.remedy == "use ngram"
    assert "llama-cpp does not support suffix" in second.message
    assert third.path == "[engine=vllm temperature=9] spec.workloads[0].sampling.temperature"


def test_a_problem_of_many_combinations_lists_the_first_three() -> None:
    (problem,) = problems_of({"spec.axes[1].path": "workloads[1].sampling.temperature"})
    assert problem.path == (
        "[engine=vllm temperature=0; engine=vllm temperature=0.7; engine=vllm temperature=1 and 3 more]"
        " workloads[1].sampling.temperature"
    )
    assert "'1' is not the index of a row; rows: 0 (chat)" in problem.message


@pytest.mark.parametrize(
    "schedule",
    [
        "",
        "@daily",
        "0 3 * * *",
        "*/15 0-6,22 1,15 jan-MAR mon-fri",
        "0 0 31 12 7",
        "5/10 * * * *",
        "59 23 1-31/2 * sun",
    ],
)
def test_a_schedule_within_its_bounds_is_valid(schedule: str) -> None:
    assert schedule_problem(schedule) is None
    assert campaign_of({"spec.schedule": schedule}).spec.schedule == schedule


@pytest.mark.parametrize(
    "schedule",
    ["60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *", "a * * * *",
     "* * * mon *", "1, * * * *", "-1 * * * *", "*-5 * * * *"],
)  # fmt: skip
def test_a_schedule_out_of_bounds_is_invalid(schedule: str) -> None:
    assert schedule_problem(schedule)


def test_the_kind_is_read_from_the_file() -> None:
    assert parse_resource(campaign()).kind == "SpecBenchCampaign"
    assert parse_resource(resource()).kind == "SpecBenchRun"
    with pytest.raises(
        InvalidSpec, match=r"kind: 'Job' is not .* \(write kind: SpecBenchRun or kind: SpecBenchCampaign\)"
    ):
        parse_resource(campaign({"kind": "Job"}))


MANY_POINTS = {"concurrency": list(range(1, 17)), "requests": 40, "repeats": 32}
WARMUPS = {"path": "load.warmupRequests", "values": list(range(1, 65))}


@pytest.mark.draws
@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"spec.axes": [WARMUPS, TEMPERATURE], "spec.template.spec.load": MANY_POINTS}, "50,000 points"),
        ({"spec.template.spec.engine": {"kind": "tensorrt-llm", "config": {"x": [[]] * 1_600}}}, "20,000 values"),
        (
            {"spec.template.spec.engine": {"kind": "tensorrt-llm", "config": {"x": "a" * 8_000}}},
            "500,000 characters",
        ),
    ],
    ids=["points", "values", "text"],
)
def test_a_round_that_would_need_gigabytes_of_memory_is_refused(
    edits: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run is within its own limits, and the campaign is small. Two limits are far lower here, for speed."""
    monkeypatch.setattr(expansion, "ROUND_VALUES_MAX", 20_000)
    monkeypatch.setattr(expansion, "ROUND_TEXT_MAX", 500_000)
    small = {"spec.axes": [WARMUPS], "spec.template.spec.drafters": [], **edits}
    (problem,) = problems_of(small)
    assert problem.path == "spec.axes"
    assert expected in problem.message


# A campaign's axes and include rows name no Secret that its template does not name.


@pytest.mark.parametrize(("edits", "path"), REFUSED, ids=str)
def test_an_axis_or_include_row_cannot_add_a_secret(edits: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidSpec) as rejected:
        expand_campaign(campaign_of(edits))
    problems = {problem.path: problem for problem in rejected.value.problems}
    assert path in problems
    assert "template" in problems[path].message
    assert problems[path].remedy.startswith("name it in spec.template.spec")


@pytest.mark.parametrize("edits", ACCEPTED, ids=str)
def test_an_axis_may_leave_secrets_out_or_repeat_those_of_the_template(edits: dict[str, Any]) -> None:
    assert expand_campaign(campaign_of(edits)).runs


def words(schema: Any, found: str = "") -> Iterator[str]:
    """The name of every field below a JSON schema."""
    if isinstance(schema, dict):
        for name, node in schema.get("properties", {}).items():
            yield name
            yield from words(node)
        for name, node in schema.items():
            yield from words(node) if name != "properties" else ()
    elif isinstance(schema, list):
        for node in schema:
            yield from words(node)


def test_the_table_has_every_field_that_names_a_secret() -> None:
    """A new field with `secret` in its name needs a row. Each name occurs once, as a search by name requires."""
    found = [word for word in words(RunSpec.model_json_schema()) if re.search("secret", word, re.IGNORECASE)]
    in_template = ["secret", *TEMPLATE_WORDS]
    assert sorted(found) == sorted([*(field.word for field in SECRET_FIELDS), *in_template])
    assert all(any(word in path.split(".") for path in TEMPLATE_SECRETS) for word in in_template)


def test_every_secret_of_a_run_is_found() -> None:
    spec = resource(
        {
            "spec.results.s3.credentialsSecretRef": {"name": "a"},
            "spec.model.tokenSecretRef": {"name": "b", "key": "k"},
            "spec.placement.imagePullSecrets": [{"name": "c"}, {"name": "d"}],
            "spec.placement.template.spec": {
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {"secretName": "e"}}],
                "containers": [{"name": "engine", "env": [{"valueFrom": {"secretKeyRef": {"name": "f", "key": "k"}}}]}],
            },
        }
    )["spec"]
    assert secrets_named(spec) == {"a", "b", "c", "d", "e", "f"}
    assert secrets_named(resource()["spec"]) == set()
