"""From everything stored to the run's answer: summary.json, report.html, results.csv, provenance.json.

All four are derived and may be made again, so they are replaced. Nothing is written before every file that a manifest
names was read and found whole: an answer from damaged records would look like any other. Points without a manifest are
named in the summary and leave the rest standing.

Manifests may come meanwhile, and with them another answer that knows more. So they are counted again before an answer
is written, and once more afterwards, when it may have replaced the other: where there are more, all is done again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from specbench_api.outcome.coverage import Coverage
from specbench_api.outcome.layout import POWER, PROVENANCE, REPORT, SUMMARY
from specbench_api.outcome.manifest import Manifest
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.slo import Slo
from specbench_client.analysis.summary.run import summarise_run
from specbench_client.drive.mapped import with_maps
from specbench_client.drive.options import Clock
from specbench_client.drive.power import Devices, kept_power, power_of, power_text
from specbench_client.drive.provenance import provenance, read_launches
from specbench_client.drive.resume import claim
from specbench_client.metrics.frame import COLUMNS
from specbench_client.report.html import render_html
from specbench_client.report.tables import csv
from specbench_client.store.patience import Patience, PatientStore
from specbench_client.store.point import PointStore
from specbench_client.store.shelf import DiskShelf
from specbench_client.store.store import Store

TABLE = "results.csv"
ROUNDS = 3
"""Then an answer stands although points came meanwhile: the run goes on, and makes the last answer itself."""


class Kept(Mapping[str, Iterator[pd.DataFrame]]):
    """Each point's records, read and verified part by part as they are asked for, and not kept."""

    def __init__(self, points: PointStore, manifests: Mapping[str, Manifest]) -> None:
        self._points = points
        self._manifests = manifests
        self._unread = dict.fromkeys(manifests)

    def __getitem__(self, point: str) -> Iterator[pd.DataFrame]:
        self._unread.pop(point, None)
        return self._points.read_frames(self._manifests[point], COLUMNS)

    def __iter__(self) -> Iterator[str]:
        return iter(self._manifests)

    def __len__(self) -> int:
        return len(self._manifests)

    def verify_the_rest(self) -> None:
        """Read what nobody asked for. Raises NotDurable(Damaged)."""
        for point in list(self._unread):
            deque(self._points.read_parts(self._manifests[point]), maxlen=0)


def conclude(
    plan: Plan,
    store: Store,
    clock: Clock | None = None,
    patience_s: float = 600.0,
    *,
    slo: Slo | None = None,
    power: Devices | None = None,
) -> RunSummary:
    """Write the answer from what is stored. `store`: the run's root. Blocks. Raises BadInput, NotDurable.

    `power`: samples, which are kept beside the answer; without them those that are kept there already.
    """
    clock = clock or Clock()
    patient = PatientStore(store, Patience(deadline_s=patience_s))
    claim(plan, patient)
    points = PointStore(patient, Path())
    if power is not None:
        patient.replace(POWER, power_text(power).encode())
    rounds = 0
    while True:
        rounds += 1
        answer = _answer(plan, points, clock, slo)
        if answer.stands(plan, points, rounds):
            for key, text in answer.files.items():
                patient.replace(key, text.encode())
            if answer.stands(plan, points, rounds):
                return answer.summary


def summarised(plan: Plan, store: Store, slo: Slo | None, power: Devices | None = None) -> RunSummary:
    """The answer by other targets or power samples, made from what is stored and kept nowhere. Raises NotDurable."""
    return _answer(plan, PointStore(store, Path()), Clock(), slo, power).summary


@dataclass(frozen=True)
class _Answer:
    """`files`: in the order in which they are written; the summary last: it says that the answer is there."""

    summary: RunSummary
    measured: int
    files: Mapping[str, str]

    def stands(self, plan: Plan, points: PointStore, rounds: int) -> bool:
        """Whether there are no more points than it knows, or always more."""
        now = len(points.measured(point.hash for point in plan.points))
        return now <= self.measured or (rounds >= ROUNDS and now < len(plan.points))


def _answer(plan: Plan, points: PointStore, clock: Clock, slo: Slo | None, power: Devices | None = None) -> _Answer:
    """From the points that have a manifest now. `power`: instead of the samples that are kept."""
    manifests = points.manifests([point.hash for point in plan.points])
    summaries = [points.read_summary(manifest) for manifest in manifests.values()]
    records = Kept(points, manifests)
    created = clock.wall_text()
    launches = read_launches(points.store, manifests.values())
    covered = _coverage(plan, manifests)
    devices = power if power is not None else kept_power(points.store)
    drawn = power_of(devices, manifests) if devices is not None else None
    summary = summarise_run(
        plan, summaries, records, created, launches.seen, coverage=covered, slo=slo, power=drawn, shelves=DiskShelf
    )
    records.verify_the_rest()
    summary = with_maps(plan, summary, points, manifests)
    files = {
        PROVENANCE: provenance(plan, list(manifests.values()), launches, summary),
        TABLE: csv(summary),
        REPORT: render_html(plan, summary),
        SUMMARY: summary.to_json(),
    }
    return _Answer(summary, len(manifests), files)


def _coverage(plan: Plan, manifests: Mapping[str, Manifest]) -> dict[str, Coverage]:
    """By workload. All points of one had the same prompts: a resume that meets others is refused."""
    points = [
        (point.workload, manifests[point.hash].observed.coverage) for point in plan.points if point.hash in manifests
    ]
    return {workload: coverage for workload, coverage in points if coverage is not None}
