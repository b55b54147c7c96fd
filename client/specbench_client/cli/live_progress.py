"""The live display of a run that is measured on this machine: bars on a terminal, a line for each point elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from statistics import fmean
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column

from specbench_api.plan.plan import REPEATS_TO_DECIDE, EngineGroup, Plan, Point
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.cli.output import ProgressConsole
from specbench_client.documents.figure import counted
from specbench_client.documents.minimum_samples import MIN_REPEATS_TO_COMPARE
from specbench_client.drive.load_probes import PER_STREAM
from specbench_client.drive.progress import MEASURING, STORING, WARMUP, Progress
from specbench_client.trust.check_type import list_names

WIDE = 150
"""Columns of a terminal from which the display has bars, which would wrap what is beside them on a narrower one."""
STALLED_S = 30.0
"""If no request ends for so long, the display reports it."""
LONG_S = 600.0
"""A measurement that takes longer names what would be shorter."""


def shorter_ways(plan: Plan, load_s: Mapping[str, float]) -> str:
    """Return the flags of `specbench measure` that shorten a long measurement, and to what; empty for a short one.

    `load_s`: load → how long all of its repeats take.
    """
    whole_s, (least_s, lightest) = sum(load_s.values()), min((took_s, load) for load, took_s in load_s.items())
    ways = {
        f"only {lightest}": least_s / whole_s,
        f"--requests-per-stream {PER_STREAM}": PER_STREAM / (plan.load.requests_per_stream or PER_STREAM),
        f"--repeats {MIN_REPEATS_TO_COMPARE} (wider intervals; not with --until-sure)": MIN_REPEATS_TO_COMPARE
        / repeats_of(plan),
    }
    shorter = [f"{flag}: {timedelta(seconds=round(whole_s * share))}" for flag, share in ways.items() if share < 1]
    if whole_s <= LONG_S or not plan.engine.is_external or not shorter:
        return ""
    return f"; shorter, as a new run: {', '.join(shorter)}"


def repeats_of(plan: Plan) -> int:
    """Return the repeats of a plan; with a stop rule or a search, the least that it allows."""
    if plan.search:
        return plan.own_repeats
    return plan.load.repeats if plan.stop is None else min(plan.load.repeats, REPEATS_TO_DECIDE)


class LiveProgress:
    """A context manager that shows progress; without a terminal it prints a line per launch and per measured point."""

    def __init__(self, plan: Plan, measured: Collection[str]) -> None:
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
        # How long each point took, by its hash; None for those that were measured before.
        self._took_s: dict[str, float | None] = dict.fromkeys(measured)
        self._cell_took_s = defaultdict[tuple[str, Level], list[float]](list)
        self._ended_s = 0.0
        self._stalled = False
        self._whole = self._bars.add_task(
            "points, at most" if plan.stop else "points",
            total=len(plan.points),
            completed=len(measured),
            note="",
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
        if kind is None and self._plan.stop:
            self._bars.update(self._whole, description="points", total=self._bars.tasks[0].completed)
        self._bars.stop()

    def group(self, group: EngineGroup) -> None:
        """Show that the launch of an engine, or a repeat on a running one, begins."""
        line = group.arm
        if not self._plan.keeps_running:  # an engine takes minutes to start
            number = self._counted(group.index, len(self._plan.groups), at_most=self._plan.stop is not None)
            line = f"launch {number}: {group.arm}"
            self._print(line)
        self._bars.update(self._point, description=line, completed=0, total=None, note="")

    def add_round(self, plan: Plan) -> None:
        """Show what was added to the plan."""
        added = [point for point in plan.points if point.hash not in self._points]
        loads = list_names([*{point.level.words: None for point in added}])
        if plan.search:
            arms = list_names([*{point.arm: None for point in added if point.arm != BASELINE_NAME}])
            number = self._counted(plan.added_rounds, plan.load.repeats, at_most=True)
            self.show_line(f"round {number}: {arms} may still change the answer at {loads}")
        else:
            self.show_line(f"repeats with an invalid point are measured again at {loads}")
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
            "{:.0f} tok/s with ramp and drain": progress.output_tokens_per_s,
            "mean TPOT {:.1f} ms": progress.tpot_ms,
            "AL {:.2f}": progress.acceptance_length,
            "{:+.1%} since the first window": progress.acceptance_change,
            "{} failed": progress.requests_failed or None,
        }
        so_far = [text.format(value) for text, value in readings.items() if value is not None]
        place = self._place(progress)
        phase = "" if progress.phase == MEASURING else f"{':' * bool(progress.point)} {progress.phase}"
        description = f"{place}{phase}"  # The counts show that it is measuring.
        done, total, bound = progress.requests_done, progress.requests_total, ""
        if progress.phase == WARMUP and progress.warmup_done is not None:
            done, total, bound = progress.warmup_done, progress.warmup_most, "or until steady"
        stalled = self._stall(progress)
        if stalled and not self._stalled:
            self._print(f"{description}, {stalled}")
        self._stalled = bool(stalled)
        note = "  ".join(part for part in (bound, stalled, *so_far) if part)
        self._bars.update(self._point, description=description, completed=done, total=total or None, note=note)
        if progress.phase == STORING and progress.point and progress.point not in self._took_s:
            point = self._points[progress.point]
            # A running server is warmed up once, so later points take as long without.
            warmup = (progress.warmup_done or 0) / max(progress.requests_sent, 1) if self._plan.keeps_running else 0.0
            began_s, self._ended_s = self._ended_s, self._bars.tasks[0].elapsed or 0.0
            took_s = self._took_s[point.hash] = (self._ended_s - began_s) * (1.0 - warmup)
            self._cell_took_s[point.workload, point.level].append(took_s)
            asked = self._plan.load.requested(point.level)
            turns = f" of {counted(asked, 'conversation')}" if asked not in (None, done) else ""
            warm = f" and {progress.warmup_done} for warm-up" if progress.warmup_done else ""
            sent = f"{counted(done, 'request')}{turns} ({progress.requests_sent} with fillers{warm})"
            self._print(", ".join([place, sent, *so_far, self._times(progress.group)]))
            if point.repeat == 0:
                self._show_forecast()
        self._bars.update(self._whole, completed=len(self._took_s), note=self._times(progress.group))

    def _show_forecast(self) -> None:
        """Print how long all repeats take at each load, after the first one; a part of it tells too little."""
        repeats = repeats_of(self._plan)
        counted = [point for point in self._plan.points if point.repeat < repeats]
        load_s = {
            level.words: self._duration_s([point for point in counted if point.level == level]) or 0.0
            for level in self._plan.load.levels
        }
        is_timed = all(self._took_s.get(point.hash) is not None for point in self._plan.points if point.repeat == 0)
        if repeats > 1 and is_timed and not self._plan.soaks:
            self.show_line(
                f"by the first repeat, {'all' if self._plan.stop is None else 'the first'} {repeats} take about "
                + list_names([f"{timedelta(seconds=round(took_s))} at {load}" for load, took_s in load_s.items()])
                + (", without warm-up" if self._plan.keeps_running else "")
                + shorter_ways(self._plan, load_s)
            )

    def _stall(self, progress: Progress) -> str:
        """Return that a server does not answer, by its address if it has one; empty if it does."""
        endpoint = self._plan.arm(progress.arm).endpoint
        server = f" at {endpoint.address}" if endpoint else ""
        return f"no request{server} has ended for {progress.idle_s:.0f} s" if progress.idle_s >= STALLED_S else ""

    def _times(self, group: int) -> str:
        """Return the time since the display began, and in this group how long the points that are left take.

        An arm with a point missing in an earlier group has failed: its others will not be measured.
        """
        begun = self._plan.groups[:group]
        failed = {each.arm for each in begun for point in each.points if point.hash not in self._took_s}
        coming = [each for each in self._plan.points if each.hash not in self._took_s and each.arm not in failed]
        left_s = self._duration_s(coming)
        if_all = f" if all {self._plan.load.repeats} repeats are needed" if self._plan.stop else ""
        if_all = " of this round" if self._plan.search else if_all
        about = f", about {timedelta(seconds=round(left_s or 0.0))} left{if_all}"
        since = "since continued" if None in self._took_s.values() else "elapsed"
        return f"{timedelta(seconds=int(self._bars.tasks[0].elapsed or 0.0))} {since}{'' if left_s is None else about}"

    def _duration_s(self, points: Sequence[Point]) -> float | None:
        """Return how long these points take if as long as others at their load; None before one of each load ended."""
        known = [self._cell_took_s[point.workload, point.level] for point in points]
        return sum(map(fmean, known)) if all(known) else None

    def _place(self, progress: Progress) -> str:
        """Return `ngram at concurrency 8, repeat 1/3`, with the workload if there are several."""
        if progress.point is None:
            return progress.arm
        workload = f" {progress.workload}" if len(self._plan.workloads) > 1 else ""
        name, repeats = "window" if self._plan.soaks else "repeat", self._plan.load.repeats
        number = self._counted(progress.repeat or 0, repeats, at_most=self._plan.may_end_early)
        repeat = f", {name} {number}" if repeats > 1 else ""
        return f"{progress.arm}{workload} at {self._points[progress.point].level.words}{repeat}"

    @staticmethod
    def _counted(index: int, most: int, *, at_most: bool) -> str:
        """Return `1/3`, or `1 of at most 3`."""
        return f"{index + 1}{' of at most ' if at_most else '/'}{most}"

    def _print(self, line: str) -> None:
        """Print a line without a terminal, where there are no bars."""
        if not self._console.is_terminal:
            self.show_line(line)
