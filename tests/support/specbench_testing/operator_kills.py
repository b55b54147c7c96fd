"""Kills the operator, the API server and the S3 server repeatedly with SIGKILL at random times, also at their start."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from random import Random
from types import TracebackType
from typing import Self

from specbench_cluster import Cluster as Ground
from specbench_operator.app import LEASE_LOST
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

    `ground`: each kill hits the operator or this cluster's API server or S3 server. An operator that ends because it
    could not renew its Lease meanwhile is started again, as the kubelet does.
    """

    def __init__(
        self,
        operator: OperatorProcess,
        times: int,
        seed: str,
        lives_s: tuple[float, float] = (0.5, 3.0),
        ground: Ground | None = None,
    ) -> None:
        self.at: list[datetime] = []
        """The times of the kills."""
        self.victims: Counter[str] = Counter()
        """How often each component was killed."""
        self._operator, self._times, self._lives_s, self._ground = operator, times, lives_s, ground
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
        components: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "operator": (partial(self._operator.end, signal.SIGKILL), self._operator.launch)
        }
        if self._ground is not None:
            for name in ("kube-apiserver", "versitygw"):
                components[name] = (partial(self._ground.kill, name), partial(self._ground.start, name))
        for _ in range(self._times):
            if self._wait(self._chance.uniform(*self._lives_s)):
                return
            victim = self._chance.choice(list(components))
            kill, start = components[victim]
            kill()
            self.at.append(datetime.now(UTC))
            self.victims[victim] += 1
            self._over.wait(self._chance.uniform(*AWAY_S))
            start()
        while self._ground and not self._wait(1.0):
            """The API server may have been away for too long, shortly before the last kill."""

    def _wait(self, seconds: float) -> bool:
        """Wait, and return whether the block is over; restart an operator that lost its Lease meanwhile."""
        due = time.monotonic() + seconds
        while not self._over.wait(max(min(due - time.monotonic(), 0.2), 0.0)):
            ended = self._operator.ended
            if ended == LEASE_LOST and self._ground:
                self._operator.launch()
            else:
                assert ended is None, f"the operator ended by itself: {self._operator.log.read_text()[-4000:]}"
            if time.monotonic() >= due:
                return False
        return True
