"""An engine that runs already: nothing is started, and nothing is ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from specbench_client.errors import EngineFailed

REACHED_WITHIN_S = 5.0
"""Nobody is starting it: where it cannot be reached in so long, the address is wrong, or it is down."""


class RunningEngine:
    """The counterpart of `EngineProcess` for an endpoint of somebody else's."""

    command: Sequence[str] = ()
    """Somebody else's."""

    def __init__(self, endpoint: str) -> None:
        self.url = endpoint

    async def __aenter__(self) -> Self:
        """It is there, or the first completion will say so."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """It stays."""

    async def wait_ready(self, deadline_s: float) -> None:
        """It was ready before we came."""

    async def explain(self) -> EngineFailed | None:
        """Its log is not ours to read."""
        return None
