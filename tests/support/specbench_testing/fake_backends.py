"""A fake API server and S3 around one run, which the real observer reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.status import GateStatus
from specbench_operator.cluster.api import RUN
from specbench_operator.cluster.observer import RunObserver
from specbench_operator.state.run import RunObservation, StoredResults, StoreFailure
from specbench_testing.operator_builders import operator_run

Raw = dict[str, Any]
Rows = list[Raw]


@dataclass
class FakeBackends:
    """One run without children and results. Tests override what they are about."""

    run: Raw = field(default_factory=operator_run)

    def get(self, kind: str, namespace: str, name: str, /, *, bare: bool = False) -> Raw | None:
        return self.run if kind == RUN else None

    def list(self, kind: str, namespace: str, /, **selectors: str) -> Rows:
        return []

    def each(self, kind: str, namespace: str, /, **selectors: str) -> Rows:
        return self.list(kind, namespace, **selectors)

    def read(self, run: SpecBenchRun, /, *, last_launch: bool) -> StoredResults:
        return StoredResults()

    def read_gate(self, run: SpecBenchRun, /) -> GateStatus | None:
        return None

    def latest(self, run: SpecBenchRun, /) -> str | StoreFailure | None:
        return None

    def observe(self, **options: Any) -> RunObservation:
        """What an observer with these options observes."""
        backends: Any = self
        observed = RunObserver(backends, backends, **options).observe("default", "demo")
        assert observed is not None
        return observed
