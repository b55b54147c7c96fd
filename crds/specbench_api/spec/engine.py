"""`spec.engine`: what serves the target."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, KeyedBy, Rule


class EngineKind(StrEnum):
    """The engines that this version launches. Further kinds come as new values; none is ever renamed."""

    SIMULATOR = "simulator"
    LLAMA_CPP = "llama-cpp"
    EXTERNAL = "external"


class DialectName(StrEnum):
    """What an endpoint that already runs speaks: OpenAI's own fields alone, or those of an engine we know."""

    OPENAI = "openai"
    VLLM = "vllm"
    LLAMA_CPP = "llama-cpp"


class EnvVar(ApiModel):
    """One environment variable of the engine's container or process."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Its value, as it is. Secrets do not belong here: specs are printed."""


Argument = Annotated[str, Field(min_length=1, max_length=1024)]


class Engine(ApiModel):
    """One inference engine, configured alike for every arm but for the drafter."""

    rules: ClassVar = (
        Rule("self.kind == 'external' || !has(self.endpoint)", "engine.endpoint goes with kind external alone"),
        Rule("self.kind == 'external' || !has(self.dialect)", "engine.dialect goes with kind external alone"),
        Rule("self.kind != 'external' || has(self.endpoint)", "engine kind external needs engine.endpoint"),
    )

    kind: EngineKind
    """Which engine: simulator, llama-cpp, or external: an endpoint that already runs (`specbench measure`)."""
    endpoint: Annotated[str, Field(max_length=512, pattern=r"^https?://[^/\s]+(/[^\s]*)?$")] | None = None
    """Kind external: where it listens, without /v1."""
    dialect: DialectName | None = None
    """Kind external: what it speaks. Without it: openai."""
    version: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Version of the engine. It names the default image and is part of every point's identity."""
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image to run instead of the engine's default one."""
    command: Annotated[list[Argument], Field(max_length=16)] | None = None
    """Program to run instead of the image's entry point (or, on this machine, of the engine's own program)."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs over which one copy of the target is split."""
    args: Annotated[list[Argument], Field(max_length=64)] = []
    """Further arguments, forwarded on every arm. One that contradicts a managed flag is an error."""
    env: Annotated[list[EnvVar], Field(max_length=64), KeyedBy("name")] = []
    """Environment of the engine, on every arm."""

    @model_validator(mode="after")
    def _coherent(self) -> Engine:
        external = self.kind is EngineKind.EXTERNAL
        given, spoken = self.endpoint is not None, self.dialect is not None
        holds = (external or not given, external or not spoken, given or not external)
        for rule, kept in zip(self.rules, holds, strict=True):
            if not kept:
                raise ValueError(rule.message)
        return self
