"""A stored run: the reader of all commands, and the class `Run` of the Python API."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pydantic import ValidationError

from specbench_api.api_model import ApiModel
from specbench_api.outcome.layout import PLAN, STATUS, SUMMARY, launch_key
from specbench_api.outcome.provenance import LaunchRecord
from specbench_api.outcome.status_document import StatusDocument
from specbench_api.plan.canonical import GROWING
from specbench_api.plan.plan import Plan, Point
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.documents.manifest import Manifest
from specbench_client.documents.summary import PointSummary, RunSummary, SummaryOfAnyVersion
from specbench_client.errors import BadInput, NotDurable
from specbench_client.metrics.tidy_frame import COLUMNS
from specbench_client.report.text.findings import points_are, unfinished_run
from specbench_client.report.text.run_report import markdown
from specbench_client.store.folder import FolderStore, lock_holder
from specbench_client.store.points import PointStore, version_not_read
from specbench_client.store.store import Store, StoreErrorReason

if TYPE_CHECKING:
    import pandas as pd

    from specbench_client.report.plots.style import Drawing

RUN_MISSING = "RunMissing"
"""Reason if there is no run at the given root."""
RUN_UNFINISHED = "RunNotFinished"
"""Reason if the run has not ended: it has no summary with all its points."""
Document = TypeVar("Document", bound=ApiModel)


def lock_name(plan: Plan) -> str:
    """Return the name of the file that the process which measures this plan has locked, beside the plan's runs."""
    # Two processes that start together have no UID yet; one with more repeats or loads would continue the other's run.
    fixed = plan.model_dump_json(exclude={"uid": True, "groups": True, "planned_repeats": True, "load": set(GROWING)})
    return f".{hashlib.sha256(fixed.encode()).hexdigest()[:16]}.lock"


class Run(StoredResult):
    """A stored run. Everything is read on first access. A notebook displays its report."""

    # Members after `__repr__` are for the commands, and not in the documentation of the Python API.

    store: Store
    """Where the results are stored."""

    def __init__(self, store: Store, plan: Plan | None = None) -> None:
        self.store = store
        self._points = PointStore(store)
        if plan is not None:
            self.plan = plan

    @cached_property
    def plan(self) -> Plan:
        """What was measured: arms, workloads, loads and points."""
        data = self.store.get(PLAN)
        if data is None:
            what = f"there is no run here (no {PLAN}): give the root of a run's results"
            raise BadInput(f"{self.uri}: {what}", RUN_MISSING)
        return self._document(PLAN, data, Plan, "read it with that version, or measure again")

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.plan.name

    @cached_property
    def uri(self) -> str:
        """Folder or URI of the run's results; `specbench report` accepts it too."""
        return self.store.uri()

    @cached_property
    def summary(self) -> RunSummary:
        """The summary, `summary.json`, as an object. Computed from the records if the run has none yet."""
        if self._stored_summary is None:
            from specbench_client.stored_runs.write_results import summarize_stored  # noqa: PLC0415  matplotlib takes seconds to import

            return summarize_stored(self, None)
        remedy = f"compute it again from the records: specbench report {self.uri} --recompute"
        summary = self._document(SUMMARY, self._stored_summary, RunSummary, remedy)
        problem = _contradiction(self.plan, summary)
        if problem:
            what = f"{problem}: it belongs to another run, or was edited: {remedy}"
            raise NotDurable(f"{self.store.uri(SUMMARY)}: {what}", StoreErrorReason.DAMAGED)
        return summary

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        return self.summary.headline

    @property
    def trustworthy(self) -> bool:
        """Whether no check found a reason to doubt; `findings` has the reasons."""
        return self.summary.trustworthy

    @cached_property
    def speedups(self) -> pd.DataFrame:
        """Speed-up over the paired baseline by arm, workload and load, with its 95 % interval.

        `claim` is the conclusion (Faster, Slower, Indistinguishable, …), `valid` is false if a check invalidated the
        comparison, and missing if nothing was compared yet. With fewer than three repeats there are no bounds.
        """
        from specbench_client.stored_runs.frames import speedups_frame  # noqa: PLC0415  pandas takes a second to import

        return speedups_frame(self.summary)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row per arm, workload and load, over all repeats: the columns of `results.csv`.

        Each figure has the columns NAME, NAME_low and NAME_high, for example `ttft_ms_p95` in ms and `output_tps` in
        tokens per second.
        """
        from specbench_client.stored_runs.frames import cells_frame  # noqa: PLC0415  as above

        return cells_frame(self.summary)

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per measured point, which is a cell's repeat: its figures, start and end, and the client's health."""
        from specbench_client.stored_runs.frames import points_frame  # noqa: PLC0415  as above

        return points_frame(self)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request, without the warm-up, with verified checksums.

        Columns: arm, workload, load, repeat; those of a record, except lists; and the figures of the request, such as
        `ttft_ms`, `tpot_ms` and `e2e_ms`. Figures of cells are computed over the rows with `steady`.
        """
        from specbench_client.stored_runs.frames import requests_frame  # noqa: PLC0415  as above

        return requests_frame(self)

    @cached_property
    def findings(self) -> pd.DataFrame:
        """One row per finding of a check: severity, message, place and remedy."""
        from specbench_client.stored_runs.frames import findings_frame  # noqa: PLC0415  as above

        return findings_frame(self.plan, self.summary.findings)

    def plot(self, title: str = "") -> RunPlot:
        """Return a plot of the report: the first whose title contains `title`; the speed-up by load without one.

        A notebook displays it. Raises BadInput if there is no such plot, or no data for it.
        """
        from specbench_client.report.plots.charts import FIGURES, draw_figures  # noqa: PLC0415  matplotlib takes seconds to import

        named = next((each for each in FIGURES if title.lower() in each.lower()), None)
        if named is None:
            titles = "\n".join(f"  {each}" for each in FIGURES)
            raise BadInput(f"title={title!r}: no plot has this title: give a part of one of these:\n{titles}")
        drawn = draw_figures(self.summary, [named])
        if not drawn:
            raise BadInput(f"{self.uri}: the run has no data for the plot {named!r}: choose another title")
        ((marked, drawing),) = drawn.items()
        return RunPlot(f"{self.name}: {marked}", drawing)

    def _repr_markdown_(self) -> str:
        return markdown(self.plan, self.summary)

    def __repr__(self) -> str:
        return f"<specbench.Run {self.name}: {self.headline}>"

    @cached_property
    def manifests(self) -> Mapping[str, Manifest]:
        """The manifests of the measured points by hash, in the plan's order."""
        return self._points.manifests([point.hash for point in self.plan.points])

    @cached_property
    def point_summaries(self) -> Mapping[str, PointSummary]:
        """The stored summaries of the measured points by hash, in the plan's order."""
        return {summary.hash: summary for summary in self.summaries_of(self.plan.points)}

    @cached_property
    def records(self) -> StoredRecords:
        """The records of the measured points by hash; not cached."""
        return StoredRecords(self._points, self.manifests)

    @cached_property
    def launches(self) -> Sequence[LaunchRecord]:
        """What was observed of the engine launches that served the measured points."""
        return [each for each in self.launch_records.values() if isinstance(each, LaunchRecord)]

    @cached_property
    def launch_records(self) -> Mapping[str, LaunchRecord | str]:
        """The record of each of these launches, or why it cannot be read: no figure depends on it."""
        names = dict.fromkeys(manifest.observed.launch for manifest in self.manifests.values())
        return {name: self._launch_record(launch_key(name)) for name in names}

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to measure. A search may go on after every point of its plan so far."""
        if self.plan.may_end_early and self._is_concluded:
            return True
        return self.plan.search is None and all(point.hash in self.manifests for point in self.plan.points)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do. A client that ends during its analysis leaves a finished, incomplete run."""
        return self.is_finished and self._is_concluded

    def reopened(self) -> Run:
        """Return the run without what was read before."""
        return Run(self.store, self.plan)

    def count_measured(self) -> int:
        """Return how many points have a manifest now, without reading it."""
        return len(self._points.measured(point.hash for point in self.plan.points))

    def has_summary(self) -> bool:
        """Return whether a summary is stored, readable or not."""
        return self._stored_summary is not None

    def intact_summary(self) -> RunSummary | None:
        """Return the stored summary; None if it is missing or damaged, because it is replaced then."""
        try:
            return RunSummary.from_json(self._stored_summary or b"")
        except ValidationError:
            return None

    def summary_of_any_version(self) -> SummaryOfAnyVersion | None:
        """Return the parts of the stored summary that all versions have; None if it cannot be read.

        Without a summary they are those of a run that measured nothing.
        """
        data = self._stored_summary
        try:
            return _NO_SUMMARY if data is None else SummaryOfAnyVersion.from_json(data)
        except ValidationError:
            return None

    def has_current_summary(self) -> bool:
        """Return whether there is a summary with all measured points, or a damaged one, which its reader reports.

        It lacks points if the run was continued after it, because an engine had failed, and was interrupted.
        """
        kept = self.summary_of_any_version()
        return kept is None or (kept is not _NO_SUMMARY and kept.points_measured >= self.count_measured())

    def require_summary(self) -> Run:
        """Return the run itself. Raises BadInput(RunMissing, RunNotFinished) if it has not ended.

        Only `specbench report` and the figures of a run show what an unfinished run has; nothing is concluded from it.
        """
        unfinished = self.unfinished(stored=self.has_current_summary())
        if unfinished is None:
            return self
        shown = f"`specbench report {shlex.quote(self.uri)}` shows the preliminary figures."
        raise BadInput(f"{self.uri}: {' '.join(unfinished)} {shown}", RUN_UNFINISHED)

    def unfinished(self, *, stored: bool) -> tuple[str, str] | None:
        """Return the state of a run that has not ended, and what to do next; None if it has ended.

        `stored`: whether it has a current summary. Such a run may lack points.
        """
        process = self._measuring_process()
        if stored and process is None:
            return None
        measured = self.count_measured()
        if measured == len(self.plan.points):
            return None
        if process is None:
            return unfinished_run(self.plan, measured)
        state = f"In progress: {points_are(self.plan, measured)} measured, by {process}."
        return state, "Repeat this command when the run has ended."

    def _measuring_process(self) -> str | None:
        """Return the description of the process that measures this plan now; None if none does, or in S3."""
        if not isinstance(self.store, FolderStore):
            return None
        return lock_holder(Path(self.store.uri()).parent / lock_name(self.plan))

    def summaries_of(self, points: Iterable[Point]) -> list[PointSummary]:
        """Return the stored summaries of those of the points that are measured."""
        return [self._points.read_summary(self.manifests[each.hash]) for each in points if each.hash in self.manifests]

    def _launch_record(self, key: str) -> LaunchRecord | str:
        data = self.store.get(key)
        if data is None:
            return f"there is no {key}"
        try:
            return LaunchRecord.from_json(data)
        except ValidationError as error:
            return f"{key} cannot be read: it was written by another version of specbench, or damaged: {error}"

    @cached_property
    def _is_concluded(self) -> bool:
        """Whether results are stored that lack no point. A run with a stop rule may lack none before its last repeat.

        status.json is written last, but does not list missing points. One that is older than the summary is of an
        earlier analysis: the last one did not end. A summary of another version is one of this run, too.
        """
        kept = self.summary_of_any_version()
        try:
            status = StatusDocument.from_json(self.store.get(STATUS) or b"")
        except ValidationError:  # the analysis has not ended, or a file is damaged: both are written again
            return False
        return kept is not None and status.created == kept.created and not kept.missing

    @cached_property
    def _stored_summary(self) -> bytes | None:
        return self.store.get(SUMMARY)

    def _document(self, key: str, data: bytes, kind: type[Document], remedy: str) -> Document:
        try:
            return kind.from_json(data)
        except ValidationError as error:
            what = version_not_read(error) or "it was written by another version of specbench, or damaged"
            raise NotDurable(
                f"{self.store.uri(key)}: cannot be read: {what}: {remedy}", StoreErrorReason.DAMAGED
            ) from error


_NO_SUMMARY = SummaryOfAnyVersion(created="", points_measured=0)


def _contradiction(plan: Plan, summary: RunSummary) -> str | None:
    """Return what in the summary contradicts the plan; None if nothing does."""
    points = {point.hash: point for point in plan.points}
    seen = set()
    for cell in summary.cells:
        place = (cell.arm, cell.workload, cell.level)
        if place in seen:
            return f"the cell of {cell.arm} is listed twice"
        seen.add(place)
        if not cell.points:
            return f"a cell of {cell.arm} has no points"
        for name in cell.points:
            point = points.get(name)
            if point is None or place != (point.arm, point.workload, point.level):
                return f"a cell of {cell.arm} lists the point {name}, which the plan does not have there"
    return None


@dataclass(frozen=True, repr=False)
class RunPlot:
    """A plot with its caption."""

    title: str
    """Name of the run, and title of the plot."""
    drawing: Drawing
    """What is drawn."""

    def save(self, file: str | Path) -> None:
        """Write the plot to a file, as PNG or SVG according to its suffix. Raises BadInput."""
        kind = Path(file).suffix.lower().removeprefix(".")
        if kind not in ("png", "svg"):
            raise BadInput(f"{file}: the suffix is not .png or .svg: give a file name with one of them")
        try:
            Path(file).write_bytes(self._picture(kind))
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}: give a file in a folder that exists and has room") from error

    def _picture(self, kind: str) -> bytes:
        from specbench_client.report.plots.style import picture  # noqa: PLC0415  matplotlib takes seconds to import

        return picture(self.title, self.drawing, kind)

    def _repr_png_(self) -> bytes:
        return self._picture("png")

    def __repr__(self) -> str:
        return f"<specbench.RunPlot {self.title}>"


class StoredRecords(Mapping[str, Iterator[pa.Table]]):
    """The records of each point, read and verified file by file on access, and not cached."""

    def __init__(self, points: PointStore, manifests: Mapping[str, Manifest]) -> None:
        self._points = points
        self._manifests = manifests
        self._unread = dict.fromkeys(manifests)

    def __getitem__(self, point: str) -> Iterator[pa.Table]:
        return self.columns(point, COLUMNS)

    def columns(self, point: str, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Return these columns of the point's records; None: all columns of a record."""
        self._unread.pop(point, None)
        return self._points.read_files(point, self._manifests[point].files, names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._manifests)

    def __len__(self) -> int:
        return len(self._manifests)

    def verify_unread(self) -> None:
        """Read and verify the records of the points that were not accessed. Raises NotDurable(Damaged)."""
        for point in list(self._unread):
            self._points.verify_records(self._manifests[point])


def runs_below(results: Store) -> list[Run]:
    """Return the runs below a root of results, sorted by their roots."""
    roots = sorted(key.removesuffix(f"/{PLAN}") for key in results.keys("runs/") if key.endswith(f"/{PLAN}"))
    return [Run(results.below(root)) for root in roots]


def read_manifests_below(results: Store) -> list[tuple[Plan, Mapping[str, Manifest]]]:
    """Return plan and manifests of the runs below a root of results, without damaged ones. Raises NotDurable."""
    found: list[tuple[Plan, Mapping[str, Manifest]]] = []
    for run in runs_below(results):
        try:
            found.append((run.plan, run.manifests))
        except NotDurable as error:
            if error.reason != StoreErrorReason.DAMAGED:
                raise
    return found
