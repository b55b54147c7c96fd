"""Statistics of the batch's last steps, for the engine that gives them out once and then forgets them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from specbench_client.simulator.batch import Step

KEPT = 1000
"""Steps that are kept until somebody takes them; older ones are lost."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """One step of the batch. ``correct`` drafts were found so, and ``kept`` are those that the answers had room for."""

    number: int
    duration_ms: float
    prefilling: int
    decoding: int
    waiting: int
    prefill_tokens: int
    kv_tokens: int
    drafting: int
    drafted: int
    correct: int
    kept: int


class Iterations:
    """The last steps, until they are taken."""

    def __init__(self) -> None:
        self._kept: deque[Iteration] = deque(maxlen=KEPT)
        self._made = 0

    def add(self, step: Step, *, waiting: int) -> None:
        """Keep the step that has just ended."""
        self._made += 1
        outcomes = [outcome for _, outcome in step.outcomes]
        drafting = [one for one in outcomes if one.drafted]
        prefilling = sum(one.prefill for one in outcomes)
        self._kept.append(
            Iteration(
                number=self._made,
                duration_ms=step.duration_ms,
                prefilling=prefilling,
                decoding=len(outcomes) - prefilling,
                waiting=waiting,
                prefill_tokens=step.load.prefill_tokens,
                kv_tokens=step.load.kv_tokens,
                drafting=len(drafting),
                drafted=sum(one.drafted for one in drafting),
                correct=sum(one.accepted for one in drafting),
                kept=sum(one.delivered_accepted for one in drafting),
            )
        )

    def window(self, length: int) -> list[Iteration]:
        """Return the last whole window of so many steps; empty before there is one."""
        beyond = self._made % length
        kept = list(self._kept)
        return kept[-beyond - length : len(kept) - beyond] if self._made >= length else []

    def drain(self) -> list[Iteration]:
        """Return what is kept, and forget it."""
        taken = list(self._kept)
        self._kept.clear()
        return taken
