"""Volumes with prompts and tokenizers are mounted in clients only, once and read-only; and the hub token."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.outcome.provenance import HostFacts
from specbench_api.plan.expansion import expand
from specbench_api.spec.parsing import parse_run
from specbench_operator.render.client_jobs import client_job, report_job
from specbench_operator.render.engine_job import engine_job
from specbench_testing.operator_builders import SETTINGS, operator_run

ON_A = {"source": "jsonl", "pvc": {"claimName": "a", "path": "p.jsonl"}}
ON_MODELS = {"claimName": "models", "subPath": "team", "path": "tiny"}
MIX = {
    "source": "mix",
    "members": [
        {"name": "one", "weight": 1, **ON_A},
        {"name": "two", "weight": 1, "source": "csv", "pvc": {"claimName": "b.c", "path": "x/p.csv"}},
    ],
}


def pods(*datasets: dict[str, Any], model: dict[str, Any] | None = None, **workload: Any) -> dict[str, Any]:
    rows = [{"name": f"w{number}", "dataset": dataset, **workload} for number, dataset in enumerate(datasets)]
    edits = {"spec.workloads": rows} | ({"spec.model": {"name": "acme/tiny", **model}} if model else {})
    run = parse_run(operator_run(edits))
    plan = expand(run)
    jobs = {
        "client": client_job(run, plan, plan.groups[0], 1, SETTINGS, engine=HostFacts(), engine_pod="pod"),
        "engine": engine_job(run, plan, plan.groups[0], 1, SETTINGS),
        "report": report_job(run, SETTINGS),
    }
    return {name: job["spec"]["template"]["spec"] for name, job in jobs.items()}


def test_clients_mount_each_prompt_claim_once_and_read_only() -> None:
    client = pods(ON_A, MIX)["client"]

    volumes = [volume for volume in client["volumes"] if volume["name"].startswith("prompts-")]
    mounts = [mount for mount in client["containers"][0]["volumeMounts"] if mount["name"].startswith("prompts-")]
    assert volumes == [
        {"name": "prompts-0", "persistentVolumeClaim": {"claimName": "a", "readOnly": True}},
        {"name": "prompts-1", "persistentVolumeClaim": {"claimName": "b.c", "readOnly": True}},
    ]
    assert mounts == [
        {"name": "prompts-0", "mountPath": "/prompts/a", "readOnly": True},
        {"name": "prompts-1", "mountPath": "/prompts/b.c", "readOnly": True},
    ]


def test_only_the_client_mounts_the_prompt_claim() -> None:
    found = pods(ON_A)
    assert "persistentVolumeClaim" not in str(found["engine"]) + str(found["report"])


@pytest.mark.parametrize(
    ("model", "template", "mounted"),
    [
        ({"pvc": ON_MODELS}, {"appliedBy": "Client"}, True),
        ({"pvc": ON_MODELS}, {"appliedBy": "Engine"}, False),
        ({"pvc": ON_MODELS}, {"appliedBy": "Client", "tokenizer": "s3://b/tokenizer/"}, False),
        ({"pvc": ON_MODELS, "tokenizer": "acme/tiny"}, {"appliedBy": "Client"}, False),
        ({"path": "/models/tiny"}, {"appliedBy": "Client"}, False),
        ({"pvc": ON_MODELS}, {"appliedBy": "Client", "tokenizer": "/prompts/models/team/tokenizer"}, True),
        ({"pvc": ON_MODELS, "tokenizer": "/prompts/models/team/tokenizer/"}, {"appliedBy": "Client"}, True),
        (
            {"pvc": ON_MODELS, "tokenizer": "a/b"},
            {"appliedBy": "Client", "template": "/prompts/models/own.jinja"},
            True,
        ),
        ({"pvc": ON_MODELS}, {"appliedBy": "Client", "tokenizer": "/prompts/models-2/tokenizer"}, False),
    ],
)
def test_the_model_claim_is_mounted_where_its_tokenizer_is_read(
    model: dict[str, Any], template: dict[str, Any], mounted: bool
) -> None:
    found = pods({"source": "jsonl", "uri": "s3://b/p.jsonl"}, model=model, chatTemplate=template)
    assert ("/prompts/models" in str(found["client"])) is mounted
    assert "/prompts/models" not in str(found["engine"]) + str(found["report"])


def test_a_claim_with_prompts_and_model_is_mounted_once() -> None:
    on_models = {"source": "jsonl", "pvc": {"claimName": "models", "path": "p.jsonl"}}
    client = pods(on_models, model={"pvc": ON_MODELS}, chatTemplate={"appliedBy": "Client"})["client"]
    assert [mount["mountPath"] for mount in client["containers"][0]["volumeMounts"]].count("/prompts/models") == 1
