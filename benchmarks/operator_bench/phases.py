"""The phases of a benchmark: idle, steady state, storms and restarts, each measured from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from operator_bench.audit_log import AuditLog
from operator_bench.figures import PhaseFigures
from operator_bench.population import RunState
from operator_bench.preparation import PreparedRuns, standalone_run
from operator_bench.profile import profiled
from operator_bench.reactions import Reaction, by_kind
from operator_bench.simulated_clients import SimulatedClients
from operator_bench.site import ScaleSite
from operator_bench.usage import Sampler, queue_depth
from operator_bench.users import Users, spread
from specbench_cluster import ClusterError

COLD_START, RESUMPTION, IDLE, STEADY = "cold start", "resumption", "idle", "steady state"
CREATIONS, DELETIONS, OPERATOR_RESTART, API_RESTART = "creations", "deletions", "operator restart", "API server restart"
EDITS_PER_S = 2.0
RESUME_PERIOD_S, RESUMED_FOR_S = 5.0, 15.0
MARKERS = 20
"""Runs that are edited to find out when the operator has looked at all runs."""
_GRACE_S = 45.0
"""How long the steady state waits for the last reactions: longer than the period of polling."""
_POLL_S = 0.2
_EMPTY_POLLS = 5


@dataclass(frozen=True)
class Durations:
    """How long the phases last, in seconds, and how many runs a storm has."""

    idle_s: float = 120.0
    steady_s: float = 300.0
    settle_s: float = 300.0
    """How long a phase waits until everything is settled."""
    storm: int = 1000


QUICK = Durations(idle_s=30.0, steady_s=60.0, settle_s=60.0, storm=200)


@dataclass
class Events:
    """The events of a phase: the operator's reactions, and the time from which settling is counted."""

    reactions: Sequence[Reaction] = ()
    since: float | None = None
    """Monotonic, in seconds; None: from the begin of the phase."""


@dataclass
class Phases:
    """The phases on one site, with one operator process that is not started yet."""

    site: ScaleSite
    users: Users
    clients: SimulatedClients
    runs: PreparedRuns
    sampler: Sampler
    durations: Durations
    progress: Callable[[str], None]
    profile: Path | None = None
    """Where to store a profile of the steady state; None: do not profile."""
    figures: dict[str, PhaseFigures] = field(default_factory=dict)
    """The phases so far, by name."""
    stormed: list[str] = field(default_factory=list)
    """Runs of the storm of creations that still exist."""

    def cold_start(self) -> None:
        """Start the operator and wait until it has looked at all runs."""
        self._measure(COLD_START, self._start_operator, settle=True)

    def resumption(self) -> None:
        """Resume the runs that are to be active, and wait until all their clients run."""
        active = self.runs.names[RunState.ACTIVE]

        def act() -> Events:
            reactions = self.users.each(self.users.resume, active)
            self._until(lambda: self.clients.running >= len(active), self.durations.settle_s)
            return Events(reactions)

        self._measure(RESUMPTION, act, settle=True)

    def idle(self) -> None:
        """Nothing happens: the active runs measure no point, and no user writes."""

        def act() -> Events:
            time.sleep(self.durations.idle_s)
            return Events()

        self._measure(IDLE, act)

    def steady(self) -> None:
        """Clients measure points, and users edit, resume and suspend runs."""

        def act() -> Events:
            before = len(self.clients.points)
            self.clients.measuring.set()
            try:
                reactions = self._daily_work()
            finally:
                self.clients.measuring.clear()
            return Events([*reactions, *self.clients.points[before:]])

        with profiled(self.site.operator, self.profile):
            self._measure(STEADY, act)

    def creations(self) -> None:
        """Users create many suspended runs at once."""
        spec = {**self.site.run_spec, "suspend": True}
        self.stormed = [f"storm-{number:04d}" for number in range(self.durations.storm)]
        made = [standalone_run(name, spec) for name in self.stormed]
        self._measure(CREATIONS, lambda: Events(self.users.each(self.users.create_awaited, made)), settle=True)

    def deletions(self) -> None:
        """Users delete the runs of the other storm at once, while others edit theirs."""
        names, self.stormed = self.stormed, []

        def act() -> Events:
            chosen = spread(self.runs.at_rest, max(len(names) // 10, MARKERS))
            edits: list[Future[Reaction]] = []
            every = max(len(names) // len(chosen), 1)
            for number, name in enumerate(names):
                self.users.submit(self.users.delete, name)
                if number % every == 0 and len(edits) < len(chosen):
                    edits.append(self.users.submit(self.users.edit, chosen[len(edits)]))
            return Events([edit.result() for edit in edits])

        self._measure(DELETIONS, act, settle=True)

    def operator_restart(self) -> None:
        """Stop the operator as a roll-out does, edit runs, and start it again."""

        def act() -> Events:
            with self.sampler.supervised:
                self.site.operator.end(signal.SIGTERM)
            return self._start_operator()

        self._measure(OPERATOR_RESTART, act, settle=True)

    def api_restart(self) -> None:
        """Kill the API server, start it again, and edit runs."""

        def act() -> Events:
            self.site.ground.kill("kube-apiserver")
            self.site.ground.start("kube-apiserver")
            return Events(self._edit_markers(), time.monotonic())

        self._measure(API_RESTART, act, settle=True)

    def _start_operator(self) -> Events:
        """Edit runs while the operator is down, then start it: these edits mark the end of its first look at all."""
        edits, since = self._edit_markers(), time.monotonic()
        with self.sampler.supervised:
            self.site.operator.launch()
        return Events(edits, since)

    def _edit_markers(self) -> list[Reaction]:
        return self.users.each(self.users.edit, spread(self.runs.at_rest, MARKERS))

    def _daily_work(self) -> list[Reaction]:
        """Edit runs at random, and resume others for a while, at fixed rates."""
        seconds, before = self.durations.steady_s, len(self.users.ready)
        resumed = self.runs.names[RunState.WAITING][: int(seconds / RESUME_PERIOD_S)]
        edited = [name for name in self.runs.at_rest if name not in set(resumed)]
        chance = Random(len(edited))  # noqa: S311 -- not a secret
        plan: list[tuple[float, Callable[[], Reaction]]] = [
            (number / EDITS_PER_S, partial(self.users.edit, chance.choice(edited)))
            for number in range(int(seconds * EDITS_PER_S))
        ]
        for number, name in enumerate(resumed):
            at = number * RESUME_PERIOD_S
            plan.append((at, partial(self.users.resume, name)))
            plan.append((min(at + RESUMED_FOR_S, seconds), partial(self.users.suspend, name)))
        began, made = time.monotonic(), []
        for at, act in sorted(plan, key=lambda row: row[0]):
            time.sleep(max(began + at - time.monotonic(), 0.0))
            made.append(self.users.submit(act))
        return [*(each.result() for each in made), *self.users.ready[before:]]

    def _measure(self, name: str, act: Callable[[], Events], *, settle: bool = False) -> None:
        """Run a phase and record its figures. Without `settle`, use is counted until the last event only."""
        log, limit_s = AuditLog(self.site.ground.settings.audit_log), self.durations.settle_s
        began, logged = self.sampler.sample().at, log.size
        events = act()
        settled_at = self._settled(events.reactions, limit_s) if settle else None
        ended, logged_until = self.sampler.sample().at, log.size
        if not settle:
            self._until(lambda: _all_acted(events.reactions), min(limit_s, _GRACE_S))
        self.users.reactions.drop()
        figures = self.figures[name] = PhaseFigures(
            name=name,
            seconds=ended - began,
            usage=self.sampler.between(began, ended),
            requests=dict(log.requests_between(logged, logged_until).most_common()),
            latencies=by_kind(events.reactions),
            settled_s=None if settled_at is None else settled_at - (events.since or began),
            load_average=os.getloadavg()[0],
            settle_limit_s=limit_s if settle else None,
        )
        self.progress(f"{name}: {figures.line}")
        if events.reactions and not any(row.acted_at for row in events.reactions):
            last = self.site.operator.log.read_text().splitlines()[-1:]
            raise ClusterError(f"the operator does not react; the end of its log: {last}")

    def _settled(self, reactions: Sequence[Reaction], within_s: float) -> float | None:
        """When all reactions had arrived and the queue stayed empty for a second; None if not in time."""
        deadline, empty = time.monotonic() + within_s, 0
        since = 0.0
        while time.monotonic() < deadline:
            if _all_acted(reactions) and queue_depth(self.site.operator) == 0:
                since = since if empty else time.monotonic()
                empty += 1
                if empty == _EMPTY_POLLS:
                    return since
            else:
                empty = 0
            time.sleep(_POLL_S)
        return None

    def _until(self, condition: Callable[[], bool], within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True


def _all_acted(reactions: Iterable[Reaction]) -> bool:
    return all(reaction.acted_at is not None for reaction in reactions)
