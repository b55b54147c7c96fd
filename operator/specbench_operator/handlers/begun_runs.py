"""The runs that began a moment ago, which lists of their namespace do not show as in progress yet.

Without this memory, runs that are resumed together would all begin, whatever the limit of their namespace is. It is
safe to lose on restart: by then, status shows the runs as in progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from specbench_api.spec.conditions import IN_PROGRESS_PHASES, Phase
from specbench_operator.state.run import RunDecision, RunObservation

BEGUN_S = 60.0
"""How long a run is remembered, in seconds: longer than a list of its namespace is used."""


@dataclass
class BegunRuns:
    """Safe for use from several threads. Runs of which one may begin are decided one at a time."""

    clock: Callable[[], float] = time.monotonic
    _until: dict[str, float] = field(default_factory=dict)
    """UID → until when the run counts as in progress."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def deciding(self, observed: RunObservation) -> Iterator[RunObservation]:
        """Yield the observation, in which the runs that just began are in progress."""
        if not observed.namespace_runs:
            yield observed
            return
        with self._lock:
            now = self.clock()
            self._until = {uid: until for uid, until in self._until.items() if now < until}
            yield replace(
                observed,
                namespace_runs=tuple(
                    replace(run, phase=Phase.STARTING) if self._counts(run.uid, run.phase) else run
                    for run in observed.namespace_runs
                ),
            )

    def note(self, observed: RunObservation, decision: RunDecision) -> None:
        """Remember the run if it begins now. Call it within `deciding`."""
        if observed.namespace_runs and decision.status.phase in IN_PROGRESS_PHASES:
            self._until[observed.resource["metadata"]["uid"]] = self.clock() + BEGUN_S

    def _counts(self, uid: str, phase: str) -> bool:
        return uid in self._until and phase not in IN_PROGRESS_PHASES
