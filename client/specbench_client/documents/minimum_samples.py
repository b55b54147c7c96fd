"""How many repeats a comparison needs, how many requests a percentile, and how many prompts a workload."""

from __future__ import annotations

import math

from specbench_api.spec.gate import MIN_REPEATS
from specbench_client.documents.figure import counted

MIN_REPEATS_TO_COMPARE = MIN_REPEATS
"""With fewer repeats no interval includes run-to-run variation, so neither faster nor slower is claimed."""
MIN_PROMPTS = 5
"""With fewer different prompts of a workload, a run is not trustworthy (TooFewPrompts)."""


def few_prompts(workload: str, prompts: int) -> str:
    """Return what it means that a workload has so few different prompts."""
    return f"the figures of workload {workload!r} rest on {prompts} different prompts and are valid only for those"


def too_few_repeats(repeats: int) -> str:
    """Return why a comparison has no interval: `1 repeat: too few to tell`; empty if it may have one."""
    return "" if repeats >= MIN_REPEATS_TO_COMPARE else f"{counted(repeats, 'repeat')}: too few to tell"


def too_few_requests(percent: int, requests: int) -> str:
    """Return why a percentile is missing: `p99 needs at least 100 requests`; empty if it is not.

    At least one of the requests must be expected beyond it (p99: 100, p95: 20, p90: 10): of fewer, a percentile is
    their extreme value under another name. A median is never extreme.
    """
    tail = min(percent, 100 - percent)
    needed = 1 if tail == 50 else math.ceil(100 / tail)
    return "" if requests >= needed else f"p{percent} needs at least {counted(needed, 'request')}"
