"""Launch facts: read from the engine over HTTP, stored before the first point, and compared with later launches."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench_api.outcome.layout import launch_key, manifest_key
from specbench_api.outcome.provenance import FACTS, Fact, FactName, HostFacts, LaunchRecord
from specbench_api.plan.plan import Plan
from specbench_client.documents.manifest import Manifest
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.speculation import SimulatedMethod, make_drafter
from specbench_client.store.folder import FolderStore
from specbench_testing.simulated_groups import plan_of, simulator, write_prompts

pytestmark = pytest.mark.process
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


@pytest.mark.parametrize("dialect", SEEN)
async def test_every_simulated_dialect_reports_its_engines_facts(
    dialect: str, tmp_path: Path, store: FolderStore
) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"), {"spec.engine.dialect": dialect})

    await drive(tmp_path, plan, store, group=1)

    seen = seen_of(store, 1)
    values = {name.value: fact.value for name, fact in seen.facts.items() if fact.value is not None}
    arguments = values.pop("arguments", None)
    assert values == SEEN[dialect]
    assert (arguments is not None) == (dialect == "sglang")
    assert (seen.arm, seen.group, seen.simulated) == ("ngram", 1, True)
    assert set(seen.facts) == set(FACTS)


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


async def test_unknown_facts_have_a_reason(tmp_path: Path, store: FolderStore) -> None:
    await drive(tmp_path, plan_of(write_prompts(tmp_path / "p.jsonl")), store)

    facts = seen_of(store).facts
    assert facts[FactName.TORCH] == Fact.unknown("simulator does not report it over HTTP")
    assert facts[FactName.GPU] == Fact.unknown("it was not reported where the engine runs")
    assert facts[FactName.DRAFTER_AT_WORK] == Fact.observed(value=False, source="GET /metrics")


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


async def test_host_facts_are_stored_with_the_launch_and_the_image_in_manifests(
    tmp_path: Path, store: FolderStore
) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"))

    await drive(tmp_path, plan, store, place=host_facts("gpu-1", "sha256:a"))

    assert seen_of(store).value(FactName.NODE) == "gpu-1"
    assert seen_of(store).facts[FactName.DRIVER] == Fact.unknown("not set by the test")
    manifest = Manifest.from_json(store.get(manifest_key(plan.groups[0].points[0].hash)) or b"")
    assert manifest.observed.image_digest == "sha256:a"
