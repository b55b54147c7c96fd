"""A stored run: its results as data frames, and its plots."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from specbench_api.outcome.layout import SUMMARY
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.cli.output import write_output_file
from specbench_client.cli.run_selection import run_at
from specbench_client.errors import BadInput
from specbench_client.report.plots.figures import FIGURES, draw_figures
from specbench_client.report.plots.style import Drawing, picture
from specbench_client.report.text.run_report import markdown
from specbench_client.store.store import Store
from specbench_client.stored_runs.frames import (
    cells_frame,
    findings_frame,
    points_frame,
    requests_frame,
    speedups_frame,
)
from specbench_client.stored_runs.stored_documents import read_plan, read_summary
from specbench_client.stored_runs.write_results import summarize_stored


def read(where: str | Path, *, latest: bool = False) -> Run:
    """Read a stored run; nothing is written.

    `where`: the root of a run, or a folder of results; `s3://BUCKET/PREFIX` with the usual AWS environment variables.
    If there are several runs, `latest=True` selects the newest; otherwise the error lists them.

    An unfinished run has the results of its measured points. Raises BadInput if there is no such run, NotDurable if it
    is damaged or S3 does not respond.
    """
    try:
        store = run_at(str(where), latest=latest)
    except BadInput as error:
        raise BadInput(str(error).replace("--latest", "latest=True"), error.reason) from error
    return Run(store, read_plan(store))


@dataclass(frozen=True, repr=False)
class Run:
    """A stored run. Everything is read on first access. A notebook displays its report."""

    store: Store
    """Where the results are stored."""
    plan: Plan
    """What was measured: arms, workloads, loads and points."""

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.plan.name

    @property
    def uri(self) -> str:
        """Folder or URI of the run's results; `specbench report` accepts it too."""
        return self.store.uri()

    @cached_property
    def summary(self) -> RunSummary:
        """The summary, `summary.json`, as an object. Computed from the records if the run has none yet."""
        if self.store.get(SUMMARY) is None:
            return summarize_stored(self.plan, self.store, None)
        return read_summary(self.store, self.plan, f"run: specbench report {self.uri} --recompute")

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
        comparison. With fewer than three repeats there are no bounds.
        """
        return speedups_frame(self.summary)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row per arm, workload and load, over all repeats: the columns of `results.csv`.

        Each figure has the columns NAME, NAME_low and NAME_high, for example `ttft_ms_p95` in ms and `output_tps` in
        tokens per second.
        """
        return cells_frame(self.summary)

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per measured point, which is a cell's repeat: its figures, start and end, and the client's health."""
        return points_frame(self.plan, self.store)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request, without the warm-up, with verified checksums.

        Columns: arm, workload, load, repeat; those of a record, except lists; and the figures of the request, such as
        `ttft_ms`, `tpot_ms` and `e2e_ms`. Figures of cells are computed over the rows with `steady`.
        """
        return requests_frame(self.plan, self.store)

    @cached_property
    def findings(self) -> pd.DataFrame:
        """One row per finding of a check: severity, message, place and remedy."""
        return findings_frame(self.plan, self.summary.findings)

    def plot(self, title: str = "") -> RunPlot:
        """Return a plot of the report: the first whose title contains `title`; the speed-up by load without one.

        A notebook displays it. Raises BadInput if there is no such plot, or no data for it.
        """
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


@dataclass(frozen=True, repr=False)
class RunPlot:
    """A plot with its caption."""

    title: str
    """Name of the run, and title of the plot."""
    drawing: Drawing
    """What is drawn."""

    def save(self, file: str | Path) -> None:
        """Write the plot to a file, as PNG or SVG according to its suffix. Raises BadInput, NotDurable."""
        kind = Path(file).suffix.lower().removeprefix(".")
        if kind not in ("png", "svg"):
            raise BadInput(f"{file}: the suffix is not .png or .svg: give a file name with one of them")
        write_output_file("file", Path(file), picture(self.title, self.drawing, kind))

    def _repr_png_(self) -> bytes:
        return picture(self.title, self.drawing, "png")

    def __repr__(self) -> str:
        return f"<specbench.RunPlot {self.title}>"
