"""Which launcher serves which kind of engine, and every problem of a run's arms at once."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.errors import Problem
from specbench_api.launch.external import ExternalLauncher
from specbench_api.launch.launch import Launcher, Order
from specbench_api.launch.llama_cpp import LlamaCppLauncher
from specbench_api.launch.sglang import SglangLauncher
from specbench_api.launch.simulator import SimulatorLauncher
from specbench_api.launch.support.table import RELEASES, cell
from specbench_api.launch.tensorrt_llm import TensorrtLlmLauncher, without_overlap
from specbench_api.launch.transformers import TransformersLauncher
from specbench_api.launch.vllm import VllmLauncher
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import Engine, EngineKind

LAUNCHERS: dict[EngineKind, Launcher] = {
    EngineKind.SIMULATOR: SimulatorLauncher(),
    EngineKind.VLLM: VllmLauncher(),
    EngineKind.SGLANG: SglangLauncher(),
    EngineKind.TENSORRT_LLM: TensorrtLlmLauncher(),
    EngineKind.LLAMA_CPP: LlamaCppLauncher(),
    EngineKind.TRANSFORMERS: TransformersLauncher(),
    EngineKind.EXTERNAL: ExternalLauncher(),
}


def levelled(engine: Engine, drafters: Sequence[Drafter]) -> Engine:
    """The engine with what the drafter of one arm takes from every arm.

    Decided for the plan, which says it, and not at a launch: points that were measured with and without are not the
    same.
    """
    return without_overlap(engine, drafters) if engine.kind is EngineKind.TENSORRT_LLM else engine


def release_of(engine: Engine) -> str | None:
    """The release that is launched, as far as it is known: a user's own image or program may hold any."""
    default = None if engine.image or engine.command else RELEASES.get(engine.kind)
    return engine.version or default


ONE_NODE: dict[EngineKind, str] = {
    EngineKind.TENSORRT_LLM: "it spreads over nodes by MPI alone, whose launcher must start it",
    EngineKind.LLAMA_CPP: "its RPC back end is experimental, by its own word",
    EngineKind.TRANSFORMERS: "the research runtime is one process",
    EngineKind.EXTERNAL: "an endpoint that already runs is placed by whoever started it",
}
"""Engines that are not spread over several nodes, and why."""


def problems_of(order: Order) -> list[Problem]:
    """What the engine cannot do: the support table first, then the engine's own rules."""
    if order.nodes > 1 and order.engine.kind in ONE_NODE:
        message = f"{order.engine.kind} runs on one node: {ONE_NODE[order.engine.kind]}"
        return [Problem("spec.placement.nodes", message, "use 1, or engine vllm or sglang")]
    if order.drafter:
        found = cell(order.engine.kind, order.drafter.method, release_of(order.engine))
        if not found.supported:
            path = f"{order.drafter_path}.method"
            message = f"{order.engine.kind} cannot do {order.drafter.method}: {found.how}"
            return [Problem(path, message, f"use {found.instead}")]
    return [*_of_config(order.engine), *LAUNCHERS[order.engine.kind].problems(order)]


def _of_config(engine: Engine) -> list[Problem]:
    """No rule of the API server's: it looks into no map whose values may be anything."""
    if engine.kind is EngineKind.TENSORRT_LLM or not engine.config:
        return []
    message = "is TensorRT-LLM's configuration file, and this engine reads none of ours"
    return [Problem("spec.engine.config", message, "give spec.engine.args")]
