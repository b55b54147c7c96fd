"""The live display of a run that is measured on this machine: bars on a terminal, a line for each point elsewhere."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column

from specbench_api.plan.plan import EngineGroup, Plan
from specbench_client.cli.output import ProgressConsole
from specbench_client.drive.progress import STORING, WARMUP, Progress
from specbench_client.trust.check_type import list_names

WIDE = 100
"""Columns of a terminal from which the display has bars."""
STALLED_S = 30.0
"""If no request ends for so long, the display reports it."""


class LiveProgress:
    """A context manager that shows progress; without a terminal it prints a line per launch and per measured point."""

    def __init__(self, plan: Plan, measured: int) -> None:
        self._console = ProgressConsole()
        self._bars = Bars(
            TextColumn("{task.description}", table_column=Column()),  # wraps on narrow terminals, the counts do not
            *([BarColumn()] if self._console.width >= WIDE else []),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}", table_column=Column()),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._set_plan(plan)
        self._found = measured
        self._printed: str | None = None
        self._stalled = False
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
        if kind is None and self._plan.stop is not None:
            self._bars.update(self._whole, description="points", total=self._bars.tasks[0].completed)
        self._bars.stop()

    def group(self, group: EngineGroup) -> None:
        """Show that the launch of an engine, or a repeat on a running one, begins."""
        line = group.arm
        if not self._plan.engine.is_external:  # an engine takes minutes to start
            line = f"launch {self._counted(group.index, len(self._plan.groups))}: {group.arm}"
            self._print(line)
        self._bars.update(self._point, description=line, completed=0, total=None, note="")

    def retry(self, plan: Plan) -> None:
        """Show which repeats were added to the plan."""
        added = [point for point in plan.points if point.hash not in self._points]
        loads = list_names([*dict.fromkeys(point.level.words for point in added)])
        repeats = list_names([*dict.fromkeys(str(point.repeat + 1) for point in added)])
        self.show_line(f"repeats {repeats} at {loads} are added in place of earlier ones, of which a point is invalid")
        self._set_plan(plan)
        self._bars.update(self._whole, total=len(plan.points))

    def _set_plan(self, plan: Plan) -> None:
        self._plan, self._points = plan, {point.hash: point for point in plan.points}

    def show_line(self, line: str) -> None:
        """Print a line, above the bars if there are any."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def progress(self, progress: Progress) -> None:
        """Show the progress of the current engine group."""
        readings = {
            "{:.0f} tok/s": progress.output_tokens_per_s,
            "TPOT {:.1f} ms": progress.tpot_ms,
            "AL {:.2f}": progress.acceptance_length,
            "{:+.1%} since the first window": progress.acceptance_change,
            "{} failed": progress.requests_failed or None,
        }
        so_far = [text.format(value) for text, value in readings.items() if value is not None]
        place = self._place(progress)
        description = f"{place}: {progress.phase}" if progress.point else f"{place} {progress.phase}"
        done, total, bound = progress.requests_done, progress.requests_total, ""
        if progress.phase == WARMUP and progress.warmup_done is not None:
            done, total, bound = progress.warmup_done, progress.warmup_most, "or until steady"
        stalled = self._stall(progress)
        if stalled and not self._stalled:
            self._print(f"{description}, {stalled}")
        self._stalled = bool(stalled)
        note = "  ".join(part for part in (bound, stalled, *so_far) if part)
        self._bars.update(self._point, description=description, completed=done, total=total or None, note=note)
        points = progress.points_done + sum(len(group.points) for group in self._plan.groups[: progress.group])
        self._bars.update(self._whole, completed=points, note=self._times(points))
        if progress.phase == STORING and progress.point not in (None, self._printed):
            self._printed = progress.point
            number = list(self._points).index(progress.point) + 1  # `points_done` may have it already
            sent = f"{done} requests ({progress.requests_sent} with warm-up and fillers)"
            self._print(", ".join([place, sent, *so_far, self._times(number)]))

    def _stall(self, progress: Progress) -> str:
        """Return that a server does not answer, by its address if it has one; empty if it does."""
        endpoint = self._plan.arm(progress.arm).endpoint
        server = f" at {endpoint.url}" if endpoint else ""
        return f"no request{server} has ended for {progress.idle_s:.0f} s" if progress.idle_s >= STALLED_S else ""

    def _times(self, points: int) -> str:
        """Return the time since the display began, and how long the points that are left will take as those before."""
        elapsed_s, measured = self._bars.tasks[0].elapsed or 0.0, points - self._found
        left = timedelta(seconds=round(elapsed_s / max(measured, 1) * (len(self._plan.points) - points)))
        about = f", {'about' if self._plan.stop is None else 'at most'} {left} left" if measured > 0 else ""
        return f"{timedelta(seconds=int(elapsed_s))} elapsed{about}"

    def _place(self, progress: Progress) -> str:
        """Return `ngram at concurrency 8, repeat 1/3`, with the workload if there are several."""
        if progress.point is None:
            return progress.arm
        workload = f" {progress.workload}" if len(self._plan.workloads) > 1 else ""
        repeat = ""
        if self._plan.load.repeats > 1 and progress.repeat is not None:
            name = "window" if self._plan.soaks else "repeat"
            repeat = f", {name} {self._counted(progress.repeat, self._plan.load.repeats)}"
        return f"{progress.arm}{workload} at {self._points[progress.point].level.words}{repeat}"

    def _counted(self, index: int, most: int) -> str:
        """Return `1/3`, or `1 of at most 3` with a stop rule, and only `1` beside a bar that has the maximum."""
        if self._plan.stop is None:
            return f"{index + 1}/{most}"
        return str(index + 1) if self._console.is_terminal else f"{index + 1} of at most {most}"

    def _print(self, line: str) -> None:
        """Print a line without a terminal, where there are no bars."""
        if not self._console.is_terminal:
            self.show_line(line)
