"""Which launcher serves which kind of engine, and every problem of a run's arms at once."""

from __future__ import annotations

from specbench_api.errors import Problem
from specbench_api.launch.external import ExternalLauncher
from specbench_api.launch.launch import Launcher, Order
from specbench_api.launch.llama_cpp import LlamaCppLauncher
from specbench_api.launch.simulator import SimulatorLauncher
from specbench_api.launch.support.table import cell
from specbench_api.spec.engine import EngineKind

LAUNCHERS: dict[EngineKind, Launcher] = {
    EngineKind.SIMULATOR: SimulatorLauncher(),
    EngineKind.LLAMA_CPP: LlamaCppLauncher(),
    EngineKind.EXTERNAL: ExternalLauncher(),
}


def problems_of(order: Order) -> list[Problem]:
    """What the engine cannot do: the support table first, then the engine's own rules."""
    if order.drafter:
        found = cell(order.engine.kind, order.drafter.method, order.engine.version)
        if not found.supported:
            path = f"{order.drafter_path}.method"
            message = f"{order.engine.kind} cannot do {order.drafter.method}: {found.how}"
            return [Problem(path, message, f"use {found.instead}")]
    return list(LAUNCHERS[order.engine.kind].problems(order))
