"""Launches of the arms of an edited run, or the problems of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from specbench_api.errors import InvalidSpec
from specbench_api.launch.launcher import LaunchSpec
from specbench_api.launch.registry import LAUNCHERS
from specbench_api.plan.expansion import expand, launch_order
from specbench_testing.resources import run_of


def launches_of(edits: Mapping[str, Any]) -> dict[str, LaunchSpec]:
    """The launch of each arm."""
    plan = expand(run_of(edits))
    return {arm.name: LAUNCHERS[plan.engine.kind].launch(launch_order(plan, arm)) for arm in plan.arms}


def refusals_of(edits: Mapping[str, Any]) -> list[str]:
    """Every problem of the plan, as one line."""
    with pytest.raises(InvalidSpec) as refused:
        expand(run_of(edits))
    return [str(problem) for problem in refused.value.problems]


def launch_of(edits: Mapping[str, Any], arm: str = "none") -> LaunchSpec:
    """The launch of one arm."""
    return launches_of(edits)[arm]


def refusal_of(edits: Mapping[str, Any]) -> str:
    """The only problem of the plan, as one line."""
    (problem,) = refusals_of(edits)
    return problem
