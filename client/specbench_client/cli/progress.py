"""The live progress display of a run on stderr: one bar for all points, one for the current point."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from specbench_api.plan.plan import EngineGroup, Plan
from specbench_client.cli.output import ProgressConsole
from specbench_client.drive.progress import STORING, WARMUP, Progress


class LiveProgress:
    """A context manager that shows progress; without a terminal it prints a line per launch and per measured point."""

    def __init__(self, plan: Plan, measured: int) -> None:
        self._console = ProgressConsole()
        self._bars = Bars(
            TextColumn("{task.description}", table_column=Column()),  # wraps on narrow terminals, the counts do not
            BarColumn(),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}", table_column=Column()),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._plan = plan
        self._points = {point.hash: point for point in plan.points}
        self._of = "/" if plan.stop is None else " of at most "
        self._printed: str | None = None
        self._whole = self._bars.add_task(
            "points" if plan.stop is None else "points, at most", total=len(plan.points), completed=measured, note=""
        )
        self._point = self._bars.add_task("point", total=None, note="")

    def __enter__(self) -> Self:
        """Start the display."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the display; the number of points stays on the screen."""
        self._bars.remove_task(self._point)
        self._bars.stop()

    def group(self, group: EngineGroup) -> None:
        """Show that the launch of an engine, or a repeat on a running one, begins."""
        line = group.arm
        if not self._plan.engine.is_external:  # an engine takes minutes to start
            line = f"launch {group.index + 1}{self._of}{len(self._plan.groups)}: {group.arm}"
            self._print(line)
        self._bars.update(self._point, description=line, completed=0, total=None, note="")

    def progress(self, progress: Progress) -> None:
        """Show the progress of the current engine group."""
        speed = f"{progress.output_tokens_per_s:.0f} tok/s" if progress.output_tokens_per_s is not None else ""
        length = f"AL {progress.acceptance_length:.2f}" if progress.acceptance_length is not None else ""
        if progress.acceptance_change is not None:
            length += f" ({progress.acceptance_change:+.1%} since the first window)"
        failed = f"{progress.requests_failed} failed" if progress.requests_failed else ""
        place = self._place(progress)
        description = f"{place}: {progress.phase}" if progress.point else f"{place} {progress.phase}"
        done, total, bound = progress.requests_done, progress.requests_total, ""
        if progress.phase == WARMUP and progress.warmup_done is not None:
            done, total, bound = progress.warmup_done, progress.warmup_most, "at most, until step times are steady"
        note = "  ".join(part for part in (bound, speed, length, failed) if part)
        self._bars.update(self._point, description=description, completed=done, total=total or None, note=note)
        if progress.phase == STORING and progress.point not in (None, self._printed):
            self._printed = progress.point
            self._print(", ".join(part for part in (place, length, failed) if part))
        before = sum(len(group.points) for group in self._plan.groups[: progress.group])
        self._bars.update(self._whole, completed=before + progress.points_done)

    def _place(self, progress: Progress) -> str:
        """Return `ngram at concurrency 8, repeat 1/3`, with the workload if there are several."""
        if progress.point is None:
            return progress.arm
        workload = f" {progress.workload}" if len(self._plan.workloads) > 1 else ""
        repeat = ""
        if self._plan.load.repeats > 1 and progress.repeat is not None:
            name = "window" if self._plan.soaks else "repeat"
            repeat = f", {name} {progress.repeat + 1}{self._of}{self._plan.load.repeats}"
        return f"{progress.arm}{workload} at {self._points[progress.point].level.words}{repeat}"

    def _print(self, line: str) -> None:
        """Print a line without a terminal, where there are no bars."""
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def failed(self, arm: str, reason: str, message: str) -> None:
        """Show that an arm has failed."""
        self._console.print(Text.assemble((f"{arm}: {reason}", "red"), f": {message}"))
