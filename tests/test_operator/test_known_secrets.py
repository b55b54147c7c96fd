"""Known values of a run's Secrets are nowhere in what the operator creates, reports or logs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from specbench_api.fence.model import TerminationMessages
from specbench_api.outcome.termination import Exit, Termination
from specbench_api.spec.conditions import EngineReason
from specbench_operator.render.shared_fields import literal
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import ContainerTerminated, ContainerWaiting
from specbench_operator.state.run import RunDecision
from specbench_testing.cluster_world import ClusterWorld, finished
from specbench_testing.container_environment import command_line_of, environment_of, expanded
from specbench_testing.operator_builders import SETTINGS, fenced, operator_run

TOKEN = "hf_" + "kN4vTq8LxR2mZ7bWcY5dJ1sGhP3fUaE9"
KEY_ID, KEY = "AKIAQ4ZT7LM2XV5RN8WB", "t7Qm/Vx2Lr9+KdPz4WnB8sYc1HgJ5fUaE3oTiR6M"
SECRETS = {"hub": {"HF_TOKEN": TOKEN}, "bench-s3": {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": KEY}}
VALUES = [TOKEN, KEY_ID, KEY, *(base64.b64encode(value.encode()).decode() for value in (TOKEN, KEY_ID, KEY))]
NAMES = {"spec.results.s3.credentialsSecretRef": {"name": "bench-s3"}, "spec.model.tokenSecretRef": {"name": "hub"}}
REFERENCES = "--a=$(HF_TOKEN) --b=$$(HF_TOKEN) --c=$(AWS_SECRET_ACCESS_KEY) --d=$$$(HF_TOKEN)"


def assert_clean(*things: object) -> None:
    text = "\n".join(
        repr(thing) + (json.dumps(thing, default=str) if isinstance(thing, dict | list) else "") for thing in things
    )
    assert [value for value in VALUES if value in text] == []


def containers(manifests: Any) -> Iterator[Mapping[str, Any]]:
    """All containers anywhere in manifests."""
    if isinstance(manifests, Mapping):
        yield from (row for key in ("containers", "initContainers") for row in manifests.get(key) or ())
        for one in manifests.values():
            yield from containers(one)
    elif isinstance(manifests, list | tuple):
        for one in manifests:
            yield from containers(one)


MODES = (None, *TerminationMessages)
"""Without a fence, and as the fence's terminationMessages."""


def settings_of(mode: TerminationMessages | None) -> OperatorSettings:
    return SETTINGS if mode is None else fenced(secrets_opt_in=False, termination_messages=mode)


@dataclass
class RecordingWorld(ClusterWorld):
    """A simulated cluster that keeps everything the operator applied."""

    applied: list[Mapping[str, Any]] = field(default_factory=list)

    def follow(self, decision: RunDecision) -> None:
        """Apply a decision and keep its manifests."""
        self.applied += decision.apply
        super().follow(decision)


def failed_engine(mode: TerminationMessages | None, **end: Any) -> ClusterWorld:
    """A run whose first engine ended like this."""
    cluster = ClusterWorld(run=operator_run(NAMES), settings=settings_of(mode))
    cluster.settle()
    cluster.start_pod(cluster.engine(), **{"phase": "Failed", **end})
    cluster.reconcile()
    return cluster


@pytest.mark.parametrize(
    "edits",
    [
        {},
        {"spec.engine": {"kind": "vllm", "args": [f"--download-dir={REFERENCES}", "--swap-space=$(HF_TOKEN)"]}},
        {"spec.engine.command": ["sh", "-c", REFERENCES]},
        {"spec.engine.env": [{"name": "COPY", "value": "$(HF_TOKEN)"}]},
        {"spec.results.s3.endpoint": "http://s3.example/$(AWS_SECRET_ACCESS_KEY)"},
    ],
    ids=["plain", "arguments", "command", "environment", "endpoint"],
)
def test_command_lines_and_other_variables_contain_no_secret(edits: Mapping[str, Any]) -> None:
    cluster = RecordingWorld(run=operator_run({**NAMES, **edits}), settings=replace(SETTINGS, probe_engines=True))
    finished(cluster)
    manifests = cluster.applied
    assert_clean(manifests)
    roles = set()
    for container in containers(manifests):
        roles.add(container["name"])
        variables = environment_of(container, SECRETS)
        assert_clean(command_line_of(container, SECRETS))
        allowed = ("HF_TOKEN", *SECRETS["bench-s3"]) if container["name"] == "client" else ("HF_TOKEN",)
        assert_clean({name: value for name, value in variables.items() if name not in allowed})
    assert roles == {"engine", "client", "probe"}


@pytest.mark.parametrize(
    "text", ["$(HF_TOKEN)", "$$(HF_TOKEN)", "$$", "$", "a$b", "^x$", "$($(A))", "$(LWS_X)", "$$$$("]
)
def test_kubernetes_passes_a_literal_text_unchanged(text: str) -> None:
    assert expanded(literal(text), {"HF_TOKEN": TOKEN, "A": "HF_TOKEN"}) == text


def test_references_that_a_launcher_writes_are_expanded() -> None:
    given = {"LWS_LEADER_ADDRESS": "leader", "LWS_WORKER_INDEX": "1"}
    assert expanded(literal("$(LWS_LEADER_ADDRESS):20000 $(LWS_WORKER_INDEX)"), given) == "leader:20000 1"


LAST_WORDS = "\n".join(
    [
        *(f"INFO 12:00:0{row % 10} loader.py:{row}] Loading shard {row} of 40" for row in range(40)),
        f"HF_TOKEN={TOKEN}",
        f"requests: GET https://me:{KEY}@hub.example/api/models: 401",
        f"token was {TOKEN} and {base64.b64encode(TOKEN.encode()).decode()}",
        f"boto: key {KEY_ID}, {KEY}",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ]
)
ENDS = {
    "crash": {"terminated": ContainerTerminated(1, "Error", LAST_WORDS)},
    "out of memory": {"terminated": ContainerTerminated(137, "OOMKilled", LAST_WORDS)},
    "not started": {"terminated": ContainerTerminated(128, "StartError", f"exec: {TOKEN}: not found")},
    "evicted": {"terminated": None, "reason": "Evicted", "message": f"used too much, {TOKEN}"},
    "disrupted": {"disrupted": f"by {TOKEN}"},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_engines_last_words_contain_no_secret(end: dict[str, Any], mode: TerminationMessages | None) -> None:
    cluster = failed_engine(mode, **end)
    decision = cluster.reconcile()
    assert_clean(decision, cluster.run["status"], cluster.events, cluster.jobs)
    assert cluster.group(0).reason


@pytest.mark.parametrize(
    ("mode", "readable", "longest"),
    [
        (None, True, 1024),
        (TerminationMessages.REDACTED, True, 450),
        (TerminationMessages.NONE, False, 40),
    ],
)
@pytest.mark.parametrize("image", ["registry.example/other:1", SETTINGS.client_image])
def test_the_administrator_decides_how_much_of_the_last_words_is_reported(
    mode: TerminationMessages | None, image: str, *, readable: bool, longest: int
) -> None:
    """Also with specbench's own image, in which an engine may run any command."""
    words = LAST_WORDS.partition("HF_")[2]
    cluster = failed_engine(mode, image=image, terminated=ContainerTerminated(1, "Error", f"{words}\n{'x y ' * 300}"))
    message = cluster.group(0).message
    assert ("CUDA out of memory" in message) is readable
    assert message.startswith("the engine ended with exit code 1")
    assert len(message) <= longest


CLIENT_ENDS = {
    "its message": Termination(
        code=Exit.ENGINE_FAILED, reason=EngineReason.FIRST_REQUEST_FAILED, message=f"HTTP 500: {LAST_WORDS[-400:]}"
    ).to_message(),
    "no JSON": LAST_WORDS,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("message", CLIENT_ENDS.values(), ids=CLIENT_ENDS)
def test_what_a_client_quotes_contains_no_secret(message: str, mode: TerminationMessages | None) -> None:
    cluster = ClusterWorld(run=operator_run(NAMES), settings=settings_of(mode))
    cluster.settle()
    cluster.serve()
    cluster.crash(cluster.client(), Exit.ENGINE_FAILED, message=message)
    cluster.reconcile()
    assert_clean(cluster.run["status"], cluster.events, cluster.jobs)
    assert ("out of memory" in cluster.group(0).message) is (mode is not TerminationMessages.NONE)


def test_a_waiting_container_reports_no_user_of_a_registry() -> None:
    message = f"Failed to pull https://me:{KEY}@registry.example/x: not found"
    cluster = failed_engine(None, phase="Pending", waiting=ContainerWaiting("ErrImagePull", message))
    assert_clean(cluster.run["status"], cluster.events)
    assert "registry.example/x: not found" in json.dumps(cluster.run["status"])
