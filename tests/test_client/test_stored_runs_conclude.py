"""The run's summary, computed from files in a results folder."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.layout import launch_key, manifest_key, run_root
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_client.documents.summary import RunSummary
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions, SystemClock
from specbench_client.errors import NotDurable
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.speculation import SimulatedMethod, make_drafter
from specbench_client.store.folder import FolderStore
from specbench_client.store.store import Store
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.faulty_stores import DelegatingStore, InterferingStore
from specbench_testing.local_results import store_results
from specbench_testing.simulated_groups import UID, plan_of, simulator, write_prompts
from specbench_testing.synthetic_records import SyntheticRun

pytestmark = pytest.mark.runs

DERIVED = ("provenance.json", "report.html", "results.csv", "summary.json", "status.json")
CLOCK = SystemClock(wall=lambda: datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))


async def drive(
    plan: Plan, groups: Sequence[EngineGroup], results: Path, *, longest: Mapping[str, int] | None = None
) -> FolderStore:
    """Measure these groups, each against a simulator of its drafter. `longest`: maximum model length by arm."""
    store = FolderStore(results)
    for group in groups:
        drafter = plan.arm(group.arm).drafter
        drafting = make_drafter(
            SimulatedMethod(drafter.method) if drafter else SimulatedMethod.NONE, 3 if drafter else 0
        )
        length = (longest or {}).get(group.arm, 32768)
        config = SimulatorConfig(time_scale=0, drafter=drafting, max_model_len=length)
        async with simulator(results.parent / f"truth-{group.index}.jsonl", config) as engine:
            options = DriveOptions(attempt=f"{group.index}")
            await drive_group(plan, group, engine.url, store, options)
    return store


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    load = {"concurrency": [2], "repeats": 2, "warmupRequests": 1}
    prompts = write_prompts(tmp_path_factory.mktemp("prompts") / "p.jsonl", count=8)
    return plan_of(prompts, {"spec.load": load})


@pytest.fixture(scope="module")
def first_driven(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with only the first group measured; read-only, shared by the module."""
    results = tmp_path_factory.mktemp("begun") / "results"
    asyncio.run(drive(plan, plan.groups[:1], results))
    return results


@pytest.fixture(scope="module")
def all_driven(plan: Plan, first_driven: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = shutil.copytree(first_driven, tmp_path_factory.mktemp("finished") / "results")
    asyncio.run(drive(plan, plan.groups[1:], results))
    return results


@pytest.fixture
def partly_measured(first_driven: Path, tmp_path: Path) -> FolderStore:
    return FolderStore(shutil.copytree(first_driven, tmp_path / "results"))


@pytest.fixture
def finished(all_driven: Path, tmp_path: Path) -> FolderStore:
    return FolderStore(shutil.copytree(all_driven, tmp_path / "results"))


@pytest.mark.process
def test_conclude_writes_the_summary_report_table_and_provenance(plan: Plan, finished: FolderStore) -> None:
    summary = conclude(plan, finished, CLOCK)

    assert (summary.points_measured, summary.points_total, summary.missing) == (4, 4, [])
    assert RunSummary.from_json(finished.get("summary.json") or b"") == summary
    assert summary.created == "2030-01-02T03:04:05.000Z"
    assert summary.simulated
    assert b"<html" in (finished.get("report.html") or b"")
    assert len((finished.get("results.csv") or b"").splitlines()) == 1 + len(summary.cells)
    provenance = json.loads(finished.get("provenance.json") or b"")
    assert provenance["engineVersions"] == ["simulated-0.1.0"]
    assert len(provenance["points"]) == 4


@pytest.mark.process
def test_conclude_updates_the_summary_when_more_is_measured(
    plan: Plan, partly_measured: FolderStore, tmp_path: Path
) -> None:
    first = conclude(plan, partly_measured, CLOCK)
    assert set(first.missing) == {point.hash for point in plan.points} - {each.hash for each in plan.groups[0].points}
    assert (first.points_measured, first.trustworthy) == (len(plan.groups[0].points), False)
    asyncio.run(drive(plan, plan.groups, tmp_path / "results"))
    summary = conclude(plan, partly_measured, CLOCK)
    assert summary.missing == []
    assert RunSummary.from_json(partly_measured.get("summary.json") or b"") == summary


WORLD = SyntheticRun(prompts=4, categories=("code",), repeats=4)


def root_of(tmp_path: Path, plan: Plan) -> Path:
    return tmp_path / "results" / run_root(plan.namespace, plan.name, plan.uid)


def store_with_points(tmp_path: Path, points: int) -> FolderStore:
    return FolderStore(root_of(tmp_path, store_results(WORLD, tmp_path / "results", UID, points)))


def truncate_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("records/*.parquet", truncate_file),
        ("records/*.parquet", Path.unlink),
        ("summary.json", truncate_file),
        ("summary.json", Path.unlink),
        ("manifest.json", truncate_file),
    ],
)
def test_conclude_rejects_damaged_files_and_writes_nothing(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    store = store_with_points(tmp_path, points=2)
    plan = Plan.from_json(store.get("plan.json") or b"")
    manifest = root_of(tmp_path, plan) / manifest_key(plan.points[0].hash)
    damage(next(manifest.parent.glob(name)))

    with pytest.raises(NotDurable) as caught:
        conclude(plan, store, CLOCK)

    assert caught.value.reason == "Damaged"
    assert not [key for key in DERIVED if store.get(key)]


# -- concurrent writers ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
def test_outdated_summary_never_replaces_a_newer_one(tmp_path: Path) -> None:
    store = store_with_points(tmp_path, points=7)
    plan = Plan.from_json(store.get("plan.json") or b"")

    def finish_run() -> None:
        store_with_points(tmp_path, points=8)
        assert conclude(plan, store, CLOCK).points_measured == 8

    assert conclude(plan, InterferingStore(store, "provenance.json", finish_run), CLOCK).points_measured == 8

    assert RunSummary.from_json(store.get("summary.json") or b"").points_measured == 8
    assert len(json.loads(store.get("provenance.json") or b"")["points"]) == 8


class GrowingStore(DelegatingStore):
    """A store in which each listing of all points contains one more manifest, as in a run in progress."""

    def __init__(self, store: Store, seen: int) -> None:
        super().__init__(store)
        self.seen = seen

    def keys(self, prefix: str = "") -> list[str]:
        found = super().keys(prefix)
        if prefix != "points/":
            return found
        to_come = [key for key in found if key.endswith("manifest.json")][self.seen :]
        self.seen += 1
        return [key for key in found if key not in to_come]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("seen", "measured"), [(1, 5), (3, 8)], ids=["run continues", "run ends meanwhile"])
def test_conclude_returns_a_summary_while_the_run_continues(seen: int, measured: int, tmp_path: Path) -> None:
    """A round lists twice, so the third starts with the fifth point; only a complete run gets a fourth round."""
    store = GrowingStore(store_with_points(tmp_path, points=8), seen)
    plan = Plan.from_json(store.get("plan.json") or b"")

    assert conclude(plan, store, CLOCK).points_measured == measured


# -- provenance --------------------------------------------------------------------------------------------------------


def provenance_of(store: Store) -> dict[str, Any]:
    provenance: dict[str, Any] = json.loads(store.get("provenance.json") or b"")
    return provenance


@pytest.mark.process
def test_provenance_contains_each_launchs_facts_and_the_cost_of_each_arm(plan: Plan, finished: FolderStore) -> None:
    key = next(key for key in finished.keys("launches/"))
    launch = json.loads(finished.get(key) or b"")
    launch["facts"]["image"] = {"value": "vllm/vllm-openai:v0.33.0", "source": "the pod's spec.containers.image"}
    finished.replace(key, json.dumps(launch).encode())
    summary = conclude(plan, finished, CLOCK)
    provenance = provenance_of(finished)
    launches = {manifest["launch"] for manifest in provenance["points"].values()}
    assert set(provenance["launches"]) == launches
    facts = provenance["launches"]["0-0"]["facts"]
    assert facts["engine_version"] == {"value": "simulated-0.1.0", "source": "GET /version: version"}
    assert facts["gpu"]["value"] is None
    assert facts["gpu"]["reason"]
    assert provenance["arms"] == [row.to_dict() for row in summary.arm_environments]
    assert [row["arm"] for row in provenance["arms"]] == ["none", "ngram"]
    assert provenance["arms"][1]["kvCacheLost"]["value"] == 0, "the simulator's drafters use no memory"
    assert provenance["differences"] == []
    assert provenance["movingImages"] == ["vllm/vllm-openai:v0.33.0"], "it was requested by a tag"


@pytest.mark.process
def test_launches_that_differ_are_listed_in_provenance_and_reported(
    plan: Plan, partly_measured: FolderStore, tmp_path: Path
) -> None:
    """vLLM shortens the context by itself when the drafter's model has the smaller maximum."""
    asyncio.run(drive(plan, plan.groups[1:], tmp_path / "results", longest={"ngram": 4096}))

    summary = conclude(plan, partly_measured, CLOCK)

    provenance = provenance_of(partly_measured)
    assert provenance["differences"] == ["max_model_len is not the same in all launches: 32768 on none, 4096 on ngram"]
    assert provenance["arms"][1]["kvCacheLost"]["value"] == 1 - 4096 / 32768
    assert "ArmEnvironmentsDiffer" in {finding.check for finding in summary.findings}


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "reason"), [(None, "there is no launches/0-0.json"), ("{}", "launches/0-0.json cannot be read: it was")]
)
def test_unreadable_launch_is_reported_in_provenance_and_the_summary_is_kept(
    text: str | None, reason: str, plan: Plan, partly_measured: FolderStore, tmp_path: Path
) -> None:
    path = tmp_path / "results" / launch_key("0-0")
    path.unlink() if text is None else path.write_text(text)

    assert conclude(plan, partly_measured, CLOCK).points_measured == len(plan.groups[0].points)

    assert provenance_of(partly_measured)["launches"]["0-0"]["reason"].startswith(reason)
    assert provenance_of(partly_measured)["arms"] == []
