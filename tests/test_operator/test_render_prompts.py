"""Volumes with prompts: in every client's pod, each once, read only; in no other pod."""

from __future__ import annotations

from typing import Any

from specbench_api.outcome.launched import Whereabouts
from specbench_api.plan.expand import expand
from specbench_api.spec.reading import parse_run
from specbench_operator.render.client_job import client_job
from specbench_operator.render.engine_job import engine_job
from specbench_operator.render.report_job import report_job
from specbench_testing.operator import SETTINGS, operator_run

ON_A = {"source": "jsonl", "pvc": {"claimName": "a", "path": "p.jsonl"}}
MIX = {
    "source": "mix",
    "members": [
        {"name": "one", "weight": 1, **ON_A},
        {"name": "two", "weight": 1, "source": "csv", "pvc": {"claimName": "b.c", "path": "x/p.csv"}},
    ],
}


def pods(*datasets: dict[str, Any]) -> dict[str, Any]:
    rows = [{"name": f"w{number}", "dataset": dataset} for number, dataset in enumerate(datasets)]
    run = parse_run(operator_run({"spec.workloads": rows}))
    plan = expand(run)
    jobs = {
        "client": client_job(run, plan, plan.groups[0], 1, SETTINGS, engine=Whereabouts(), engine_pod="pod"),
        "engine": engine_job(run, plan, plan.groups[0], 1, SETTINGS),
        "report": report_job(run, SETTINGS),
    }
    return {name: job["spec"]["template"]["spec"] for name, job in jobs.items()}


def test_every_claim_is_mounted_once_and_read_only_where_prompts_are_read() -> None:
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


def test_no_other_pod_waits_for_the_volume() -> None:
    found = pods(ON_A)
    assert "persistentVolumeClaim" not in str(found["engine"]) + str(found["report"])


def test_without_a_volume_the_pod_is_as_it_was() -> None:
    assert "prompts-" not in str(pods({"source": "jsonl", "uri": "p.jsonl"})["client"])
