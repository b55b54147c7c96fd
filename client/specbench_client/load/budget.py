"""How much failure a point may hold before it is given up.

A point in which many requests fail is Invalid whatever else it says, and an engine that is gone fails all the others
within milliseconds: both are ended early, so that the other arms get their turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from specbench_api.outcome.record import Record
from specbench_api.spec.conditions import EngineReason
from specbench_client.errors import EngineFailed
from specbench_client.transport.exchange import ErrorClass

_CONNECTION = (ErrorClass.REFUSED, ErrorClass.RESET)


@dataclass(frozen=True, slots=True)
class FailureBudget:
    """`share` of at least `after` requests; or `connection_failures` in a row with an engine that is not healthy."""

    share: float = 0.2
    after: int = 8
    connection_failures: int = 5


class FailureCount:
    """Counts the requests of one load, over all workers. `alive`: whether the engine's health route answers."""

    def __init__(self, budget: FailureBudget, alive: Callable[[], Awaitable[bool]]) -> None:
        self._budget = budget
        self._alive = alive
        self._requests = 0
        self._failed = 0
        self._connection_failures = 0

    async def add(self, record: Record) -> None:
        """Count a request that was sent. Raises EngineFailed (LOST) when the budget is spent."""
        if record.error_class == ErrorClass.SKIPPED_AFTER_ERROR:
            return
        self._requests += 1
        if record.error_class is None:
            self._connection_failures = 0
            return
        self._failed += 1
        self._connection_failures = self._connection_failures + 1 if record.error_class in _CONNECTION else 0
        budget = self._budget
        if self._requests >= budget.after and self._failed > budget.share * self._requests:
            raise EngineFailed(
                f"{self._failed} of {self._requests} requests failed; the last one: {_words(record)}", EngineReason.LOST
            )
        if self._connection_failures >= budget.connection_failures:
            failures, self._connection_failures = self._connection_failures, 0
            if not await self._alive():
                raise EngineFailed(
                    f"{failures} connections failed one after the other and the engine is not healthy; "
                    f"the last one: {_words(record)}",
                    EngineReason.LOST,
                )


def _words(record: Record) -> str:
    return f"{record.error_class}: {record.error}"
