"""A run uses only Secrets that opt in with a label, and their values are nowhere in what the operator writes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from specbench_api.fence.model import TerminationMessages
from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.termination_message import Termination
from specbench_api.spec.conditions import ConditionType, EngineReason, Phase
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.secrets import LABEL_USE, secret_references, unusable_secrets
from specbench_operator.cluster.kubernetes_api import SECRET, Forbidden
from specbench_operator.cluster.results import ResultsReader
from specbench_operator.cluster.secrets import SecretReader
from specbench_operator.cluster.store_session import StoreError
from specbench_operator.render.shared_fields import literal
from specbench_operator.run.decide import SECRETS_RETRY_S
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import ContainerTerminated, ContainerWaiting
from specbench_operator.state.run import RunDecision, RunObservation, StoreFailure
from specbench_testing.cluster_world import ClusterWorld, finished, launched
from specbench_testing.fake_api import FakeApi, FakeResults, observe
from specbench_testing.gate_reports import GATE
from specbench_testing.operator_builders import SETTINGS, fenced, operator_run
from specbench_testing.resources import endpoint_edits

NAMES = {
    "spec.results.s3.credentialsSecretRef": {"name": "bench-s3"},
    "spec.model.tokenSecretRef": {"name": "hub"},
    "spec.placement.imagePullSecrets": [{"name": "pull-a"}, {"name": "pull-b"}],
    "spec.placement.template.spec": {
        "volumes": [{"name": "certificates", "secret": {"secretName": "certs"}}],
        "containers": [
            {
                "name": "engine",
                "env": [{"name": "VLLM_KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}],
            }
        ],
    },
}
USES = {
    "bench-s3": "s3",
    "hub": "hub",
    "pull-a": "image-pull",
    "pull-b": "image-pull",
    "certs": "engine",
    "key": "engine",
}
NO_KEYS = {"bucket": "results"}
OPT_IN = fenced()
FORBIDDEN = StoreFailure("SecretForbidden", "the operator may not read Secrets", refused=True)


def world(uses: Mapping[str, str] | StoreFailure | None, **edits: Any) -> ClusterWorld:
    found = dict(uses) if isinstance(uses, Mapping) else uses
    return ClusterWorld(run=operator_run({**NAMES, **edits}), settings=OPT_IN, secret_uses=found)


def secret_fields(schema: Any) -> Iterator[str]:
    """Names of all fields of a schema that contain the word secret."""
    if isinstance(schema, dict):
        yield from (name for name in schema.get("properties", {}) if "secret" in name.lower())
    for one in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from secret_fields(one)


def test_every_secret_of_a_run_is_known() -> None:
    """Fields that name a Secret contain the word, as in Kubernetes; a new one must be added to `secret_references`."""
    definition = SpecBenchRun.model_json_schema(by_alias=True)
    assert set(secret_fields(definition)) == {
        "tokenSecretRef", "imagePullSecrets", "credentialsSecretRef", "secret", "secretName", "secretKeyRef",
        "apiKeySecretRef",
    }  # fmt: skip
    spec = parse_run(operator_run(NAMES)).spec
    assert {row.name: row.use for row in secret_references(spec)} == USES
    assert [row.path.partition("[")[0] for row in secret_references(spec)] == [
        "spec.model.tokenSecretRef.name", "spec.placement.imagePullSecrets", "spec.placement.imagePullSecrets",
        "spec.results.s3.credentialsSecretRef.name", "spec.placement.template.spec.volumes",
        "spec.placement.template.spec.containers",
    ]  # fmt: skip


_POD = "spec.placement.template.spec"
WITHOUT: dict[str, tuple[dict[str, str], str, str]] = {
    "no Secret": ({}, "spec.results.s3.credentialsSecretRef.name", "kubectl label secret bench-s3 specbench.io/use=s3"),
    "another use": ({**USES, "bench-s3": "hub"}, "spec.results.s3.credentialsSecretRef.name", "specbench.io/use=s3"),
    "no hub token": ({**USES, "hub": "s3"}, "spec.model.tokenSecretRef.name", "label secret hub specbench.io/use=hub"),
    "an empty label": ({**USES, "hub": ""}, "spec.model.tokenSecretRef.name", "label secret hub specbench.io/use=hub"),
    "no volume": (
        {**USES, "certs": "s3"},
        f"{_POD}.volumes[0].secret.secretName",
        "label secret certs specbench.io/use=engine",
    ),
    "no variable": (
        {**USES, "key": "hub"},
        f"{_POD}.containers[0].env[0].valueFrom.secretKeyRef.name",
        "label secret key specbench.io/use=engine",
    ),
    "one of two": (
        {name: use for name, use in USES.items() if name != "pull-b"},
        "spec.placement.imagePullSecrets[1].name",
        "label secret pull-b specbench.io/use=image-pull",
    ),
}


@pytest.mark.parametrize(("uses", "path", "remedy"), WITHOUT.values(), ids=WITHOUT)
def test_a_run_whose_secret_may_not_be_used_gets_no_child(uses: dict[str, str], path: str, remedy: str) -> None:
    cluster = world(uses)
    decision = cluster.reconcile()
    validated = cluster.condition(ConditionType.VALIDATED)
    assert (decision.apply, cluster.jobs, cluster.objects) == ((), {}, {})
    assert cluster.status_and_reason(ConditionType.VALIDATED) == ("False", "NotAllowed")
    assert (cluster.status.phase, cluster.status.problem) == (Phase.INVALID, "NotAllowed")
    assert path in validated.message
    assert remedy in validated.message


def test_the_status_is_the_same_for_a_missing_and_an_unlabelled_secret() -> None:
    """The reader reports neither, so the decision cannot distinguish them."""
    api = api_of(
        operator_run(), {"labelled": {LABEL_USE: "s3"}, "bare": {"app": "else"}, "of-the-hub": {LABEL_USE: "hub"}}
    )
    reader = SecretReader(api, opt_in=True)
    assert reader.uses("default", ["labelled", "bare", "absent"]) == {"labelled": "s3"}
    messages = []
    for name in ("bare", "absent", "of-the-hub"):
        with pytest.raises(StoreError) as caught:
            reader.s3_keys("default", name)
        messages.append(str(caught.value).replace(name, "NAME"))
    assert len(set(messages)) == 1


def test_a_run_starts_when_its_secrets_are_labelled() -> None:
    cluster = world({})
    decision = cluster.reconcile()
    assert (decision.at_rest, decision.requeue_after_s) == (False, SECRETS_RETRY_S), "a label is no event of the run"
    cluster.secret_uses = dict(USES)
    cluster.reconcile()
    assert cluster.status_and_reason(ConditionType.VALIDATED) == ("True", "Valid")
    assert cluster.launched


@pytest.mark.parametrize(
    ("edits", "settings", "uses", "starts"),
    [
        (NAMES, OPT_IN, None, False),
        (NAMES, OPT_IN, {}, False),
        (NAMES, SETTINGS, None, True),
        ({}, OPT_IN, {}, True),
    ],
    ids=["unchecked", "no label", "without opt-in", "no Secret"],
)
def test_a_run_with_secrets_needs_labels_only_with_opt_in(
    edits: dict[str, Any], settings: OperatorSettings, uses: dict[str, str] | None, *, starts: bool
) -> None:
    cluster = ClusterWorld(run=operator_run(edits), settings=settings, secret_uses=uses)
    cluster.reconcile()
    assert (bool(cluster.launched), cluster.status.problem) == (starts, "" if starts else "NotAllowed")


def test_nothing_is_launched_while_the_operator_may_not_read_secrets() -> None:
    cluster = world(FORBIDDEN)
    cluster.trouble = FORBIDDEN
    cluster.reconcile()
    assert not cluster.launched
    assert cluster.status_and_reason(ConditionType.RESULTS_STORED) == ("False", "SecretForbidden")


def test_a_gate_gets_no_job_with_a_secret_that_may_not_be_used() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Finished", "lastTransitionTime": "2026-01-02T12:00:00Z"}
    finished = {"phase": "Succeeded", "completionTime": "2026-01-02T12:00:00Z", "conditions": [ready]}
    for uses, reason in (({}, "NotAllowed"), ({"bench-s3": "s3", "pull-a": "image-pull"}, "NotAllowed")):
        cluster = world(uses, **{"spec.gate": {"baselineRef": {"uri": "s3://results/else"}}})
        cluster.run["status"] = finished
        decision = cluster.reconcile()
        assert decision.apply == ()
        assert cluster.status_and_reason(ConditionType.GATE_PASSED) == ("Unknown", reason)
    cluster = world({name: use for name, use in USES.items() if name != "hub"}, **{"spec.gate": GATE})
    cluster.run["status"] = finished
    cluster.reconcile()
    assert cluster.condition(ConditionType.GATE_PASSED).reason != "NotAllowed", "a gate downloads nothing from a hub"


LABELS = {name: {LABEL_USE: use} for name, use in USES.items()}
KEYS = {"AWS_ACCESS_KEY_ID": "value", "AWS_SECRET_ACCESS_KEY": "value"}


def api_of(run: dict[str, Any], labels: Mapping[str, Mapping[str, str]]) -> FakeApi:
    """A server with this run and Secrets with these labels."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in KEYS.items()}
    return FakeApi.of(
        run, *({"kind": SECRET, "metadata": {"name": name, "labels": labels[name]}, "data": data} for name in labels)
    )


def read_whole(api: FakeApi) -> set[str]:
    """The Secrets of which more than metadata was read."""
    return {name for verb, kind, name in api.requests if (verb, kind) == ("get", SECRET)}


def observe_without_store(api: FakeApi) -> RunObservation:
    """What is observed with Secrets that opt in; nothing may be read in S3."""
    results = FakeResults()
    observed = observe(api, results, SecretReader(api, opt_in=True))
    assert (results.lookups, read_whole(api)) == ([], set())
    return observed


@pytest.mark.parametrize("adopt", [None, "Latest"])
@pytest.mark.parametrize("name", USES)
def test_nothing_is_read_with_a_secret_before_its_label_allows_it(name: str, adopt: str | None) -> None:
    run = operator_run({**NAMES, **({"spec.results.adopt": adopt} if adopt else {})})
    observed = observe_without_store(api_of(run, {**LABELS, name: {}}))
    assert observed.stored is None
    assert isinstance(observed.secret_uses, Mapping)
    assert [problem.path for problem in unusable_secrets(parse_run(run).spec, observed.secret_uses)]


def test_data_is_read_only_of_the_secret_for_s3() -> None:
    api = api_of(operator_run({**NAMES, "spec.results.s3.endpoint": "http://127.0.0.1:1"}), LABELS)
    secrets = SecretReader(api, opt_in=True)
    results: Any = ResultsReader(secrets, timeout_s=0.1)
    assert isinstance(observe(api, results, secrets).stored, StoreFailure), "nothing listens there"
    assert read_whole(api) == {"bench-s3"}
    assert secrets.s3_keys("default", "bench-s3") == KEYS


def test_a_forbidden_secret_is_a_failure_of_the_operator_and_not_of_the_run() -> None:
    api = api_of(operator_run(NAMES), LABELS)
    api.refuse["get metadata", SECRET] = Forbidden("Forbidden", "secrets is forbidden")
    observed = observe_without_store(api)
    assert isinstance(observed.stored, StoreFailure)
    assert (observed.stored.reason, observed.secret_uses) == ("SecretForbidden", observed.stored)


def test_a_finished_run_reads_no_secret() -> None:
    status = {"phase": "Succeeded", "completionTime": "2026-01-02T12:00:00Z"}
    assert observe_without_store(api_of({**operator_run(NAMES), "status": status}, LABELS)).secret_uses is None


def test_an_api_key_needs_a_label_of_its_own() -> None:
    """A token of another use, such as that of the hub, would be sent to any server that the run names."""
    run = operator_run(
        {**endpoint_edits("none", apiKeySecretRef={"name": "key"}), "spec.placement": {}, "spec.results.s3": NO_KEYS}
    )
    for label, phase in (("hub", Phase.INVALID), ("endpoint", Phase.RUNNING)):
        world = launched(run=run, settings=OPT_IN, secret_uses={"key": label})
        assert world.status.phase is phase
    world.run["status"] = {}
    world.secret_uses = {}
    world.settle()
    message = world.condition(ConditionType.VALIDATED).message
    assert message.startswith("spec.engine.apiKeySecretRef.name: the Secret 'key' does not exist")
    assert "kubectl label secret key specbench.io/use=endpoint" in message


# Known values of Secrets are nowhere in what the operator creates, reports or logs.


TOKEN = "hf_" + "kN4vTq8LxR2mZ7bWcY5dJ1sGhP3fUaE9"
KEY_ID, KEY = "AKIAQ4ZT7LM2XV5RN8WB", "t7Qm/Vx2Lr9+KdPz4WnB8sYc1HgJ5fUaE3oTiR6M"
SECRETS = {"hub": {"HF_TOKEN": TOKEN}, "bench-s3": {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": KEY}}
VALUES = [TOKEN, KEY_ID, KEY, *(base64.b64encode(value.encode()).decode() for value in (TOKEN, KEY_ID, KEY))]
WITH_SECRETS = {
    "spec.results.s3.credentialsSecretRef": {"name": "bench-s3"},
    "spec.model.tokenSecretRef": {"name": "hub"},
}
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
    cluster = ClusterWorld(run=operator_run(WITH_SECRETS), settings=settings_of(mode))
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
    cluster = RecordingWorld(
        run=operator_run({**WITH_SECRETS, **edits}), settings=replace(SETTINGS, probe_engines=True)
    )
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
    cluster = ClusterWorld(run=operator_run(WITH_SECRETS), settings=settings_of(mode))
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


# What a container is started with: its variables and command line, as the kubelet computes them from its manifest.

_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")

Secrets = Mapping[str, Mapping[str, str]]
"""Secret → key → value."""


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced by the variable, and `$$` by `$`. An unknown name is left as it is."""
    return _REFERENCE.sub(lambda found: "$" if found[1] == "$" else variables.get(found[2], found[0]), text)


def environment_of(container: Mapping[str, Any], secrets: Secrets) -> dict[str, str]:
    """The container's variables. A value may refer to the variables before it."""
    variables: dict[str, str] = {}
    for row in container.get("env", ()):
        if "value" in row:
            variables[row["name"]] = expanded(row["value"], variables)
        else:
            reference = row["valueFrom"]["secretKeyRef"]
            value = secrets.get(reference["name"], {}).get(reference["key"])
            assert value is not None or reference.get("optional"), f"the container would not start: {reference}"
            if value is not None:
                variables[row["name"]] = value
    return variables


def command_line_of(container: Mapping[str, Any], secrets: Secrets) -> list[str]:
    """The container's command and arguments."""
    variables = environment_of(container, secrets)
    words = (*container.get("command", ()), *container.get("args", ()))
    return [expanded(str(word), variables) for word in words]
