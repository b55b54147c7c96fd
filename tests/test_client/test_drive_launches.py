"""Driving a group: facts of a launch, prompts, resumption, and objects in S3."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.layout import PLAN as PLAN_KEY
from specbench_api.outcome.layout import launch_key, manifest_key
from specbench_api.outcome.provenance import FACTS, Fact, FactName, HostFacts, LaunchRecord
from specbench_api.plan.expansion import expand, lay_out
from specbench_api.plan.plan import Plan
from specbench_client.chat import ChatMessage
from specbench_client.documents.manifest import Manifest, PointProvenance
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.drive.prompts import WorkloadPrompts, load_workload_prompts, reject_too_long_prompts
from specbench_client.drive.resume import claim_store, reject_changed_inputs
from specbench_client.errors import BadInput, NotDurable
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.speculation import SimulatedMethod, make_drafter
from specbench_client.store import retrying as retrying_module
from specbench_client.store.folder import FolderStore
from specbench_client.store.locations import open_store
from specbench_client.workload.prompt_lengths import EncodingMissing
from specbench_client.workload.prompts import Prompts, warn_once
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.ports import free_port
from specbench_testing.reference_tokenizers import WordEncoding
from specbench_testing.resources import run_of
from specbench_testing.s3 import S3Access, S3Server
from specbench_testing.simulated_groups import plan_of, records_of, simulator, write_prompts
from specbench_testing.synthetic_records import SyntheticRun, measured_rows

KV_CACHE_TOKENS = 256 * 32768
"""The KV cache size that the simulator reports."""
SEEN: dict[str, dict[str, object]] = {
    "vllm": {
        "engine_version": "simulated-0.1.0",
        "model": "simulated",
        "max_model_len": 32768,
        "kv_cache_tokens": KV_CACHE_TOKENS,
        "kv_cache_dtype": "auto",
        "prefix_cache": False,
        "drafter_at_work": True,
    },
    "sglang": {
        "engine_version": "simulated-0.1.0",
        "model": "simulated",
        "max_model_len": 32768,
        "max_running_requests": 256,
        "kv_cache_tokens": KV_CACHE_TOKENS,
        "prefix_cache": False,
        "drafter_at_work": True,
    },
    "tensorrt-llm": {"engine_version": "simulated-0.1.0", "model": "simulated"},
}


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "results")


def host_facts(node: str, digest: str) -> HostFacts:
    facts = {FactName.NODE: Fact.observed(node, "a test"), FactName.IMAGE_DIGEST: Fact.observed(digest, "a test")}
    return HostFacts(facts=facts, unknown_reason="not set by the test")


async def drive(tmp_path: Path, plan: Plan, store: FolderStore, group: int = 0, place: HostFacts | None = None) -> None:
    """Drive one group against a simulator of its drafter, with the given host facts."""
    drafter = plan.arm(plan.groups[group].arm).drafter
    config = SimulatorConfig(
        time_scale=0,
        drafter=make_drafter(SimulatedMethod.NGRAM, 3) if drafter else make_drafter(SimulatedMethod.NONE, 0),
    )
    options = DriveOptions(attempt=f"{group}-a", place=place or HostFacts())
    async with simulator(tmp_path / f"truth-{group}", config, plan.engine.dialect or "vllm") as engine:
        await drive_group(plan, plan.groups[group], engine.url, store, options)


def seen_of(store: FolderStore, group: int = 0) -> LaunchRecord:
    return LaunchRecord.from_json(store.get(launch_key(f"{group}-{group}-a")) or b"")


@pytest.mark.process
@pytest.mark.parametrize("dialect", SEEN)
async def test_every_simulated_dialect_reports_its_engines_facts(
    dialect: str, tmp_path: Path, store: FolderStore
) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"), {"spec.engine.dialect": dialect})

    await drive(tmp_path, plan, store, group=1)

    seen = seen_of(store, 1)
    values = {name.value: fact.value for name, fact in seen.facts.items() if fact.value is not None}
    arguments = values.pop("arguments", None)
    assert str(values.pop("served_by")).startswith("simulated")
    assert values == SEEN[dialect]
    assert (arguments is not None) == (dialect == "sglang")
    assert (seen.arm, seen.group, seen.simulated) == ("ngram", 1, True)
    assert set(seen.facts) == set(FACTS)


@pytest.mark.process
async def test_sampling_of_drafts_follows_from_the_options(tmp_path: Path, store: FolderStore) -> None:
    options = {"draft_sample_method": "probabilistic"}
    drafter = {"name": "draft", "method": "draft_model", "model": "m", "numSpeculativeTokens": 3}
    edits = {"spec.engine": {"kind": "vllm"}, "spec.drafters": [{**drafter, "speculativeConfig": options}]}
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"), {**edits, "spec.model": {"name": "simulated"}})

    await drive(tmp_path, plan, store, group=1)
    await drive(tmp_path, plan, store, group=0)

    drafting, baseline = seen_of(store, 1).facts, seen_of(store, 0).facts
    source = "speculativeConfig.draft_sample_method"
    assert drafting[FactName.DRAFT_SAMPLING] == Fact.observed("probabilistic", source)
    assert drafting[FactName.DRAFT_VERIFICATION] == Fact.observed("rejection sampling", "default of vllm 0.33.0")
    assert baseline[FactName.DRAFT_SAMPLING] == Fact.unknown("the baseline has no drafter")


@pytest.mark.process
async def test_unknown_facts_have_a_reason(tmp_path: Path, store: FolderStore) -> None:
    await drive(tmp_path, plan_of(write_prompts(tmp_path / "p.jsonl")), store)

    facts = seen_of(store).facts
    assert facts[FactName.TORCH] == Fact.unknown("simulator does not report it over HTTP")
    assert facts[FactName.GPU] == Fact.unknown("it was not reported where the engine runs")
    assert facts[FactName.DRAFTER_AT_WORK] == Fact.observed(value=False, source="GET /metrics")


@pytest.mark.process
async def test_launch_record_is_stored_before_the_first_point(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"))
    kept: list[bool] = []

    def check_store(progress: Progress) -> None:
        if progress.point:
            kept.append(store.get(launch_key("0-1")) is not None)

    options = DriveOptions(attempt="1", on_progress=check_store, show_every_s=0.001)
    async with simulator(tmp_path / "truth") as engine:
        await drive_group(plan, plan.groups[0], engine.url, store, options)

    assert kept
    assert all(kept)


@pytest.mark.process
async def test_host_facts_are_stored_with_the_launch_and_the_image_in_manifests(
    tmp_path: Path, store: FolderStore
) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"))

    await drive(tmp_path, plan, store, place=host_facts("gpu-1", "sha256:a"))

    assert seen_of(store).value(FactName.NODE) == "gpu-1"
    assert seen_of(store).facts[FactName.DRIVER] == Fact.unknown("not set by the test")
    manifest = Manifest.from_json(store.get(manifest_key(plan.groups[0].points[0].hash)) or b"")
    assert manifest.observed.image_digest == "sha256:a"


def prompts(*lengths: int) -> dict[str, WorkloadPrompts]:
    rows = [Prompt(f"q{words}", None, ((ChatMessage("user", "word " * words),),)) for words in lengths]
    return {"chat": WorkloadPrompts(Prompts(tuple(rows), "f"))}


def rejection_message(engine: dict[str, Any], drafter: list[str] | None = None, *lengths: int) -> str:
    edits: dict[str, Any] = {"spec.engine": engine, "spec.workloads[0].output": {"maxTokens": 100}}
    edits["spec.load"] = {"concurrency": [4], "repeats": 1}
    if drafter is not None:
        edits["spec.drafters[0].args"] = drafter
    plan = expand(run_of(edits))
    try:
        reject_too_long_prompts(plan, prompts(*lengths), WordEncoding)
    except BadInput as rejection:
        return str(rejection)
    return "fits"


VLLM = {"kind": "vllm", "args": ["--max-model-len=1000"]}


@pytest.mark.parametrize(
    "engine",
    [
        VLLM,
        {"kind": "vllm", "args": ["--max-model-len", "1000"]},
        {"kind": "sglang", "args": ["--context-length=1000"]},
        {"kind": "simulator", "args": ["--max-model-len=1000"]},
    ],
)
def test_prompt_without_room_for_its_answer_is_rejected_with_a_remedy(engine: dict[str, Any]) -> None:
    assert rejection_message(engine, None, 900) == "fits"
    assert rejection_message(engine, None, 900, 901, 950) == (
        "workload 'chat': 2 of 3 prompts are too long for the context of 1000 tokens of the arm 'none' with"
        " output.maxTokens 100: q901, q950; the longest has 950 (o200k_base): set dataset.inputTokens: {max: 836} to"
        " drop them on every arm, or raise the context length, or lower output.maxTokens"
    )


def test_engine_that_truncates_answers_rejects_only_prompts_above_its_context() -> None:
    engine = {"kind": "llama-cpp", "args": ["--ctx-size=4000"]}  # shared by four slots
    assert rejection_message(engine, None, 999) == "fits"
    assert "1 of 2 prompts are too long for the context of 1000 tokens of the arm 'none': q1000;" in rejection_message(
        engine, None, 999, 1000
    )


def test_smallest_context_of_all_arms_is_the_limit() -> None:
    message = rejection_message({"kind": "simulator"}, ["--max-model-len=500"], 450)
    assert "too long for the context of 500 tokens of the arm 'ngram'" in message


@pytest.mark.parametrize(
    "engine", [{"kind": "vllm"}, {"kind": "llama-cpp", "args": ["--ctx-size=4000", "--kv-unified"]}]
)
def test_prompts_are_not_checked_without_a_declared_context_length(engine: dict[str, Any]) -> None:
    assert rejection_message(engine, None, 3000) == "fits"


def test_prompts_are_not_checked_if_tokens_cannot_be_counted() -> None:
    def missing() -> WordEncoding:
        raise EncodingMissing("no table")

    plan = expand(run_of({"spec.engine": VLLM, "spec.workloads[0].output": {"maxTokens": 100}}))
    reject_too_long_prompts(plan, prompts(5000), missing)


def test_client_side_token_counts_are_used_if_available() -> None:
    def never() -> WordEncoding:
        raise AssertionError("no token count must be estimated")

    plan = expand(run_of({"spec.engine": VLLM, "spec.workloads[0].output": {"maxTokens": 100}}))
    rows = prompts(1, 2)["chat"].prompts
    reject_too_long_prompts(plan, {"chat": WorkloadPrompts(rows, None, {"q1": 899, "q2": 900})}, never)
    with pytest.raises(BadInput, match=r"1 of 2 prompts .*: q2; the longest has 901 \(the model's own tokens\)"):
        reject_too_long_prompts(plan, {"chat": WorkloadPrompts(rows, None, {"q1": 899, "q2": 901})}, never)


def test_longer_recorded_answers_than_the_workload_allows_are_rejected(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 9, "output_length": length, "hash_ids": [1]} for length in (20, 31, 31)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = {"spec.workloads[0].dataset": {"source": "mooncake", "uri": "t.jsonl"}}
    plan, fitting = (
        expand(run_of({**trace, "spec.workloads[0].output": {"maxTokens": tokens}})) for tokens in (30, 31)
    )
    assert load_workload_prompts(fitting, ["chat"], tmp_path)
    message = (
        "2 of 3 answers are to be longer than output.maxTokens 30, the first in line-2: set output.maxTokens to 31"
    )
    with pytest.raises(BadInput, match=message):
        load_workload_prompts(plan, ["chat"], tmp_path)


@pytest.mark.parametrize(
    ("load", "running", "few"),
    [
        ({"requests": 4}, False, True),
        ({"requests": 5}, False, False),
        ({}, False, False),
        ({"requests": 4, "repeats": 3}, False, True),
        ({"requests": 4, "repeats": 3}, True, False),
        ({"requestsPerStream": 2, "concurrency": [4, 2]}, False, True),
    ],
    ids=["few", "enough", "all", "the same in each repeat", "others in each repeat", "at the lightest load"],
)
def test_a_load_that_sends_few_prompts_is_named_before_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, load: dict[str, Any], *, running: bool, few: bool
) -> None:
    (tmp_path / "five.jsonl").write_text("".join(f'{{"id": "{n}", "prompt": "p {n}"}}\n' for n in range(5)))
    edits: dict[str, Any] = {"spec.workloads[0].dataset": {"source": "jsonl", "uri": "five.jsonl"}}
    edits["spec.load"] = {"concurrency": [2], "repeats": 1, **load}
    if running:
        edits |= {"spec.engine": {"kind": "external", "endpoints": ENDPOINTS}, "spec.drafters": []}
    warn_once.cache_clear()
    load_workload_prompts(lay_out(run_of(edits)), ["chat"], tmp_path)
    assert ("TooFewPrompts" in caplog.text) == few


PLAN = SyntheticRun().plan
MEASURED = PointProvenance(
    dataset_fingerprint="prompts", prompts=3, engine_version="1", engine_model="m", image_digest="sha256:a",
    trace_fingerprint="trace", chat_template_sha256="template", tokenizer_sha256="tokenizer", client_version="0",
    launch="0-a",
)  # fmt: skip
ENDPOINTS = [{"name": "none", "url": "http://a:1"}, {"name": "eagle3", "url": "http://b:1"}]
SERVERS = lay_out(run_of({"spec.engine": {"kind": "external", "endpoints": ENDPOINTS}, "spec.drafters": []}))


def continue_run(plan: Plan, arm: str, **changed: object) -> None:
    """Continue a run whose first point was measured, with these changes, at an engine of this arm."""
    point = plan.points[0]
    manifest = Manifest(
        hash=point.hash,
        attempt="a",
        started_monotonic_ns=0,
        started_wall="",
        ended_wall="",
        files=[],
        observed=MEASURED,
    )
    now = MEASURED.model_copy(update=changed)
    reject_changed_inputs(plan, {point.hash: manifest}, {point.workload: now}, arm)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("dataset_fingerprint", r"prompts of the workload 'chat' changed from prompts \(3 prompts\) to other"),
        ("engine_version", "engine's version changed from '1' to 'other'"),
        ("engine_model", "model that the engine serves changed from 'm' to 'other'"),
        ("image_digest", "engine's image changed from 'sha256:a' to 'other'"),
        ("trace_fingerprint", "trace of arrivals changed from 'trace' to 'other'"),
        ("chat_template_sha256", "chat template changed from 'template' to 'other'"),
        ("tokenizer_sha256", "tokenizer that the chat template is applied with changed from 'tokenizer' to 'other'"),
    ],
)
def test_changed_input_is_rejected(field: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        continue_run(PLAN, "none", **{field: "other"})
    assert caught.value.reason == "ObservedChanged"
    assert "anew without results.adopt" in str(caught.value), "results.adopt would find the same results again"


@pytest.mark.parametrize("changed", [{"engine_version": None}, {"image_digest": None}, {"launch": "1-b"}], ids=str)
def test_unknown_values_and_another_launch_are_no_changes(changed: dict[str, object]) -> None:
    continue_run(PLAN, "none", **changed)


def test_the_servers_of_an_endpoint_are_compared_with_themselves_only() -> None:
    assert SERVERS.points[0].arm == "none"
    continue_run(SERVERS, "eagle3", engine_version="2")
    with pytest.raises(BadInput, match="engine's version"):
        continue_run(SERVERS, "none", engine_version="2")
    with pytest.raises(BadInput, match="prompts of the workload"):
        continue_run(SERVERS, "eagle3", dataset_fingerprint="other")


def test_a_store_belongs_to_plans_that_measure_the_same(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    claim_store(PLAN, store)
    assert store.get(PLAN_KEY) == PLAN.to_json().encode()
    placement = PLAN.placement.model_copy(update={"queue_name": "bench"})
    claim_store(PLAN.model_copy(update={"placement": placement}), store)
    assert store.get(PLAN_KEY) == PLAN.to_json().encode(), "the stored plan is kept"
    with pytest.raises(BadInput, match="another plan") as caught:
        claim_store(SyntheticRun(repeats=1).plan, store)
    assert caught.value.reason == "OtherPlan"


def test_a_stored_plan_that_cannot_be_read_is_another_plan(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put(PLAN_KEY, b"{}")
    with pytest.raises(BadInput, match="cannot be read as a plan") as caught:
        claim_store(PLAN, store)
    assert caught.value.reason == "OtherPlan"


SLOW = SimulatorConfig(time_scale=1)


def options_in(tmp_path: Path) -> DriveOptions:
    return DriveOptions(attempt="1", show_every_s=0.02)


async def until(event: asyncio.Event) -> None:
    async with asyncio.timeout(120):
        await event.wait()


async def test_temporary_s3_outage_loses_nothing(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl", count=40))
    store = open_store(f"s3://{s3_server.access.bucket}/p")
    (point,) = plan.groups[0].points
    started, retrying, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
    monkeypatch.setattr(retrying_module._log, "warning", lambda *_: loop.call_soon_threadsafe(retrying.set))

    def watch_progress(progress: Progress) -> None:
        if progress.phase == "measuring" and progress.requests_done >= 3:
            started.set()

    options = replace(options_in(tmp_path), on_progress=watch_progress)
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        task = asyncio.create_task(drive_group(plan, plan.groups[0], engine.url, store, options))
        await until(started)
        s3_server.stop()
        await until(retrying)  # the measurement has continued, and its records wait
        assert not task.done()
        await asyncio.to_thread(s3_server.start)
        await task

    records = records_of(plan, store)
    assert sorted(measured_rows(records).prompt_id) == sorted(f"q{number}" for number in range(40))
    assert set(records.request_id) < set(engine.received())
    assert store.get(manifest_key(point.hash)) is not None


async def test_permanent_s3_outage_fails_the_group_and_commits_nothing(s3_server: S3Server, tmp_path: Path) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl", count=10))
    store = open_store(f"s3://{s3_server.access.bucket}/p")
    started = asyncio.Event()

    def watch_progress(progress: Progress) -> None:
        if progress.phase == "measuring" and progress.requests_done:
            started.set()

    options = replace(options_in(tmp_path), on_progress=watch_progress, patience_s=0.2)
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        task = asyncio.create_task(drive_group(plan, plan.groups[0], engine.url, store, options))
        await until(started)
        s3_server.stop()
        with pytest.raises(NotDurable) as caught:
            await task

    assert caught.value.reason == "S3Away"
    await asyncio.to_thread(s3_server.start)
    assert store.get(manifest_key(plan.groups[0].points[0].hash)) is None


async def test_interrupt_is_not_delayed_by_an_s3_outage(s3_server: S3Server, tmp_path: Path) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl", count=6))
    store = open_store(f"s3://{s3_server.access.bucket}/p")
    storing = asyncio.Event()

    def watch_progress(progress: Progress) -> None:
        if progress.phase == "measuring":
            s3_server.stop()
        if progress.phase == "storing":
            storing.set()

    options = replace(options_in(tmp_path), on_progress=watch_progress, patience_s=600)
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        task = asyncio.create_task(drive_group(plan, plan.groups[0], engine.url, store, options))
        await until(storing)
        task.cancel()
        async with asyncio.timeout(120):
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"bucket": "no-such-bucket"}, "BucketMissing"),
        ({"secret": "WRONG"}, "CredentialsRefused"),
        ({"key": "WRONG"}, "CredentialsRefused"),
        ({"endpoint": f"http://127.0.0.1:{free_port()}"}, "S3Away"),
    ],
)
async def test_store_error_is_raised_before_any_request_is_sent(
    wrong: dict[str, str], reason: str, s3_access: S3Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = replace(s3_access, **wrong)
    access.enter(monkeypatch)
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"))

    async with simulator(tmp_path / "truth.jsonl") as engine:
        store = open_store(f"s3://{access.bucket}/p")
        with pytest.raises(NotDurable) as caught:
            await drive_group(plan, plan.groups[0], engine.url, store, replace(options_in(tmp_path), patience_s=0.1))
        assert engine.received() == []

    assert caught.value.reason == reason
