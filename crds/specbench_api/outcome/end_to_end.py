"""What a user and an owner of GPUs see of a speed-up: whole requests, and how many of them an hour."""

from __future__ import annotations

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure


class EndToEnd(ApiModel):
    """Whole requests of an arm against the very same requests of its paired baseline, at the same load."""

    speedup: Figure
    """The baseline's mean time to the last token over this arm's, over the pairs: the ratio that requests an hour
    have."""
    median_speedup: Figure
    """Median over the pairs of the baseline's time to the last token over this arm's: what a request sees."""
    requests_per_hour: Figure
    """Requests an hour of this arm, requests/h; missing in an open loop, where the schedule decides it."""
    baseline_requests_per_hour: Figure
    """The same of the baseline, requests/h."""
    cost_saved: Figure
    """Share of the cost of a request that is saved at the same price an hour: 1 − 1 / speedup; below 0 it costs more.
    Missing where requests an hour are."""
