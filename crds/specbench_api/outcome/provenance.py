"""Facts about the launch of an engine: name, unit, meaning, and whether launches must agree in them.

The names are the keys of provenance.json. Output of `nvidia-smi`, from this machine or from an engine's pod, is parsed
here too. docs/reference/provenance.md is generated from this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import JsonValue, field_validator, model_serializer, model_validator

from specbench_api.api_model import ApiModel, Names


class FactName(Names):
    """Names of all facts. Every launch record has an entry for each, known or not."""

    ENGINE_VERSION = "engine_version"
    MODEL = "model"
    SERVED_BY = "served_by"
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
    DRAFT_SAMPLING = "draft_sampling"
    DRAFT_VERIFICATION = "draft_verification"
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


class FactComparability(StrEnum):
    """What it means if two launches of one run differ in a fact."""

    MUST = "must"
    """More than the drafter differs: the comparison is not trustworthy."""
    NOTED = "noted"
    """The difference is reported only: two nodes of the same kind, or two drafters, may differ in it."""
    BY_KEY = "by key"
    """Each key is compared and reported, except those of speculation and of the process itself."""
    FREE = "free"
    """Not compared: the drafter changes it, or every launch has its own value."""


class FactSource(StrEnum):
    """Who can report a fact."""

    ENGINE = "engine"
    """The engine itself, over HTTP."""
    HOST = "host"
    """Whoever started the engine: the operator, or `specbench run`."""


@dataclass(frozen=True, slots=True)
class FactDefinition:
    """One row of the table: who reports the fact, how launches compare in it, its meaning and its unit.

    `unit` is empty if the value is not a quantity.
    """

    source: FactSource
    comparability: FactComparability
    meaning: str
    unit: str = ""


FACTS: dict[FactName, FactDefinition] = {
    FactName.ENGINE_VERSION: FactDefinition(FactSource.ENGINE, FactComparability.MUST, "The engine's version."),
    FactName.MODEL: FactDefinition(
        FactSource.ENGINE, FactComparability.MUST, "The model that the engine loaded: a name or a path."
    ),
    FactName.SERVED_BY: FactDefinition(
        FactSource.ENGINE,
        FactComparability.FREE,
        "Model and `system_fingerprint` in the first answer; compared between the turns of a running server.",
    ),
    FactName.ARGUMENTS: FactDefinition(
        FactSource.ENGINE, FactComparability.BY_KEY, "The engine's effective arguments, without secrets."
    ),
    FactName.DTYPE: FactDefinition(
        FactSource.ENGINE, FactComparability.MUST, "Number format that the model computes in."
    ),
    FactName.QUANTIZATION: FactDefinition(
        FactSource.ENGINE, FactComparability.MUST, "How the weights are quantised; `none` if they are not."
    ),
    FactName.KV_CACHE_DTYPE: FactDefinition(
        FactSource.ENGINE, FactComparability.MUST, "Number format of the KV cache; `auto` is that of the model."
    ),
    FactName.MAX_MODEL_LEN: FactDefinition(
        FactSource.ENGINE, FactComparability.MUST, "Maximum tokens of prompt and answer together.", "tokens"
    ),
    FactName.MAX_RUNNING_REQUESTS: FactDefinition(
        FactSource.ENGINE,
        FactComparability.MUST,
        "Maximum requests processed at once; others wait.",
        "requests",
    ),
    FactName.PREFIX_CACHE: FactDefinition(
        FactSource.ENGINE, FactComparability.MUST, "Whether the engine reuses the KV cache of earlier prompts."
    ),
    FactName.CUDA_GRAPHS: FactDefinition(
        FactSource.ENGINE, FactComparability.MUST, "Whether, and in which mode, steps run as CUDA graphs."
    ),
    FactName.CHUNKED_PREFILL: FactDefinition(
        FactSource.ENGINE,
        FactComparability.MUST,
        "Maximum prompt tokens per step; -1: prompts are not split.",
        "tokens",
    ),
    FactName.ATTENTION_BACKEND: FactDefinition(
        FactSource.ENGINE, FactComparability.MUST, "Kernels that compute attention."
    ),
    FactName.TORCH: FactDefinition(FactSource.ENGINE, FactComparability.MUST, "Version of PyTorch."),
    FactName.CUDA: FactDefinition(
        FactSource.ENGINE, FactComparability.MUST, "CUDA version that PyTorch was built for; `none` for a CPU build."
    ),
    FactName.DRAFTER_AT_WORK: FactDefinition(
        FactSource.ENGINE, FactComparability.FREE, "Whether the engine has loaded a drafter."
    ),
    FactName.DRAFTER_VOCABULARY: FactDefinition(
        FactSource.ENGINE, FactComparability.FREE, "Tokens that the drafter can propose.", "tokens"
    ),
    FactName.WEIGHTS_BYTES: FactDefinition(
        FactSource.ENGINE, FactComparability.FREE, "Memory of the target's weights, on one GPU.", "bytes"
    ),
    FactName.DRAFTER_WEIGHTS_BYTES: FactDefinition(
        FactSource.ENGINE,
        FactComparability.FREE,
        "Memory of the drafter's weights, on one GPU; 0: it has no weights.",
        "bytes",
    ),
    FactName.KV_CACHE_TOKENS: FactDefinition(
        FactSource.ENGINE, FactComparability.FREE, "Capacity of the KV cache, over all requests.", "tokens"
    ),
    FactName.KV_CACHE_BYTES: FactDefinition(
        FactSource.ENGINE, FactComparability.FREE, "Memory of the KV cache, on one GPU.", "bytes"
    ),
    FactName.KV_BYTES_PER_TOKEN: FactDefinition(
        FactSource.ENGINE, FactComparability.FREE, "KV cache per token, on one GPU.", "bytes"
    ),
    FactName.GPU_MEMORY_USED_BYTES: FactDefinition(
        FactSource.ENGINE, FactComparability.FREE, "GPU memory in use before the first point.", "bytes"
    ),
    FactName.DRAFT_SAMPLING: FactDefinition(
        FactSource.HOST,
        FactComparability.NOTED,
        "How draft tokens are chosen above temperature 0, by an option or the default of the release in its source.",
    ),
    FactName.DRAFT_VERIFICATION: FactDefinition(
        FactSource.HOST,
        FactComparability.NOTED,
        "The rule by which draft tokens are accepted above temperature 0, like `draft_sampling`.",
    ),
    FactName.COMMAND: FactDefinition(
        FactSource.HOST, FactComparability.FREE, "Program and arguments that the engine was started with."
    ),
    FactName.IMAGE: FactDefinition(FactSource.HOST, FactComparability.MUST, "The requested image."),
    FactName.IMAGE_DIGEST: FactDefinition(FactSource.HOST, FactComparability.MUST, "Digest of the running image."),
    FactName.NODE: FactDefinition(FactSource.HOST, FactComparability.NOTED, "Name of the node or machine."),
    FactName.STARTED: FactDefinition(
        FactSource.HOST, FactComparability.FREE, "When the engine's container or process started."
    ),
    FactName.GPU: FactDefinition(FactSource.HOST, FactComparability.MUST, "Product name of the GPUs."),
    FactName.GPU_COUNT: FactDefinition(FactSource.HOST, FactComparability.MUST, "Number of the engine's GPUs.", "GPUs"),
    FactName.GPU_MEMORY_BYTES: FactDefinition(FactSource.HOST, FactComparability.MUST, "Memory of one GPU.", "bytes"),
    FactName.INTERCONNECT: FactDefinition(
        FactSource.HOST, FactComparability.MUST, "How the GPUs are connected, as reported by `nvidia-smi topo`."
    ),
    FactName.DRIVER: FactDefinition(FactSource.HOST, FactComparability.MUST, "Version of the GPU driver."),
    FactName.DRIVER_CUDA: FactDefinition(
        FactSource.HOST, FactComparability.MUST, "Newest CUDA version that the driver supports."
    ),
    FactName.CPU: FactDefinition(FactSource.HOST, FactComparability.MUST, "Model of the processor."),
    FactName.CORES: FactDefinition(
        FactSource.HOST, FactComparability.MUST, "Logical processors of the machine.", "cores"
    ),
    FactName.MEMORY_BYTES: FactDefinition(FactSource.HOST, FactComparability.FREE, "Memory of the machine.", "bytes"),
    FactName.KERNEL: FactDefinition(FactSource.HOST, FactComparability.NOTED, "Version of the machine's kernel."),
    FactName.KUBELET: FactDefinition(FactSource.HOST, FactComparability.NOTED, "Version of the node's kubelet."),
}


# A launch record contains every fact, each with its source or with the reason why it is unknown. There are two sources.
# The engine is queried over HTTP once, after its first completion and before the first point. Whoever started it
# reports where it runs: the operator passes this to the client Job, and `specbench run` inspects this machine.


_QUOTED = 200
"""Maximum number of characters that a reason quotes."""


class Fact(ApiModel):
    """A fact: `{value, source}` if it is known, `{value: null, reason}` if not."""

    value: JsonValue = None
    """The observed value; null if unknown."""
    source: str | None = None
    """Who reported it, and in which field."""
    reason: str | None = None
    """Why it is unknown."""

    @property
    def number(self) -> float | None:
        """The value if it is a number, else None."""
        return self.value if isinstance(self.value, int | float) and not isinstance(self.value, bool) else None

    @classmethod
    def observed(cls, value: JsonValue, source: str) -> Self:
        """A fact with its witness."""
        return cls(value=value, source=source)

    @classmethod
    def unknown(cls, reason: str) -> Self:
        """Return an unknown fact."""
        return cls(reason=reason)

    @classmethod
    def unread(cls, output: str, source: str) -> Self:
        """Return an unknown fact whose reason quotes the output of a program that does not contain it."""
        return cls.unknown(f"{source} reports none: {' '.join(output.split())[:_QUOTED] or 'its output is empty'}")

    @classmethod
    def of(cls, value: JsonValue, source: str, missing: str) -> Self:
        """Return a known fact, or an unknown one with the reason `missing` if the value is empty."""
        return cls.unknown(missing) if value in (None, "", []) else cls.observed(value, source)

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.value is None) != (self.reason is not None) or (self.value is None) != (self.source is None):
            raise ValueError("a fact needs either value and source, or reason: remove the others")
        return self

    @model_serializer(mode="plain")
    def _with_value(self) -> dict[str, Any]:
        """Serialise `value` even if it is null, so that an unknown fact is explicit."""
        return {"value": self.value, **({"reason": self.reason} if self.value is None else {"source": self.source})}


Facts = Mapping[FactName, Fact]
HOST_FACTS_VARIABLE = "SPECBENCH_HOST_FACTS"
"""Environment variable of a client with the HostFacts of its engine."""


class HostFacts(ApiModel):
    """Where an engine runs, as reported by whoever started it."""

    facts: dict[FactName, Fact] = {}
    """The known facts."""
    unknown_reason: str = "it was not reported where the engine runs"
    """Why the host's other facts are unknown."""

    @field_validator("facts", mode="before")
    @classmethod
    def _without_later_facts(cls, facts: Any) -> Any:
        """Leave out facts that this version does not know: the operator may be newer than the client of a run."""
        known = FactName.__members__.values()
        return {name: fact for name, fact in facts.items() if name in known} if isinstance(facts, dict) else facts

    def value(self, name: FactName) -> JsonValue:
        """Return the value of a fact, or None if it is unknown."""
        return _value(self.facts, name)

    def to_line(self) -> str:
        """Return the facts as one line of JSON for a pod's environment, in which Kubernetes would expand `$(NAME)`."""
        return self.model_dump_json(by_alias=True).replace("$", "\\u0024")


ENDPOINT_WHEREABOUTS = HostFacts(unknown_reason="the endpoint was not started by specbench, so its machine is unknown")


class LaunchRecord(ApiModel):
    """The facts of one launch. Every fact has an entry, known or not."""

    schema_version: Literal["specbench.io/launch/v1"] = "specbench.io/launch/v1"
    """Version of this document."""
    launch: str
    """The launch, as group-attempt; the manifests of its points refer to it."""
    group: int
    """Index of the engine group."""
    arm: str
    """Name of the arm."""
    simulated: bool
    """Whether the engine was the simulator, whose facts are made up."""
    queried_at: str
    """When the engine was queried, RFC 3339."""
    facts: dict[FactName, Fact]
    """Facts by name: see docs/reference/provenance.md."""

    def value(self, name: FactName) -> JsonValue:
        """Return the value of a fact, or None if it is unknown."""
        return _value(self.facts, name)


def merge_facts(engine: Facts, host: HostFacts, engine_reason: str) -> dict[FactName, Fact]:
    """Return every fact, from the first source that has it, or with the reasons of all of them.

    The engine takes precedence over the host, because it is closer to what was measured. `engine_reason`: why the
    engine reports no further facts.
    """
    reasons = {FactSource.ENGINE: engine_reason, FactSource.HOST: host.unknown_reason}
    return {name: _first(name, (engine, host.facts), reasons[row.source]) for name, row in FACTS.items()}


def _value(facts: Facts, name: FactName) -> JsonValue:
    return facts[name].value if name in facts else None


def _first(name: FactName, sources: tuple[Facts, ...], otherwise: str) -> Fact:
    reported = [source[name] for source in sources if name in source]
    known = next((fact for fact in reported if fact.value is not None), None)
    reasons = dict.fromkeys(fact.reason for fact in reported if fact.reason)
    return known or Fact.unknown("; ".join(reasons) or otherwise)


GPUS = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
"""Command that prints name, memory in MiB and driver, one line per GPU: input of `gpu_facts`."""
TOPOLOGY = ("nvidia-smi", "topo", "-m")
"""Command that prints the matrix of links: input of `links_fact`."""
SUMMARY = ("nvidia-smi",)
"""Command that prints the overview, the only output with the driver's CUDA version: input of `cuda_fact`."""
OF_GPUS = (FactName.GPU, FactName.GPU_COUNT, FactName.GPU_MEMORY_BYTES, FactName.DRIVER)
"""The facts that `gpu_facts` returns."""
_MIB = 1 << 20
_CUDA = re.compile(r"CUDA Version: *([\d.]+)")
_STYLE = re.compile(r"\x1b\[[\d;]*m")
"""Terminal escape sequences: `nvidia-smi topo` underlines its header even without a terminal."""


def gpu_facts(rows: str, source: str) -> dict[FactName, Fact]:
    """Return the facts in OF_GPUS for all GPUs together. If the products differ, all are listed."""
    split = [[cell.strip() for cell in line.split(",")] for line in rows.splitlines()]
    cells = [row for row in split if len(row) == 3]  # skips warnings printed before the rows
    if not cells:
        return dict.fromkeys(OF_GPUS, Fact.unread(rows, source))
    products, memories, drivers = (list(dict.fromkeys(column)) for column in zip(*cells, strict=True))
    memory = int(memories[0]) * _MIB if len(memories) == 1 and memories[0].isdecimal() else None
    values: tuple[JsonValue, ...] = (" and ".join(products), len(cells), memory, " and ".join(drivers))
    unread = Fact.unknown(f"{source}: the GPUs differ in it, or do not report it")
    return {
        name: unread if value is None else Fact.observed(value, source)
        for name, value in zip(OF_GPUS, values, strict=True)
    }


def cuda_fact(summary: str, source: str) -> Fact:
    """Return the newest CUDA version that the driver supports."""
    found = _CUDA.search(summary)
    return Fact.observed(found[1], source) if found else Fact.unread(summary, source)


def links_fact(matrix: str, source: str) -> Fact:
    """Return the kinds of links between GPUs: `NV18`; several are listed; `none` for one GPU."""
    rows = [_STYLE.sub("", line).split() for line in matrix.splitlines()]
    head = next((row for row in rows if row and row[0] == "GPU0"), [])
    count = next((index for index, name in enumerate(head) if not name.startswith("GPU")), len(head))
    gpus = [row[1 : count + 1] for row in rows if row and row[0].startswith("GPU") and "X" in row]
    if not gpus:
        return Fact.unread(matrix, source)
    kinds = dict.fromkeys(kind for row in gpus for kind in row if kind != "X")
    return Fact.observed(", ".join(kinds) or "none", source)
