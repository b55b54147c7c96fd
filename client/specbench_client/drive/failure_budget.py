"""How many failed requests a load tolerates before it is given up.

A point with many failed requests is Invalid in any case, and an engine that is gone fails all remaining requests within
milliseconds. Both are ended early, so that the other arms can be measured.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from specbench_api.outcome.record import Record
from specbench_api.spec.conditions import EngineReason
from specbench_client.errors import EngineFailed
from specbench_client.transport.exchange import ErrorClass

_CONNECTION_ERRORS = (ErrorClass.REFUSED, ErrorClass.RESET)


@dataclass(frozen=True, slots=True)
class FailureBudget:
    """Limits of failed requests.

    A load is given up if more than `share` of at least `after` requests failed, or if `connection_failures` connections
    failed in a row and the engine is not healthy.
    """

    share: float = 0.2
    after: int = 8
    connection_failures: int = 5


class FailureCounter:
    """Counts failed requests of one load, over all workers. `alive` checks the engine's health route."""

    def __init__(self, budget: FailureBudget, alive: Callable[[], Awaitable[bool]]) -> None:
        self._budget = budget
        self._alive = alive
        self._requests = 0
        self._failed = 0
        self._connection_failures = 0

    async def add(self, record: Record) -> None:
        """Count a record. Raises EngineFailed (LOST) when the budget is exceeded."""
        if record.error_class == ErrorClass.SKIPPED_AFTER_ERROR:
            return
        self._requests += 1
        if record.error_class is None:
            self._connection_failures = 0
            return
        self._failed += 1
        self._connection_failures = self._connection_failures + 1 if record.error_class in _CONNECTION_ERRORS else 0
        budget = self._budget
        if self._requests >= budget.after and self._failed > budget.share * self._requests:
            raise EngineFailed(
                f"{self._failed} of {self._requests} requests failed; the last one: {_describe(record)}",
                EngineReason.LOST,
            )
        if self._connection_failures >= budget.connection_failures:
            failures, self._connection_failures = self._connection_failures, 0
            if not await self._alive():
                raise EngineFailed(
                    f"{failures} connections failed in a row and the engine is not healthy; "
                    f"the last one: {_describe(record)}",
                    EngineReason.LOST,
                )


def _describe(record: Record) -> str:
    return f"{record.error_class}: {record.error}"
