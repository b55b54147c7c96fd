"""The live display of a run: one line for the whole, one for the point at work. On stderr, for people."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from specbench_api.plan.plan import EngineGroup, Plan
from specbench_client.cli.consoles import Ticker
from specbench_client.drive.progress import MEASURING, WARMUP, Progress


class Live:
    """`with Live(plan, measured) as live`, then `live.group` and `live.progress` as they come."""

    def __init__(self, plan: Plan, measured: int) -> None:
        self._console = Ticker(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}", table_column=Column()),  # where it is narrow, words give way to counts
            BarColumn(),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}", table_column=Column()),
            console=self._console,
        )
        self._plan = plan
        self._said: tuple[str | None, str] = (None, "")
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
        said = f"launch {group.index + 1}/{len(self._plan.groups)}: {group.arm}"
        self._bars.update(self._point, description=said, completed=0, total=None, note="")
        if not self._console.is_terminal:
            self._console.print(said)

    def progress(self, progress: Progress) -> None:
        """A look at the group at work."""
        speed = f"{progress.output_tokens_per_s:.0f} tok/s" if progress.output_tokens_per_s is not None else ""
        length = f"AL {progress.acceptance_length:.2f}" if progress.acceptance_length is not None else ""
        failed = f"{progress.requests_failed} failed" if progress.requests_failed else ""
        place = f"{progress.workload} at {progress.load}, repeat {progress.repeat}: " if progress.point else ""
        at = f"{progress.arm} {place}{progress.phase}"
        done, total, most = progress.requests_done, progress.requests_total, ""
        if progress.phase == WARMUP and progress.warmup_done is not None:
            done, total, most = progress.warmup_done, progress.warmup_most, "at most, until step times are steady"
        note = "  ".join(part for part in (most, speed, length, failed) if part)
        self._bars.update(self._point, description=at, completed=done, total=total or None, note=note)
        self._line(progress, at)
        before = sum(len(group.points) for group in self._plan.groups[: progress.group])
        self._bars.update(self._whole, completed=before + progress.points_done)

    def _line(self, progress: Progress, at: str) -> None:
        """Where no display lives, a line for each point and phase, and for a warm-up how long it was."""
        now = (progress.point, progress.phase)
        if self._console.is_terminal or progress.point is None or now == self._said:
            return
        self._said = now
        warmed = progress.phase == MEASURING and progress.warmup_done is not None
        tail = f" (after {progress.warmup_done} requests of warm-up)" if warmed else ""
        self._console.print(f"{at}{tail}", highlight=False, markup=False, soft_wrap=True)

    def failed(self, arm: str, reason: str, message: str) -> None:
        """An arm is given up."""
        self._console.print(Text.assemble((f"{arm}: {reason}", "red"), f": {message}"))
