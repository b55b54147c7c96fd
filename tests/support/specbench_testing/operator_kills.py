"""Kills the operator repeatedly with SIGKILL at random times, also during its start."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from datetime import UTC, datetime
from random import Random
from types import TracebackType
from typing import Self

from specbench_testing.operator_process import OperatorProcess, eventually

SEED_VARIABLE = "SPECBENCH_CHAOS_SEED"
AWAY_S = (0.0, 2.0)
"""The time between a kill and the next start, drawn from this range."""


def drawn_seed() -> str:
    """SPECBENCH_CHAOS_SEED, or a random seed. It is printed: pytest shows it when the test fails."""
    seed = os.environ.get(SEED_VARIABLE) or secrets.token_hex(4)
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    return seed


class OperatorKills:
    """Kills the operator `times` times in the background of a `with` block, after which the operator runs.

    `lives_s`: the range of its lifetime before each kill; a start takes about two seconds, so some kills hit the start.
    All lifetimes and AWAY_S together must be shorter than the test's own work, also on a fast machine.
    Kills that remain when the `with` block ends are dropped.
    """

    def __init__(
        self, operator: OperatorProcess, times: int, seed: str, lives_s: tuple[float, float] = (0.5, 3.0)
    ) -> None:
        self.at: list[datetime] = []
        """The times of the kills."""
        self._operator, self._times, self._lives_s = operator, times, lives_s
        self._chance = Random(seed)
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name="kills of the operator", daemon=True)

    @property
    def done(self) -> bool:
        """Whether all kills are done. Raises the error of a failed kill."""
        if self._failure:
            raise self._failure
        return len(self.at) == self._times

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), "the kills do not end"
        if error is None:
            eventually(self._operator.healthy, "the operator does not become healthy again")
            if self._failure:
                raise self._failure

    def _guarded(self) -> None:
        try:
            self._kill_repeatedly()
        except BaseException as error:  # noqa: BLE001 -- handed over to the test's thread
            self._failure = error

    def _kill_repeatedly(self) -> None:
        for _ in range(self._times):
            if self._over.wait(self._chance.uniform(*self._lives_s)):
                return
            assert self._operator.ended is None, (
                f"the operator ended by itself: {self._operator.log.read_text()[-4000:]}"
            )
            self._operator.end(signal.SIGKILL)
            self.at.append(datetime.now(UTC))
            self._over.wait(self._chance.uniform(*AWAY_S))
            self._operator.launch()
