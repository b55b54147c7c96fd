"""The live display of a run: one line for the whole, one for the point at work. On stderr, for people."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from specbench_api.plan.plan import EngineGroup, Plan
from specbench_client.cli.consoles import Ticker
from specbench_client.drive.progress import Progress


class Live:
    """`with Live(plan, measured) as live`, then `live.group` and `live.progress` as they come."""

    def __init__(self, plan: Plan, measured: int) -> None:
        self._console = Ticker(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
        )
        self._plan = plan
        self._done = measured
        self._whole = self._bars.add_task("points", total=len(plan.points), completed=measured, note="")
        self._point = self._bars.add_task("point", total=None, note="")

    def __enter__(self) -> Self:
        """Show it."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen."""
        self._bars.stop()

    def group(self, group: EngineGroup) -> None:
        """A launch begins."""
        self._bars.update(
            self._point, description=f"launch {group.index}: {group.arm}", completed=0, total=None, note=""
        )
        if not self._console.is_terminal:
            self._console.print(f"launch {group.index + 1}/{len(self._plan.groups)}: {group.arm}")

    def progress(self, progress: Progress) -> None:
        """A look at the group at work."""
        speed = f"{progress.output_tokens_per_s:.0f} tok/s" if progress.output_tokens_per_s is not None else ""
        length = f"AL {progress.acceptance_length:.2f}" if progress.acceptance_length is not None else ""
        failed = f"{progress.requests_failed} failed" if progress.requests_failed else ""
        place = f"{progress.workload} at {progress.load}, repeat {progress.repeat}: " if progress.point else ""
        at = f"{progress.arm} {place}{progress.phase}"
        note = "  ".join(part for part in (speed, length, failed) if part)
        total = progress.requests_total or None
        self._bars.update(self._point, description=at, completed=progress.requests_done, total=total, note=note)
        before = sum(len(group.points) for group in self._plan.groups[: progress.group])
        self._bars.update(self._whole, completed=before + progress.points_done)

    def failed(self, arm: str, reason: str, message: str) -> None:
        """An arm is given up."""
        self._console.print(f"[red]{arm}: {reason}[/]: {message}", highlight=False)
