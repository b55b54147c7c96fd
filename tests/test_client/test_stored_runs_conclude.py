"""The run's answer, made from what really lies in a folder."""

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
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions, SystemClock
from specbench_client.errors import NotDurable
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.speculation import SimulatedMethod, make_drafter
from specbench_client.store.folder import FolderStore
from specbench_client.store.store import Store
from specbench_client.stored_runs.conclude import conclude
from specbench_testing.faulty_stores import DelegatingStore, InterferingStore
from specbench_testing.local_results import store_results
from specbench_testing.simulated_groups import UID, plan_of, simulator, write_prompts
from specbench_testing.synthetic_records import SyntheticRun

pytestmark = pytest.mark.usefixtures("few_resamples")

DERIVED = ("provenance.json", "report.html", "results.csv", "summary.json")
CLOCK = SystemClock(wall=lambda: datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))


async def drive(
    plan: Plan, groups: Sequence[EngineGroup], results: Path, *, longest: Mapping[str, int] | None = None
) -> FolderStore:
    """These groups measured, each with the engine that it asks for. `longest`: by arm."""
    store = FolderStore(results)
    for group in groups:
        wanted = plan.arm(group.arm).drafter
        drafting = make_drafter(SimulatedMethod(wanted.method), 3) if wanted else make_drafter(SimulatedMethod.NONE, 0)
        length = (longest or {}).get(group.arm, 32768)
        config = SimulatorConfig(time_scale=0, drafter=drafting, max_model_len=length)
        async with simulator(results.parent / f"truth-{group.index}.jsonl", config) as engine:
            options = DriveOptions(attempt=f"{group.index}", spool=results.parent / "spool")
            await drive_group(plan, group, engine.url, store, options)
    return store


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    load = {"concurrency": [2], "repeats": 2, "warmupRequests": 1}
    prompts = write_prompts(tmp_path_factory.mktemp("prompts") / "p.jsonl", count=8)
    return plan_of(prompts, {"spec.load": load})


@pytest.fixture(scope="module")
def first_driven(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results in which the first group alone is measured. Measured once: nobody writes into them."""
    results = tmp_path_factory.mktemp("begun") / "results"
    asyncio.run(drive(plan, plan.groups[:1], results))
    return results


@pytest.fixture(scope="module")
def all_driven(plan: Plan, first_driven: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results in which all groups are measured. Measured once: nobody writes into them."""
    results = shutil.copytree(first_driven, tmp_path_factory.mktemp("finished") / "results")
    asyncio.run(drive(plan, plan.groups[1:], results))
    return results


@pytest.fixture
def begun(first_driven: Path, tmp_path: Path) -> FolderStore:
    """A run of which the first group is measured."""
    return FolderStore(shutil.copytree(first_driven, tmp_path / "results"))


@pytest.fixture
def finished(all_driven: Path, tmp_path: Path) -> FolderStore:
    """A run of which everything is measured."""
    return FolderStore(shutil.copytree(all_driven, tmp_path / "results"))


@pytest.mark.process
def test_a_finished_run_has_its_answer_in_four_files(plan: Plan, finished: FolderStore) -> None:
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
def test_points_without_a_manifest_are_named(plan: Plan, begun: FolderStore) -> None:
    measured = {point.hash for point in plan.groups[0].points}

    summary = conclude(plan, begun, CLOCK)

    assert set(summary.missing) == {point.hash for point in plan.points} - measured
    assert summary.points_measured == len(measured)
    assert not summary.trustworthy


@pytest.mark.process
def test_the_answer_can_be_made_again_when_more_is_measured(plan: Plan, begun: FolderStore, tmp_path: Path) -> None:
    conclude(plan, begun, CLOCK)
    asyncio.run(drive(plan, plan.groups, tmp_path / "results"))

    summary = conclude(plan, begun, CLOCK)

    assert summary.missing == []
    assert RunSummary.from_json(begun.get("summary.json") or b"") == summary


def test_a_run_of_which_nothing_is_measured_has_an_answer_that_says_so(plan: Plan, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "results")

    summary = conclude(plan, store, CLOCK)

    assert summary.points_measured == 0
    assert len(summary.missing) == 4


WORLD = SyntheticRun(prompts=4, categories=("code",), repeats=4)


def root_of(tmp_path: Path, plan: Plan) -> Path:
    """Where the world's run lies."""
    return tmp_path / "results" / run_root(plan.namespace, plan.name, plan.uid)


def kept(tmp_path: Path, points: int) -> FolderStore:
    """The world's run with so many points measured."""
    return FolderStore(root_of(tmp_path, store_results(WORLD, tmp_path / "results", UID, points)))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("records/*.parquet", cut),
        ("records/*.parquet", Path.unlink),
        ("summary.json", cut),
        ("summary.json", Path.unlink),
        ("manifest.json", cut),
    ],
)
def test_nothing_is_concluded_from_damaged_files(name: str, damage: Callable[[Path], None], tmp_path: Path) -> None:
    store = kept(tmp_path, points=2)
    plan = Plan.from_json(store.get("plan.json") or b"")
    manifest = root_of(tmp_path, plan) / manifest_key(plan.points[0].hash)
    damage(next(manifest.parent.glob(name)))

    with pytest.raises(NotDurable) as refused:
        conclude(plan, store, CLOCK)

    assert refused.value.reason == "Damaged"
    assert not [key for key in DERIVED if store.get(key)]


# -- others are at work meanwhile --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
def test_an_answer_that_was_begun_before_the_last_point_never_replaces_the_one_that_knows_it(tmp_path: Path) -> None:
    store = kept(tmp_path, points=7)
    plan = Plan.from_json(store.get("plan.json") or b"")

    def the_run_ends() -> None:
        kept(tmp_path, points=8)
        assert conclude(plan, store, CLOCK).points_measured == 8

    assert conclude(plan, InterferingStore(store, "provenance.json", the_run_ends), CLOCK).points_measured == 8

    assert RunSummary.from_json(store.get("summary.json") or b"").points_measured == 8
    assert len(json.loads(store.get("provenance.json") or b"")["points"]) == 8


class Growing(DelegatingStore):
    """A store in which a run goes on: each look at its manifests finds one more."""

    def __init__(self, store: Store, seen: int) -> None:
        super().__init__(store)
        self.seen = seen

    def keys(self, prefix: str = "") -> list[str]:
        found = super().keys(prefix)
        to_come = [key for key in found if key.endswith("manifest.json")][self.seen :]
        self.seen += 1
        return [key for key in found if key not in to_come]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("seen", "measured"), [(1, 5), (3, 8)], ids=["it goes on", "it ends meanwhile"])
def test_of_a_run_that_goes_on_an_answer_comes_all_the_same(seen: int, measured: int, tmp_path: Path) -> None:
    """A round looks twice, so the third begins with the fifth point; only where all are there, a fourth is made."""
    store = Growing(kept(tmp_path, points=8), seen)
    plan = Plan.from_json(store.get("plan.json") or b"")

    assert conclude(plan, store, CLOCK).points_measured == measured


# -- what was seen -----------------------------------------------------------------------------------------------------


def provenance_of(store: Store) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(store.get("provenance.json") or b"")
    return told


@pytest.mark.process
def test_provenance_holds_every_launch_with_its_facts_and_what_the_arms_cost(plan: Plan, finished: FolderStore) -> None:
    summary = conclude(plan, finished, CLOCK)

    told = provenance_of(finished)
    launches = {manifest["launch"] for manifest in told["points"].values()}
    assert set(told["launches"]) == launches
    facts = told["launches"]["0-0"]["facts"]
    assert facts["engine_version"] == {"value": "simulated-0.1.0", "source": "GET /version: version"}
    assert facts["gpu"]["value"] is None
    assert facts["gpu"]["reason"]
    assert told["arms"] == [row.to_dict() for row in summary.arm_environments]
    assert [row["arm"] for row in told["arms"]] == ["none", "ngram"]
    assert told["arms"][1]["kvCacheLost"]["value"] == 0, "the simulator's drafters take no room"
    assert told["differences"] == []
    assert b"Engines and hardware" in (finished.get("report.html") or b"")


@pytest.mark.process
def test_launches_that_differ_are_told_in_provenance_and_doubted(
    plan: Plan, begun: FolderStore, tmp_path: Path
) -> None:
    """As vLLM does by itself where the drafter's model is the shorter one."""
    asyncio.run(drive(plan, plan.groups[1:], tmp_path / "results", longest={"ngram": 4096}))

    summary = conclude(plan, begun, CLOCK)

    told = provenance_of(begun)
    assert told["differences"] == ["max_model_len is not the same in all launches: 32768 on none, 4096 on ngram"]
    assert told["arms"][1]["kvCacheLost"]["value"] == 1 - 4096 / 32768
    assert "ArmEnvironmentsDiffer" in {finding.check for finding in summary.findings}


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "reason"), [(None, "there is no launches/0-0.json"), ("{}", "launches/0-0.json cannot be read: it was")]
)
def test_a_launch_that_cannot_be_read_leaves_the_answer_standing_and_says_so(
    text: str | None, reason: str, plan: Plan, begun: FolderStore, tmp_path: Path
) -> None:
    path = tmp_path / "results" / launch_key("0-0")
    path.unlink() if text is None else path.write_text(text)

    assert conclude(plan, begun, CLOCK).points_measured == len(plan.groups[0].points)

    assert provenance_of(begun)["launches"]["0-0"]["reason"].startswith(reason)
    assert provenance_of(begun)["arms"] == []
