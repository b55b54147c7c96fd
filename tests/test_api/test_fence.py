"""The fence allows and refuses the same runs as the tables say; the admission policy is tested with the same tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from generators.structural_schema import structural, walk
from specbench_api.campaign.expansion import campaign_refusals, expand_campaign
from specbench_api.errors import InvalidSpec, Problem
from specbench_api.fence.check import FENCED_FIELDS, S3_ADDRESSES, FenceCheck, problems_of
from specbench_api.fence.model import Fence, matches
from specbench_api.spec.run import RunSpec
from specbench_testing.fenced_runs import (
    ALLOWED,
    BASE,
    FENCE,
    FORCED_QUEUE,
    INVALID,
    OPERATOR_ONLY,
    OWN_REPOSITORY,
    REFUSED,
    REFUSED_BY_QUEUE,
    Edits,
    reading,
)
from specbench_testing.resources import MISSING, campaign_of, run_of

VALUES = Path(__file__).resolve().parents[2] / "helm/specbench/values.yaml"


def found(edits: Edits, fence: Fence | None = None) -> list[Problem]:
    used = fence or Fence.from_json(json.dumps(FENCE))
    return problems_of(run_of({**BASE, **edits}).spec, used, own_images=[OWN_REPOSITORY])


def test_allows_and_refuses_with_path_and_remedy() -> None:
    assert [edits for edits in ALLOWED if found(edits)] == []
    for edits, path in REFUSED:
        (problem,) = found(edits)
        assert problem.path == f"spec.{path}"
        assert "this cluster" in problem.message or "operator's own identity" in problem.message
        assert problem.remedy


def test_a_forced_queue_refuses_what_it_does_not_support() -> None:
    fence = Fence.from_json(json.dumps(FORCED_QUEUE))
    for edits, path in REFUSED_BY_QUEUE:
        assert found(edits) == []
        assert [problem.path for problem in found(edits, fence)] == [f"spec.{path}"]


@pytest.mark.parametrize("endpoint", OPERATOR_ONLY)
def test_every_spelling_of_a_local_address_is_refused(endpoint: str) -> None:
    s3 = {"bucket": "a-lab", "endpoint": endpoint, "credentialsSecretRef": {"name": "mine"}}
    assert [problem.path for problem in found({"spec.results.s3": s3})] == ["spec.results.s3.endpoint"]


@pytest.mark.parametrize(
    ("edits", "field"),
    [
        ({"spec.engine": {"kind": "vllm", "tensorParallelSize": 9}}, "gpus"),
        ({"spec.engine": {"kind": "sglang", "args": ["--dp-size=9"]}}, "gpus"),
        ({"spec.engine": {"kind": "vllm"}, "spec.placement.gpuResourceName": "google.com/tpu"}, "gpuResourceName"),
    ],
)
def test_gpus_that_are_not_given_are_limited_too(edits: Edits, field: str) -> None:
    assert [problem.path for problem in found({**edits, "spec.drafters": []})] == [f"spec.placement.{field}"]


@pytest.mark.parametrize(
    ("default", "path"),
    [
        ({"bucket": "results", "credentialsSecretRef": {"name": "mine"}}, None),
        ({"bucket": "results"}, "spec.results.s3.credentialsSecretRef"),
        ({"bucket": "team-a", "endpoint": "https://s3.example"}, None),
        ({"bucket": "elsewhere", "credentialsSecretRef": {"name": "mine"}}, "spec.results.s3"),
    ],
)
def test_the_default_store_is_limited_as_if_the_run_named_it(default: dict[str, Any], path: str | None) -> None:
    fence = Fence.from_json(json.dumps({**FENCE, "defaultStore": default}))
    problems = problems_of(run_of({"spec.results": MISSING}).spec, fence, own_images=[OWN_REPOSITORY])
    assert [problem.path for problem in problems] == ([path] if path else [])


TEMPLATE = {f"spec.template.{path}": value for path, value in BASE.items()}
REPEATS = {"path": "load.repeats", "values": [3]}


def by_template(edits: Edits) -> dict[str, Any]:
    """A campaign whose template has these values."""
    return {**TEMPLATE, **{f"spec.template.{path}": value for path, value in edits.items()}, "spec.axes": [REPEATS]}


def by_axes(edits: Edits) -> dict[str, Any]:
    """A campaign whose axes set these values."""
    axes = [
        {"path": path.removeprefix("spec."), "name": f"axis{number}", "values": [value]}
        for number, (path, value) in enumerate(edits.items())
    ]
    return {**TEMPLATE, "spec.axes": axes}


def by_include(edits: Edits) -> dict[str, Any]:
    """A campaign of which an include row sets these values."""
    row = {"repeats": 3, "set": {path.removeprefix("spec."): value for path, value in edits.items()}}
    return {**TEMPLATE, "spec.axes": [REPEATS], "spec.include": [row]}


@pytest.mark.parametrize(("edits", "path"), INVALID, ids=ascii)
def test_no_other_spelling_of_a_field_or_name_is_valid(edits: Edits, path: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        run_of(edits)
    assert [problem.path for problem in caught.value.problems] == [f"spec.{path}"]
    with pytest.raises(InvalidSpec) as caught:
        expand_campaign(campaign_of(by_axes(edits)))
    assert f"spec.{path}" in caught.value.problems[0].path


@pytest.mark.parametrize("campaign_by", [by_template, by_axes, by_include], ids=["template", "axes", "include"])
def test_refuses_the_same_in_a_campaign(campaign_by: Callable[[Edits], dict[str, Any]]) -> None:
    check = FenceCheck(Fence.from_json(json.dumps(FENCE)), f"{OWN_REPOSITORY}:1")
    prefix = "spec.template." if campaign_by is by_template else ""
    for edits, path in REFUSED:
        campaign = campaign_of(campaign_by(edits))
        if "spec.placement.template" in edits and campaign_by is not by_template:
            with pytest.raises(InvalidSpec, match="sets an object or list of placement"):
                expand_campaign(campaign)
            continue
        runs = [(run.name, run.run.spec) for run in expand_campaign(campaign).runs]
        (problem,) = campaign_refusals(campaign, runs, check)
        assert problem.path.endswith(f"{prefix}spec.{path}")


def test_a_campaign_of_the_operators_namespace_is_refused_once() -> None:
    campaign = campaign_of(by_template(BASE))
    check = FenceCheck(Fence.from_json(json.dumps(FENCE)), f"{OWN_REPOSITORY}:1", campaign.metadata.namespace)
    runs = [(run.name, run.run.spec) for run in expand_campaign(campaign).runs]
    assert [problem.path for problem in campaign_refusals(campaign, runs, check)] == ["metadata.namespace"]


def test_the_table_has_every_field_that_may_be_in_s3() -> None:
    """A description with `s3://` needs a row, unless the field is the store of the results itself."""
    described = {path for path, node in walk(structural(RunSpec)) if "s3://" in node.get("description", "")}
    assert described == set(S3_ADDRESSES)
    assert {re.sub(r"\d+", "", path) for path in reading("s3://a/b")} == set(S3_ADDRESSES)


def test_allows_everything_if_it_is_disabled() -> None:
    fence = Fence.from_json(json.dumps({**FENCE, "enabled": False}))
    assert [found(edits, fence) for edits, _ in REFUSED] == [[] for _ in REFUSED]


def test_the_tables_refuse_every_fenced_field() -> None:
    refused = {
        problem.remedy.partition("fence.")[2].partition(" ")[0] for edits, _ in REFUSED for problem in found(edits)
    }
    assert {field.allow_list for field in FENCED_FIELDS} <= refused


def test_the_model_reads_the_charts_values() -> None:
    values = yaml.safe_load(VALUES.read_text())["fence"]
    fence = Fence.from_json(json.dumps(values))
    assert fence.model_dump(mode="json", by_alias=True) == values


@pytest.mark.parametrize(
    ("text", "patterns", "expected"),
    [
        ("a", ["a"], True),
        ("ab", ["a"], False),
        ("a/b", ["a*"], True),
        ("a", [], False),
        ("", [], False),
        ("", [""], True),
        ("", ["*"], True),
        ("axb", ["a.b"], False),
        ("a[b]", ["a[b]"], True),
        ("b", ["a|b"], False),
        ("b", ["a", "b"], True),
        ("a\n", ["a"], False),
        ("a/mode=b=true", ["a/*=true"], False),
        ("a/mode=true", ["a/*=true"], True),
        ("a/mode=b=true", ["a/*=b*"], True),
        ("a/mode=b=true", ["a/*"], True),
    ],
)
def test_a_pattern_is_literal_except_for_asterisks(text: str, patterns: list[str], expected: bool) -> None:
    assert matches(text, patterns) is expected


@given(st.text(), st.text())
def test_any_text_matches_itself_and_a_prefix_with_an_asterisk(before: str, after: str) -> None:
    assert matches(before + after, [before.replace("*", "") + "*"]) is (before + after).startswith(
        before.replace("*", "")
    )


@pytest.mark.parametrize(
    ("listed", "endpoint", "path"),
    [
        ("*", "http://127.0.0.1:9000", "spec.results.s3.endpoint"),
        ("*", "http://localhost:9000", "spec.results.s3.endpoint"),
        ("*", "http://169.254.169.254", "spec.results.s3.endpoint"),
        ("http://169.254.169.254", "http://169.254.169.254", "spec.results.s3.endpoint"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000", None),
        ("*", "http://minio:9000", None),
    ],
)
def test_an_endpoint_with_a_local_address_must_be_listed_literally(
    listed: str, endpoint: str, path: str | None
) -> None:
    s3 = {"bucket": "results", "endpoint": endpoint, "credentialsSecretRef": {"name": "mine"}}
    fence = Fence.from_json(json.dumps({**FENCE, "stores": [{"endpoint": listed, "bucket": "*"}]}))
    assert [problem.path for problem in found({"spec.results.s3": s3}, fence)] == ([path] if path else [])


@pytest.mark.parametrize(
    ("edits", "refused"),
    [
        ({"spec.results.s3.endpoint": "http://minio:9000/"}, "bucket team-results at http://minio:9000/"),
        ({"spec.model.uri": "s3://else/model", "spec.results.s3.endpoint": ""}, "bucket else at AWS"),
    ],
)
def test_a_refused_bucket_is_reported_with_those_that_are_allowed(edits: Edits, refused: str) -> None:
    """Endpoints are compared as text, so that a person must see how the administrator wrote them."""
    stores = [{"endpoint": "", "bucket": "team-*"}, {"endpoint": "http://minio:9000", "bucket": "*"}]
    fence = Fence.from_json(json.dumps({**FENCE, "stores": stores}))
    (problem,) = found({"spec.results.s3.bucket": "team-results", **edits}, fence)
    allowed = "bucket team-* at AWS, bucket * at http://minio:9000"
    assert problem.message == f"{refused} is not allowed on this cluster (allowed: {allowed})"
