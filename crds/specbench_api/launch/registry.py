"""The launcher of each kind of engine, with that of an external endpoint, and the problems of a launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from specbench_api.errors import Problem
from specbench_api.launch import sglang, tensorrt_llm, vllm
from specbench_api.launch.arguments import processes_of, variable_problem
from specbench_api.launch.launcher import (
    ContextRules,
    Launcher,
    LaunchRequest,
    LaunchSpec,
    Verification,
    unknown_verification,
)
from specbench_api.launch.llama_cpp import LlamaCppLauncher
from specbench_api.launch.sglang import SglangLauncher
from specbench_api.launch.simulator import SimulatorLauncher
from specbench_api.launch.supported_methods import DEFAULT_RELEASES, support_of
from specbench_api.launch.tensorrt_llm import TensorrtLlmLauncher, without_overlap
from specbench_api.launch.transformers import TransformersLauncher
from specbench_api.launch.vllm import VllmLauncher
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import DialectName, Engine, EngineKind
from specbench_api.spec.placement import GPUS_MAX
from specbench_api.spec.run import RunSpec

ALREADY_RUNNING = "the endpoints are already running, and specbench starts no engine"
_FIELDS_OF_RUNNING_SERVERS = ("kind", "endpoints", "dialect", "version", "apiKeySecretRef", "config")
"""Fields of an engine that are allowed with kind external. `config` has a check of its own."""


class ExternalLauncher:
    """An external endpoint: nothing is launched, so only its responses are known."""

    context = ContextRules((), needs_answer_space=False)

    def launch(self, order: LaunchRequest) -> LaunchSpec:
        """Return a launch without image and arguments, with the model name that the user gave."""
        return LaunchSpec(image="", args=(), port=0, served_model=order.target.name)

    def problems(self, order: LaunchRequest) -> Sequence[Problem]:
        """Return the fields of the engine that would have no effect, because it is not started."""
        given = order.engine.model_dump(by_alias=True, exclude_defaults=True)
        return [
            Problem(f"spec.engine.{name}", f"has no effect: {ALREADY_RUNNING}", "remove it")
            for name in given
            if name not in _FIELDS_OF_RUNNING_SERVERS
        ]

    def verification(self, engine: Engine, drafter: Drafter) -> Verification:  # noqa: ARG002 -- the same for all
        """Return unknown methods."""
        return unknown_verification(NOT_STARTED)


NOT_STARTED = "the endpoint was not started by specbench, so its options are unknown"
LAUNCHERS: dict[EngineKind, Launcher] = {
    EngineKind.SIMULATOR: SimulatorLauncher(),
    EngineKind.VLLM: VllmLauncher(),
    EngineKind.SGLANG: SglangLauncher(),
    EngineKind.TENSORRT_LLM: TensorrtLlmLauncher(),
    EngineKind.LLAMA_CPP: LlamaCppLauncher(),
    EngineKind.TRANSFORMERS: TransformersLauncher(),
    EngineKind.EXTERNAL: ExternalLauncher(),
}


def equalized(engine: Engine, drafters: Sequence[Drafter]) -> Engine:
    """Return the engine with settings that one arm's drafter requires, applied to every arm.

    This is decided when planning, so that the plan contains it: the setting is part of what is measured.
    """
    return without_overlap(engine, drafters) if engine.kind is EngineKind.TENSORRT_LLM else engine


def gpus_of(engine: Engine, args: Sequence[str]) -> int:
    """Return the number of GPUs that the parallel sizes need; 0 for an engine that also runs without GPUs."""
    match engine.kind:
        case EngineKind.VLLM:
            return processes_of(engine, args, vllm.PARALLEL_SIZES, vllm.spelled)
        case EngineKind.SGLANG:
            return processes_of(engine, args, sglang.parallel_sizes(args), sglang.spelled)
        case EngineKind.TENSORRT_LLM:
            return processes_of(engine, args, tensorrt_llm.PARALLEL_SIZES, tensorrt_llm.ALIASES)
    return 0


def with_gpus(spec: RunSpec) -> RunSpec:
    """Return the spec with the number of GPUs that its engine needs, if it gives none, and no claim provides them."""
    place, engine = spec.placement, spec.engine
    arms = [drafter.args for drafter in spec.drafters] + ([[]] if spec.baseline == "Measure" else [])
    needed = max((gpus_of(engine, (*engine.args, *args)) for args in arms), default=0)
    if place.gpus is not None or place.claimed_gpus or not needed:
        return spec
    return spec.model_copy(update={"placement": place.model_copy(update={"gpus": ceil(needed / place.nodes)})})


_CACHE_RESETS: dict[str, str | None] = {
    EngineKind.VLLM: "/reset_prefix_cache",
    EngineKind.SGLANG: "/flush_cache",
    EngineKind.TENSORRT_LLM: None,
    EngineKind.LLAMA_CPP: None,
}
"""The engines with a prompt cache, and the route (POST) that empties it; None: only a restart does."""


def cache_reset_route(engine: Engine) -> str | None:
    """Return the route (POST) that empties the engine's prompt cache; None if it has no such route."""
    return _CACHE_RESETS.get(_imitated(engine))


def restarts_to_empty_cache(engine: Engine) -> bool:
    """Return whether the engine has a prompt cache that only a restart empties."""
    return _imitated(engine) in _CACHE_RESETS and cache_reset_route(engine) is None


def _imitated(engine: Engine) -> str:
    simulated = engine.kind is EngineKind.SIMULATOR
    return (engine.dialect or DialectName.VLLM) if simulated else engine.kind


def release_of(engine: Engine) -> str | None:
    """Return the engine's release if it is known; a user's own image or command may contain any."""
    default = None if engine.image or engine.command else DEFAULT_RELEASES.get(engine.kind)
    return engine.version or default


SINGLE_NODE_ENGINES: dict[EngineKind, str] = {
    EngineKind.TENSORRT_LLM: "on several nodes it must be started by an MPI launcher",
    EngineKind.LLAMA_CPP: "its RPC back end is documented as experimental",
    EngineKind.TRANSFORMERS: "the research runtime is a single process",
    EngineKind.EXTERNAL: "an endpoint is not placed by specbench",
}
"""Engines that are not supported on several nodes, and why."""


WITHOUT_ADAPTERS: dict[EngineKind, str] = {
    EngineKind.TENSORRT_LLM: "set lora_config in spec.engine.config and lora_request in workloads[].extraBody",
    EngineKind.TRANSFORMERS: "merge it into the model, or use engine vllm, sglang or llama-cpp",
    EngineKind.EXTERNAL: "set spec.model.name, or endpoints[].model, to the name under which it is served",
}
"""Engines that are not given `spec.model.adapter`, and what to do instead."""


TOOL_ARGUMENTS: dict[EngineKind, dict[str, str]] = {
    EngineKind.VLLM: {"--enable-auto-tool-choice": "", "--tool-call-parser": "=NAME, the form of the model's calls"},
    EngineKind.SGLANG: {"--tool-call-parser": "=NAME, the form of the model's calls"},
    EngineKind.TENSORRT_LLM: {"--tool_parser": "=NAME, the form of the model's calls"},
}
"""Arguments that an engine needs for tool calls, and what follows each of them."""


def launch_problems(order: LaunchRequest) -> list[Problem]:
    """Return what the engine does not support, by the support matrix and then by its own launcher."""
    if order.nodes > 1 and order.engine.kind in SINGLE_NODE_ENGINES:
        message = f"{order.engine.kind} is only supported on one node: {SINGLE_NODE_ENGINES[order.engine.kind]}"
        return [Problem("spec.placement.nodes", message, "set it to 1, or use engine vllm or sglang")]
    if order.target.adapter and order.engine.kind in WITHOUT_ADAPTERS:
        message = f"specbench passes no adapter to {order.engine.kind}"
        return [Problem("spec.model.adapter", message, WITHOUT_ADAPTERS[order.engine.kind])]
    if order.drafter:
        found = support_of(order.engine.kind, order.drafter.method, release_of(order.engine))
        if not found.supported:
            path = f"{order.drafter_path}.method"
            message = f"{order.engine.kind} does not support {order.drafter.method}: {found.how}"
            return [Problem(path, message, f"use {found.instead}")]
    engine = order.engine
    variables = (
        variable_problem(engine.kind, variable.name, f"spec.engine.env[{row}].name")
        for row, variable in enumerate(engine.env)
    )
    return [*filter(None, variables), *_of_config(engine), *_of_gpus(order), *LAUNCHERS[engine.kind].problems(order)]


def _of_gpus(order: LaunchRequest) -> Iterator[Problem]:
    """Report what engines check only when they start, after all their GPUs are taken."""
    processes = gpus_of(order.engine, (*order.engine.args, *(order.drafter.args if order.drafter else ())))
    product = f"{processes} processes (tensorParallelSize times the other parallel sizes)"
    if processes % order.nodes:
        remedy = f"set spec.engine.tensorParallelSize to a multiple of {order.nodes}"
        yield Problem("spec.placement.nodes", f"{product} cannot be divided evenly among {order.nodes} nodes", remedy)
    elif order.gpus and processes > GPUS_MAX * order.nodes:
        more_nodes = "" if order.engine.kind in SINGLE_NODE_ENGINES else "raise it, or "
        message = f"{product} need more than the maximum of {GPUS_MAX} GPUs per node"
        yield Problem("spec.placement.nodes", message, f"{more_nodes}lower the parallel sizes")
    elif 0 < order.gpus < processes:
        field, remedy = (
            ("claimedGpus", "raise it, like the claim") if order.claims else ("gpus", "remove it, or raise it")
        )
        yield Problem(f"spec.placement.{field}", f"{product} need more than {order.gpus} GPUs", remedy)


def _of_config(engine: Engine) -> list[Problem]:
    """Reject `engine.config` for other engines; CEL cannot inspect a map of any values."""
    if engine.kind is EngineKind.TENSORRT_LLM or not engine.config:
        return []
    message = "is only valid with engine.kind tensorrt-llm"
    return [Problem("spec.engine.config", message, "use spec.engine.args")]
