"""What can be seen of an engine's launch: each fact's name, its unit, what it means, and how launches compare in it.

The names are those of provenance.json. docs/provenance.md is printed from this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FactName(StrEnum):
    """Every fact has a name, whether it was seen or not."""

    ENGINE_VERSION = "engine_version"
    MODEL = "model"
    ARGUMENTS = "arguments"
    DTYPE = "dtype"
    QUANTIZATION = "quantization"
    KV_CACHE_DTYPE = "kv_cache_dtype"
    MAX_MODEL_LEN = "max_model_len"
    MAX_RUNNING_REQUESTS = "max_running_requests"
    PREFIX_CACHE = "prefix_cache"
    CUDA_GRAPHS = "cuda_graphs"
    CHUNKED_PREFILL = "chunked_prefill"
    ATTENTION_BACKEND = "attention_backend"
    TORCH = "torch"
    CUDA = "cuda"
    DRAFTER_AT_WORK = "drafter_at_work"
    DRAFTER_VOCABULARY = "drafter_vocabulary"
    WEIGHTS_BYTES = "weights_bytes"
    DRAFTER_WEIGHTS_BYTES = "drafter_weights_bytes"
    KV_CACHE_TOKENS = "kv_cache_tokens"
    KV_CACHE_BYTES = "kv_cache_bytes"
    KV_BYTES_PER_TOKEN = "kv_bytes_per_token"  # noqa: S105 -- no such token
    GPU_MEMORY_USED_BYTES = "gpu_memory_used_bytes"
    STEP_SPLIT_MS = "step_split_ms"
    DRAFT_TO_TARGET_RATIO = "draft_to_target_ratio"
    COMMAND = "command"
    IMAGE = "image"
    IMAGE_DIGEST = "image_digest"
    NODE = "node"
    STARTED = "started"
    GPU = "gpu"
    GPU_COUNT = "gpu_count"
    GPU_MEMORY_BYTES = "gpu_memory_bytes"
    INTERCONNECT = "interconnect"
    DRIVER = "driver"
    DRIVER_CUDA = "driver_cuda"
    CPU = "cpu"
    CORES = "cores"
    MEMORY_BYTES = "memory_bytes"
    KERNEL = "kernel"
    KUBELET = "kubelet"


class Alike(StrEnum):
    """What it means when two launches of one run differ in a fact."""

    MUST = "must"
    """More than the drafter differs: the comparison is doubted."""
    NOTED = "noted"
    """It is said: the same kind of machine may have two names."""
    BY_KEY = "by key"
    """Each key is compared and said; those of speculation and of this very process are not."""
    FREE = "free"
    """Nothing: a drafter changes it, or every launch has its own."""


class Told(StrEnum):
    """Who can tell a fact."""

    ENGINE = "engine"
    """The engine itself, over HTTP."""
    PLACE = "place"
    """Whoever started it: the operator, or this machine."""


@dataclass(frozen=True, slots=True)
class AboutFact:
    """One row of the table. `unit`: empty where the value is no quantity."""

    told: Told
    alike: Alike
    meaning: str
    unit: str = ""


FACTS: dict[FactName, AboutFact] = {
    FactName.ENGINE_VERSION: AboutFact(Told.ENGINE, Alike.MUST, "The engine's version."),
    FactName.MODEL: AboutFact(Told.ENGINE, Alike.MUST, "The model that it loaded: a name or a path."),
    FactName.ARGUMENTS: AboutFact(Told.ENGINE, Alike.BY_KEY, "Its arguments as they took effect, without secrets."),
    FactName.DTYPE: AboutFact(Told.ENGINE, Alike.MUST, "Number format of the weights as they are computed with."),
    FactName.QUANTIZATION: AboutFact(Told.ENGINE, Alike.MUST, "How the weights are quantised; `none` if they are not."),
    FactName.KV_CACHE_DTYPE: AboutFact(Told.ENGINE, Alike.MUST, "Number format of the KV cache; `auto`: the model's."),
    FactName.MAX_MODEL_LEN: AboutFact(Told.ENGINE, Alike.MUST, "Most tokens of prompt and answer together.", "tokens"),
    FactName.MAX_RUNNING_REQUESTS: AboutFact(
        Told.ENGINE, Alike.MUST, "Most requests that it computes at once; the others wait.", "requests"
    ),
    FactName.PREFIX_CACHE: AboutFact(Told.ENGINE, Alike.MUST, "Whether it keeps the KV cache of prompts it has seen."),
    FactName.CUDA_GRAPHS: AboutFact(Told.ENGINE, Alike.MUST, "Whether, or how, its steps are CUDA graphs."),
    FactName.CHUNKED_PREFILL: AboutFact(
        Told.ENGINE, Alike.MUST, "Tokens of a prompt that one step reads at most; -1: prompts are not cut.", "tokens"
    ),
    FactName.ATTENTION_BACKEND: AboutFact(Told.ENGINE, Alike.MUST, "The kernels that compute attention."),
    FactName.TORCH: AboutFact(Told.ENGINE, Alike.MUST, "Version of PyTorch."),
    FactName.CUDA: AboutFact(Told.ENGINE, Alike.MUST, "CUDA that PyTorch was built for; `none` for a CPU build."),
    FactName.DRAFTER_AT_WORK: AboutFact(Told.ENGINE, Alike.FREE, "Whether it really has a drafter."),
    FactName.DRAFTER_VOCABULARY: AboutFact(Told.ENGINE, Alike.FREE, "Tokens that the drafter can propose.", "tokens"),
    FactName.WEIGHTS_BYTES: AboutFact(Told.ENGINE, Alike.FREE, "The target's weights in memory, on one GPU.", "bytes"),
    FactName.DRAFTER_WEIGHTS_BYTES: AboutFact(
        Told.ENGINE, Alike.FREE, "The drafter's weights in memory, on one GPU; 0: it has none of its own.", "bytes"
    ),
    FactName.KV_CACHE_TOKENS: AboutFact(
        Told.ENGINE, Alike.FREE, "Tokens of all requests together that its KV cache holds.", "tokens"
    ),
    FactName.KV_CACHE_BYTES: AboutFact(Told.ENGINE, Alike.FREE, "Memory of its KV cache, on one GPU.", "bytes"),
    FactName.KV_BYTES_PER_TOKEN: AboutFact(
        Told.ENGINE, Alike.FREE, "KV cache that one token takes, on one GPU.", "bytes"
    ),
    FactName.GPU_MEMORY_USED_BYTES: AboutFact(
        Told.ENGINE, Alike.FREE, "GPU memory that it has taken before the first point.", "bytes"
    ),
    FactName.STEP_SPLIT_MS: AboutFact(
        Told.ENGINE, Alike.FREE, "Time of a step by draft, verify, sample and overhead.", "ms"
    ),
    FactName.DRAFT_TO_TARGET_RATIO: AboutFact(
        Told.ENGINE, Alike.FREE, "One forward pass of the drafter over one of the target.", "ratio"
    ),
    FactName.COMMAND: AboutFact(Told.PLACE, Alike.FREE, "Program and arguments that it was started with."),
    FactName.IMAGE: AboutFact(Told.PLACE, Alike.MUST, "The image that was asked for."),
    FactName.IMAGE_DIGEST: AboutFact(Told.PLACE, Alike.MUST, "The image that runs, by its digest."),
    FactName.NODE: AboutFact(Told.PLACE, Alike.NOTED, "The node, or this machine's name."),
    FactName.STARTED: AboutFact(Told.PLACE, Alike.FREE, "When the engine's container or process started."),
    FactName.GPU: AboutFact(Told.PLACE, Alike.MUST, "The GPUs' product."),
    FactName.GPU_COUNT: AboutFact(Told.PLACE, Alike.MUST, "GPUs that were given to it.", "GPUs"),
    FactName.GPU_MEMORY_BYTES: AboutFact(Told.PLACE, Alike.MUST, "Memory of one GPU.", "bytes"),
    FactName.INTERCONNECT: AboutFact(Told.PLACE, Alike.MUST, "How its GPUs are connected, as `nvidia-smi topo` says."),
    FactName.DRIVER: AboutFact(Told.PLACE, Alike.MUST, "Version of the GPUs' driver."),
    FactName.DRIVER_CUDA: AboutFact(Told.PLACE, Alike.MUST, "Newest CUDA that the driver can do."),
    FactName.CPU: AboutFact(Told.PLACE, Alike.MUST, "The processor's model."),
    FactName.CORES: AboutFact(Told.PLACE, Alike.MUST, "Logical processors of the machine.", "cores"),
    FactName.MEMORY_BYTES: AboutFact(Told.PLACE, Alike.FREE, "The machine's memory.", "bytes"),
    FactName.KERNEL: AboutFact(Told.PLACE, Alike.NOTED, "The machine's kernel."),
    FactName.KUBELET: AboutFact(Told.PLACE, Alike.NOTED, "Version of the node's kubelet."),
}
