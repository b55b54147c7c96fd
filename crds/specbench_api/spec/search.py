"""`spec.search`: a race of the arms, instead of measuring every arm at every load equally often."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specbench_api.api_model import ApiModel

WORTH_PERCENT = 5.0
"""Smallest gain in percent that is worth a drafter, by default."""


class Search(ApiModel):
    """Measure every arm once, and then only the arms and loads that may still change the answer.

    A round launches the baseline and some arms, each once. An arm ends where it is shown to gain less than what is
    worth a drafter, or to be no better than another one; the run ends when no arm is left, and after load.repeats
    rounds at the latest.
    """

    worth_percent: Annotated[float, Field(gt=0, lt=100)] = WORTH_PERCENT
    """Differences of speed below this percentage do not matter."""
