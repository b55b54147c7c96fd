"""What curves can be drawn against, and how the place of a cell, or of a request, is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specbench_api.plan.plan import Arm
from specbench_api.spec.load import Level
from specbench_api.spec.workload import Workload
from specbench_client.analysis.crossover.axis import CONCURRENCY, Axis

Place = Callable[[Arm, Workload, Level], float | None]
"""Of a cell; None where it has none."""


@dataclass(frozen=True)
class Against:
    """One axis: what stands still for it, and where a cell lies on it.

    `free`: names of `identity` that may differ along a curve. The selection of prompts is among them where their
    fingerprint tells them. `place`: of a declared axis. `column`: of a measured one, the baseline's column of the pairs
    whose requests are sorted into classes.
    """

    axis: Axis
    free: tuple[str, ...]
    limit: str
    """What a reader of such a curve must know."""
    place: Place | None = None
    column: str = ""


def _temperature(_arm: Arm, workload: Workload, _level: Level) -> float | None:
    return workload.sampling.temperature


def _draft_tokens(arm: Arm, _workload: Workload, _level: Level) -> float | None:
    return float(arm.drafter.num_speculative_tokens) if arm.drafter else None


def _concurrency(_arm: Arm, _workload: Workload, level: Level) -> float | None:
    return None if level.concurrency is None else float(level.concurrency)


AGAINST = {
    "temperature": Against(
        Axis("temperature", "", logarithmic=False),
        ("temperature", "selection of prompts"),
        "At a temperature above 0 the answers of both arms differ by design: pairs share a prompt, not an answer.",
        place=_temperature,
    ),
    "draft-tokens": Against(
        Axis("draft-tokens", "tokens", logarithmic=True),
        ("draft tokens", "selection of prompts"),
        "A speed-up rises with the draft length before it falls: it may pass through 1 twice.",
        place=_draft_tokens,
    ),
    "input-tokens": Against(
        Axis("input-tokens", "tokens", logarithmic=True),
        ("dataset",),
        "Prompts of different lengths differ in more than their length (source, task), unless they were brought to"
        " each length from the same texts (specbench dataset prepare --isl).",
        column="input_tokens",
    ),
    "output-tokens": Against(
        Axis("output-tokens", "tokens", logarithmic=True),
        ("limits of the answers", "selection of prompts"),
        "Requests are sorted by the length of the baseline's answer, which comes with their content: it is no"
        " experiment in which only the length was changed.",
        column="tokens",
    ),
    "concurrency": Against(
        CONCURRENCY,
        ("load", "slots", "max_running_requests", "selection of prompts"),
        "The speed-up is taken to fall with the load wherever the intervals allow it.",
        place=_concurrency,
    ),
}
"""By the name that a user gives."""
