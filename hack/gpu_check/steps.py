"""Shapes of the models with random weights; steps in order of value, their times, which fit a budget, and their runs.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TRUNCATED = "truncated"
DRAFTERS: dict[str, dict[str, Any]] = {
    "ngram": {"method": "ngram", "numSpeculativeTokens": 4, "promptLookupMax": 3},
    TRUNCATED: {"method": "draft_model", "numSpeculativeTokens": 4},
    "medusa": {"method": "medusa", "numSpeculativeTokens": 3},
}
"""Every drafter by the name of its arm; models are added by `run_of`."""
CLIENT_S = 8.0
"""Seconds per run for the client's start, its analysis and its report."""
WARMUP_SHARE = 2.0
"""Warm-up requests per configured one: it continues until step times are steady, up to four times as many."""
RATIOS = (0.25, 4.0)
"""Limits of the correction by measured times: one odd step must not decide the rest."""
STARTUP_DEADLINE_S = 180
SLOT_TOKENS = 1024
"""Context of each of llama.cpp's slots, which divide --ctx-size."""
RUN_PREFIX = "gpu-check-"
"""Name of a run: this, and the step's name."""
MEDUSA_HEADS = 3


@dataclass(frozen=True)
class Shape:
    """Dimensions of a Llama. `draft_layers`: the target's first layers, which are the truncated draft model."""

    name: str
    title: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    draft_layers: int
    build_s: float
    """Estimated seconds to create and save the models."""

    def parameters(self, layers: int | None = None) -> int:
        """Return the number of parameters, with all layers or the first few."""
        pairs = self.hidden // self.heads * self.kv_heads
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * pairs
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden
        return embeddings + (self.layers if layers is None else layers) * layer + self.hidden

    @property
    def medusa_parameters(self) -> int:
        """Parameters of all heads: each has one residual layer and one output layer, as Medusa-1 has."""
        return MEDUSA_HEADS * (self.hidden * self.hidden + self.hidden + self.vocabulary * self.hidden)


LLAMA_1B = Shape(
    "1b", "Llama 3.2 1B", hidden=2048, intermediate=8192, layers=16, heads=32, kv_heads=8, vocabulary=128_256,
    tied=True, draft_layers=4, build_s=40,
)  # fmt: skip
LLAMA_8B = Shape(
    "8b", "Llama 3.1 8B", hidden=4096, intermediate=14_336, layers=32, heads=32, kv_heads=8, vocabulary=128_256,
    tied=False, draft_layers=4, build_s=90,
)  # fmt: skip
SMALL = Shape(
    "small", "a small Llama", hidden=64, intermediate=128, layers=4, heads=4, kv_heads=2, vocabulary=512,
    tied=True, draft_layers=1, build_s=12,
)  # fmt: skip
MEDIUM = Shape(
    "medium", "a medium Llama", hidden=128, intermediate=384, layers=6, heads=8, kv_heads=2, vocabulary=1024,
    tied=False, draft_layers=2, build_s=12,
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One run of specbench. `launch_s`, `token_s`: first guesses for one engine start and one output token."""

    name: str
    title: str
    shows: str
    shape: Shape
    dtype: str
    arms: tuple[str, ...]
    levels: tuple[int, ...]
    requests: int
    max_tokens: int
    repeats: int
    warmup: int
    launch_s: float
    token_s: float
    engine: str = "transformers"
    prepare_s: float = 0.0
    """Estimated seconds to compile the engine."""

    def estimated_s(self, repeats: int, *, built: bool) -> float:
        """Estimate the seconds of this step with that many repeats; `built`: its models exist."""
        warmups = max(self.warmup, *self.levels) * WARMUP_SHARE
        tokens = (self.requests * len(self.levels) + warmups) * self.max_tokens
        launches = (len(self.arms) + 1) * repeats
        before = self.prepare_s + (0.0 if built else self.shape.build_s) + CLIENT_S
        return before + launches * (self.launch_s + tokens * self.token_s)


@dataclass(frozen=True)
class EngineSetup:
    """How the engines are started: the research runtime's Python, its PYTHONPATH, the device, and llama-server.

    Without `llama_server`, the prebuilt one of the extra llama-cpp is started.
    """

    python: str
    path: str
    device: str
    llama_server: str | None = None


def steps_of(*, cpu: bool) -> tuple[Step, ...]:
    """Return all steps, the most valuable first. On the CPU they are the same, with small shapes."""
    first, large = (SMALL, MEDIUM) if cpu else (LLAMA_1B, LLAMA_8B)
    launch_s, large_launch_s, token_s = (9.0, 9.0, 0.004) if cpu else (12.0, 30.0, 0.015)
    everyone = tuple(DRAFTERS)
    return (
        Step(
            "main", "Every drafter at one stream", "step times and memory by drafter; the checks; a verdict",
            first, "bfloat16", everyone, levels=(1,), requests=10, max_tokens=16 if cpu else 48,
            repeats=1 if cpu else 3, warmup=2, launch_s=launch_s, token_s=token_s,
        ),
        Step(
            "streams", "1 to 64 streams", "the client's timing with many streams; the runtime serves one at a time",
            first, "bfloat16", ("ngram",), levels=(1, 8, 64), requests=64, max_tokens=4 if cpu else 8,
            repeats=1, warmup=2, launch_s=launch_s, token_s=token_s,
        ),
        Step(
            "large", "A larger target", "step times and memory where reading the weights costs more",
            large, "bfloat16", (TRUNCATED,) if cpu else ("ngram", TRUNCATED), levels=(1,), requests=8,
            max_tokens=16 if cpu else 32, repeats=1, warmup=2, launch_s=large_launch_s, token_s=token_s * 1.5,
        ),
        Step(
            "float32", "The same in float32", "whether drafting leaves greedy text unchanged; bfloat16 cannot show it",
            first, "float32", (TRUNCATED,) if cpu else everyone, levels=(1,), requests=10,
            max_tokens=16 if cpu else 48, repeats=1, warmup=2, launch_s=launch_s, token_s=token_s,
        ),
    )  # fmt: skip


def llama_cpp_step(*, cpu: bool) -> Step:
    """Return the optional last step: llama.cpp, compiled on the machine, with the models of the first step."""
    return Step(
        "llama-cpp", "llama.cpp", "a serving engine that batches, on the same random weights",
        SMALL if cpu else LLAMA_1B, "float16", ("ngram", TRUNCATED), levels=(1, 8), requests=24,
        max_tokens=16 if cpu else 64, repeats=1, warmup=2, launch_s=4.0, token_s=0.003, engine="llama-cpp",
        prepare_s=0.0 if cpu else 240.0,
    )  # fmt: skip


def fitting_repeats(step: Step, remaining_s: float, ratio: float, *, built: bool) -> int:
    """Return the largest number of repeats that fits the remaining time, or 0. `ratio`: measured over estimated."""
    fitting = (
        count for count in range(step.repeats, 0, -1) if step.estimated_s(count, built=built) * ratio <= remaining_s
    )
    return next(fitting, 0)


def corrected_ratio(measured_s: float, estimated_s: float) -> float:
    """Return the factor for later estimates after a step took `measured_s`."""
    return min(max(measured_s / estimated_s, RATIOS[0]), RATIOS[1])


def run_of(step: Step, repeats: int, models: Mapping[str, str], engine: EngineSetup, prompts: str) -> dict[str, Any]:
    """Return the step's SpecBenchRun. `models`: paths of `target` and of the drafters' models by arm."""
    drafters = [
        {"name": arm, **DRAFTERS[arm], **({"model": models[arm]} if arm in models else {})} for arm in step.arms
    ]
    return {
        "apiVersion": "specbench.io/v1alpha1",
        "kind": "SpecBenchRun",
        "metadata": {"name": f"{RUN_PREFIX}{step.name}"},
        "spec": {
            "model": {"name": f"random-{step.shape.name}", "path": models["target"]},
            "engine": _llama_cpp(step, engine) if step.engine == "llama-cpp" else _transformers(step, engine),
            "drafters": drafters,
            "workloads": [
                {
                    "name": "prompts",
                    "dataset": {"source": "jsonl", "uri": prompts},
                    "sampling": {"temperature": 0},
                    "output": {"maxTokens": step.max_tokens, "ignoreEos": True},
                }
            ],
            "load": {
                "concurrency": list(step.levels),
                "requests": step.requests,
                "warmupRequests": step.warmup,
                "repeats": repeats,
                "order": "Interleaved" if repeats > 1 else "Sequential",
            },
            "startupDeadlineSeconds": STARTUP_DEADLINE_S,
            "results": {"s3": {"bucket": "gpu-check"}},
        },
    }


def _transformers(step: Step, engine: EngineSetup) -> dict[str, Any]:
    environment = {"PYTHONPATH": engine.path, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    threads = ["--threads=1"] if engine.device == "cpu" else []
    return {
        "kind": "transformers",
        "command": [engine.python, "-m", "specbench_client.research"],
        "args": [f"--device={engine.device}", f"--dtype={step.dtype}", *threads],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }


def _llama_cpp(step: Step, engine: EngineSetup) -> dict[str, Any]:
    sizes = [f"--ctx-size={SLOT_TOKENS * max(step.levels)}"]
    where = ["--threads=1"] if engine.device == "cpu" else ["--gpu-layers=999"]
    command = {"command": [engine.llama_server]} if engine.llama_server else {}
    return {"kind": "llama-cpp", **command, "args": [*sizes, *where]}
