"""A run that names a file which a client Job must not read is refused before a child exists."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.spec.conditions import ConditionType, Phase
from specbench_testing.cluster_world import ClusterWorld
from specbench_testing.operator_builders import operator_run

ENVIRON = "/proc/self/environ"
BY_CLIENT = {"appliedBy": "Client"}
TRACE = {"arrival": {"process": "Trace", "uri": ENVIRON}}
MEMBER = {"name": "m", "weight": 1, "source": "jsonl"}


def _uri(path: str) -> dict[str, Any]:
    return {"spec.workloads[0].dataset": {"source": "jsonl", "uri": path}}


def _template(**fields: str) -> dict[str, Any]:
    return {"spec.workloads[0].chatTemplate": {**BY_CLIENT, **fields}}


def _mix(*paths: str) -> dict[str, Any]:
    members = [{**MEMBER, "name": f"m{at}", "uri": path} for at, path in enumerate(paths)]
    return {"spec.workloads[0].dataset": {"source": "mix", "count": 2, "members": members}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        (_uri(path), "spec.workloads[0].dataset.uri")
        for path in (
            ENVIRON, "/var/run/secrets/kubernetes.io/serviceaccount/token", "/dev/zero", "/", "//proc/self/environ",
            "/usr/share/specbench/../../../proc/self/environ", "/prompts/../etc/passwd", "/promptsx/a.jsonl",
            "../proc/self/environ", "a/../../proc/self/environ", "~/x", "~root/x",
        )
    ),
    (_mix("/prompts/a.jsonl", ENVIRON), "spec.workloads[0].dataset.members[1].uri"),
    (_template(template=ENVIRON), "spec.workloads[0].chatTemplate.template"),
    (_template(tokenizer=ENVIRON), "spec.workloads[0].chatTemplate.tokenizer"),
    ({**_template(), "spec.model.tokenizer": ENVIRON}, "spec.model.tokenizer"),
    ({**_template(), "spec.model.path": ENVIRON}, "spec.model.path"),
    ({"spec.load": {**TRACE, "slots": 4, "requests": 8}}, "spec.load.arrival.uri"),
]  # fmt: skip
ALLOWED: list[dict[str, Any]] = [
    *(
        _uri(path)
        for path in (
            "prompts.jsonl", "/prompts/claim/a.jsonl", "/usr/share/specbench/prompts.jsonl", "/prompts/a/../b.jsonl",
            "../usr/share/specbench/prompts.jsonl", "s3://results/../a", "hf://datasets/a/b/../c",
        )
    ),
    _template(template="s3://results/a.jinja", tokenizer="acme/tiny"),
    _template(template="/prompts/claim/a.jinja", tokenizer="/prompts/claim"),
    {"spec.model.tokenizer": ENVIRON},
    {"spec.model.path": "/models/llama"},
    {**_template(tokenizer="acme/tiny"), "spec.model.path": "/models/llama"},
]  # fmt: skip


@pytest.mark.parametrize(("edits", "path"), REFUSED, ids=str)
def test_a_run_that_names_a_file_outside_the_clients_folders_gets_no_child(edits: dict[str, Any], path: str) -> None:
    world = ClusterWorld(run=operator_run(edits))
    decision = world.reconcile()
    assert (decision.apply, world.status.phase) == ((), Phase.INVALID)
    assert world.status_and_reason(ConditionType.VALIDATED) == ("False", "InvalidSpec")
    message = world.condition(ConditionType.VALIDATED).message
    assert message.startswith(f"{path}: ")
    assert "(/prompts, /usr/share/specbench)" in message
    assert "put the file on a volume (dataset.pvc), or give s3://BUCKET/KEY" in message


@pytest.mark.parametrize("edits", ALLOWED, ids=str)
def test_other_files_are_left_to_the_client_and_the_engine(edits: dict[str, Any]) -> None:
    """The engine reads model.path in its own image, and the tokenizer is not read if no client applies a template."""
    assert ClusterWorld(run=operator_run(edits)).reconcile().apply
