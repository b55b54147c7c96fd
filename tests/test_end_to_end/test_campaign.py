"""Campaigns on 64 simulated GPUs: a matrix completes while components are killed, and a budget stops a campaign.

Engines and clients are simulated; `specbench_testing.simulated_site` describes what this does not cover.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

import pytest

from peers.kwok.stages import OUT_OF_MEMORY
from specbench_api import API_VERSION
from specbench_cluster import Cluster as Ground
from specbench_operator.app import LEASE_LOST
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import MERGE, Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.kwok_nodes import placement
from specbench_testing.operator_process import BackgroundThread, eventually, retry_until_available
from specbench_testing.simulated_site import SimulatedSite, all_end, simulated_site

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.long, pytest.mark.timeout(7200)]

WITHIN_S = 3600.0
PARALLELISM = 8
NAME = "matrix"


@pytest.fixture
def site(
    cluster: Cluster, ground: Ground, crd: Definition, campaign_crd: Definition, tmp_path: Path
) -> Iterator[SimulatedSite]:
    with simulated_site(cluster, tmp_path) as found:
        yield found


class Campaign:
    """A campaign as a user sees it."""

    def __init__(self, site: SimulatedSite, spec: dict[str, Any]) -> None:
        self._site = site
        made = {"apiVersion": API_VERSION, "kind": "SpecBenchCampaign", "metadata": {"name": NAME}, "spec": spec}
        site.site.campaigns.create(made)

    def status(self) -> dict[str, Any]:
        return dict(retry_until_available(lambda: self._site.site.campaigns.get(NAME)).get("status") or {})

    def counted(self, outcome: str) -> int:
        return int(self.status().get("counts", {}).get(outcome, 0))

    def condition_status(self, kind: str) -> str:
        return "".join(row["status"] for row in self.status().get("conditions", []) if row["type"] == kind)

    def runs(self) -> list[ClusterRun]:
        path = f"/apis/{API_VERSION}/namespaces/{self._site.site.namespace}/specbenchruns"
        return [
            self._site.run(run)
            for run in retry_until_available(lambda: self._site.site.cluster.call("GET", path))["items"]
        ]

    def suspend(self, *, suspended: bool) -> None:
        path = f"/apis/{API_VERSION}/namespaces/{self._site.site.namespace}/specbenchcampaigns/{NAME}"
        retry_until_available(
            lambda: self._site.site.cluster.call("PATCH", path, {"spec": {"suspend": suspended}}, kind=MERGE)
        )


Sides = tuple[int, int, int]


def matrix(site: SimulatedSite, sides: Sides, failing: int = 2, **spec: Any) -> dict[str, Any]:
    """Three axes with these numbers of values, one excluded row, and included runs whose engines all fail."""
    seeds, drafts, lookups = (list(range(1, side + 1)) for side in sides)
    return {
        "template": {"spec": site.spec({"spec.placement": placement(4)})},
        "axes": [
            {"name": "seed", "path": "workloads[0].sampling.seed", "values": seeds},
            {"name": "drafts", "path": "drafters[0].numSpeculativeTokens", "values": drafts},
            {"name": "lookup", "path": "drafters[0].promptLookupMax", "values": lookups},
        ],
        "exclude": [{"seed": 1, "drafts": 1}],
        "include": [{"seed": 90 + number, "set": {"engine.args": [OUT_OF_MEMORY]}} for number in range(failing)],
        "parallelism": PARALLELISM,
        **spec,
    }


def test_256_runs_complete_while_operator_api_server_and_s3_are_killed_fifty_times(site: SimulatedSite) -> None:
    """The campaign is suspended early and resumed meanwhile."""
    killing = ComponentKills(site, 50, drawn_seed())
    sides, failing = (8, 8, 4), 4
    total = prod(sides) - sides[-1] + failing
    with killing:
        campaign = Campaign(site, matrix(site, sides, failing))
        eventually(lambda: campaign.counted("succeeded") >= total // 4, f"{campaign.status()}", WITHIN_S)
        campaign.suspend(suspended=True)
        eventually(lambda: site.gpus() == 0, "a suspended campaign holds GPUs", WITHIN_S)
        cut_off = {run.uid for run in campaign.runs() if not run.status().get("completionTime")}
        campaign.suspend(suspended=False)
        eventually(lambda: len(campaign.runs()) == total, f"runs are missing: {campaign.status()}", WITHIN_S)
        ended = all_end(campaign.runs(), WITHIN_S)
        assert killing.done, f"the campaign ended after {len(killing.victims)} kills"
        eventually(lambda: campaign.condition_status("Ready") == "True", f"it does not end: {campaign.status()}")
    print(f"killed: {Counter(killing.victims)}")  # noqa: T201
    assert cut_off, "no run was active when the campaign was suspended"
    assert site.violations(cut_off) == []
    eventually(lambda: site.left() == [] and site.gpus() == 0, f"objects are left: {site.left()}")
    assert len(campaign.runs()) == total == len(ended)
    counts = [campaign.counted(outcome) for outcome in ("total", "succeeded", "failed")]
    assert counts == [total, total - failing, failing]
    for run in campaign.runs():
        if ended[run.name]["phase"] == "Succeeded":
            assert sorted(site.measured(run)) == sorted(site.stored(run).points())


def test_a_campaign_stops_when_its_budget_is_exhausted(site: SimulatedSite) -> None:
    gpu_hours = 4 * 30 / 3600  # three or four of the 26 runs
    campaign = Campaign(site, matrix(site, (3, 3, 3), budget={"gpuHours": gpu_hours}, parallelism=2))
    eventually(
        lambda: campaign.condition_status("BudgetExhausted") == "True",
        f"the campaign continues: {campaign.status()}",
        WITHIN_S,
    )
    eventually(lambda: site.gpus() == 0, "GPUs are held after the budget is exhausted")
    # The GPUs are free shortly before the last run reports it; until then the campaign is Reconciling.
    eventually(
        lambda: campaign.condition_status("Stalled") == "True", f"the campaign is not Stalled: {campaign.status()}"
    )
    assert campaign.condition_status("Ready") == "False"
    assert len(campaign.runs()) < campaign.counted("total")
    assert site.violations(cut_off={run.uid for run in campaign.runs()}) == []


# Kills at random times.

LIVES_S = (0.5, 24.0)
"""The time before each kill: a start takes about two seconds, so some kills hit the start."""
AWAY_S = (0.0, 2.0)
"""The time between a kill and the next start."""


def drawn_seed() -> str:
    """SPECBENCH_CHAOS_SEED, or a random seed. It is printed: pytest shows it when the test fails."""
    seed = os.environ.get("SPECBENCH_CHAOS_SEED") or secrets.token_hex(4)
    print(f"SPECBENCH_CHAOS_SEED={seed}")  # noqa: T201
    return seed


class ComponentKills(BackgroundThread):
    """Kills the operator, the API server or the S3 server `times` times in the background of a `with` block.

    After the block the operator runs; kills that remain are dropped. An operator that ends because it could not renew
    its Lease meanwhile is started again, as the kubelet does.
    """

    def __init__(self, site: SimulatedSite, times: int, seed: str) -> None:
        super().__init__("kills of the operator")
        self.victims: list[str] = []
        self._operator, self._ground, self._times = site.operator, site.ground, times
        self._chance = Random(seed)

    @property
    def done(self) -> bool:
        """Whether all kills are done. Raises the error of a failed kill."""
        self.raise_failure()
        return len(self.victims) == self._times

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is None:
            eventually(self._operator.healthy, "the operator does not become healthy again")

    def work(self) -> None:
        """Kill and start components, then watch over the operator until the end of the block."""
        components: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "operator": (partial(self._operator.end, signal.SIGKILL), self._operator.launch)
        }
        for name in ("kube-apiserver", "versitygw"):
            components[name] = (partial(self._ground.kill, name), partial(self._ground.start, name))
        for _ in range(self._times):
            if self._wait(self._chance.uniform(*LIVES_S)):
                return
            victim = self._chance.choice(list(components))
            kill, start = components[victim]
            kill()
            self.victims.append(victim)
            self.over.wait(self._chance.uniform(*AWAY_S))
            start()
        while not self._wait(1.0):
            """The API server may have been away for too long, shortly before the last kill."""

    def _wait(self, seconds: float) -> bool:
        """Wait, and return whether the block is over; restart an operator that lost its Lease meanwhile."""
        due = time.monotonic() + seconds
        while not self.over.wait(max(min(due - time.monotonic(), 0.2), 0.0)):
            ended = self._operator.ended
            if ended == LEASE_LOST:
                self._operator.launch()
            else:
                assert ended is None, f"the operator ended by itself: {self._operator.log.read_text()[-4000:]}"
            if time.monotonic() >= due:
                return False
        return True
