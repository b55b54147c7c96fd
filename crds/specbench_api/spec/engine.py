"""`spec.engine`: what serves the target."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from specbench_api.model import ApiModel, KeyedBy, Open, Rule, refuse_broken
from specbench_api.spec.address import ADDRESS, flaw_of


class EngineKind(StrEnum):
    """The engines that this version launches. Further kinds come as new values; none is ever renamed."""

    SIMULATOR = "simulator"
    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    LLAMA_CPP = "llama-cpp"
    TRANSFORMERS = "transformers"
    EXTERNAL = "external"


RESEARCH_RUNTIME = "research runtime"
"""Stands in the version that our runtime around transformers tells, so that it is known wherever it is met."""


class DialectName(StrEnum):
    """What an engine speaks: OpenAI's own fields alone, or those of an engine we know."""

    OPENAI = "openai"
    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    LLAMA_CPP = "llama-cpp"


IMITATED = (DialectName.VLLM, DialectName.SGLANG, DialectName.TENSORRT_LLM)
"""What the simulator speaks."""


class Levelling(StrEnum):
    """Whether the known differences between arms beside their drafter are taken away on every arm."""

    ON = "On"
    OFF = "Off"


class EnvVar(ApiModel):
    """One environment variable of the engine's container or process."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Its value, as it is. Secrets do not belong here: specs are printed."""


Argument = Annotated[str, Field(min_length=1, max_length=1024)]
Image = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$")]


class Engine(ApiModel):
    """One inference engine, configured alike for every arm but for the drafter."""

    rules: ClassVar = (
        Rule("self.kind == 'external' || !has(self.endpoint)", "engine.endpoint goes with kind external alone"),
        Rule(
            "self.kind in ['external', 'simulator'] || !has(self.dialect)",
            "engine.dialect goes with kinds external and simulator: every other engine speaks its own",
        ),
        Rule("self.kind != 'external' || has(self.endpoint)", "engine kind external needs engine.endpoint"),
        Rule(
            "self.kind != 'simulator' || !has(self.dialect) || self.dialect in ['vllm', 'sglang', 'tensorrt-llm']",
            "the simulator speaks vllm, sglang and tensorrt-llm",
        ),
    )

    kind: EngineKind
    """Which engine. simulator: ours, of known truth. transformers: a research runtime. external: an endpoint that
    already runs (`specbench measure`)."""
    endpoint: Annotated[str, Field(max_length=512, pattern=ADDRESS)] | None = None
    """Kind external: where it listens, without /v1."""
    dialect: DialectName | None = None
    """What it speaks. Kind external: openai without it. Kind simulator: whose answers it imitates; vllm without it."""
    version: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Version of the engine. It names the default image and is part of every point's identity."""
    image: Image | None = None
    """Image to run instead of the engine's default one."""
    command: Annotated[list[Argument], Field(max_length=16)] | None = None
    """Program to run instead of the image's entry point (or, on this machine, of the engine's own program)."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs over which one copy of the target is split."""
    args: Annotated[list[Argument], Field(max_length=64)] = []
    """Further arguments, forwarded on every arm. One that contradicts a managed flag is an error."""
    config: Annotated[dict[str, Any], Field(max_length=64), Open()] = {}
    """Kind tensorrt-llm: further keys of its configuration file. One that contradicts a managed key is an error."""
    levelling: Levelling = Levelling.ON
    """On: what would differ between arms beside the drafter is set alike on every arm (docs/engines.md lists it). CUDA
    graphs, continuous batching and chunked prefill are never touched. Off: the engine's own defaults."""
    env: Annotated[list[EnvVar], Field(max_length=64), KeyedBy("name")] = []
    """Environment of the engine, on every arm."""

    @field_validator("endpoint", mode="before")
    @classmethod
    def _address(cls, given: Any) -> Any:
        """Say in words what the pattern says; the value is not repeated, since it may hold a password."""
        flaw = flaw_of(given) if isinstance(given, str) else None
        if flaw is not None:
            raise ValueError(str(flaw))
        return given

    @model_validator(mode="after")
    def _coherent(self) -> Engine:
        external, simulated = self.kind is EngineKind.EXTERNAL, self.kind is EngineKind.SIMULATOR
        given, spoken = self.endpoint is not None, self.dialect is not None
        holds = (
            external or not given,
            external or simulated or not spoken,
            given or not external,
            not (simulated and spoken) or self.dialect in IMITATED,
        )
        refuse_broken(self.rules, holds)
        return self
