"""Maps engines to their dialects."""

from __future__ import annotations

from specbench_api.spec.engine import DialectName, Engine, EngineKind
from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.llama_cpp import LlamaCppDialect
from specbench_client.dialects.sglang import SglangDialect
from specbench_client.dialects.tensorrt_llm import TensorrtLlmDialect
from specbench_client.dialects.vllm import VllmDialect

DIALECTS: dict[EngineKind, Dialect] = {
    EngineKind.SIMULATOR: VllmDialect(EngineKind.SIMULATOR),
    EngineKind.VLLM: VllmDialect(EngineKind.VLLM),
    EngineKind.SGLANG: SglangDialect(EngineKind.SGLANG),
    EngineKind.TENSORRT_LLM: TensorrtLlmDialect(EngineKind.TENSORRT_LLM),
    EngineKind.LLAMA_CPP: LlamaCppDialect(EngineKind.LLAMA_CPP),
    EngineKind.TRANSFORMERS: VllmDialect(EngineKind.TRANSFORMERS),
    EngineKind.EXTERNAL: Dialect(EngineKind.EXTERNAL),
}
DIALECTS_BY_NAME: dict[DialectName, Dialect] = {
    DialectName.OPENAI: DIALECTS[EngineKind.EXTERNAL],
    DialectName.VLLM: VllmDialect(EngineKind.EXTERNAL),
    DialectName.SGLANG: SglangDialect(EngineKind.EXTERNAL),
    DialectName.TENSORRT_LLM: TensorrtLlmDialect(EngineKind.EXTERNAL),
    DialectName.LLAMA_CPP: LlamaCppDialect(EngineKind.EXTERNAL),
}
"""Dialects of endpoints that already run."""
SIMULATED_DIALECTS_BY_NAME: dict[DialectName, Dialect] = {
    DialectName.VLLM: DIALECTS[EngineKind.SIMULATOR],
    DialectName.SGLANG: SglangDialect(EngineKind.SIMULATOR),
    DialectName.TENSORRT_LLM: TensorrtLlmDialect(EngineKind.SIMULATOR),
}
"""Dialects of the simulator, by the engine that it imitates."""


def dialect_of(engine: Engine) -> Dialect:
    """Return the dialect of an engine: by its `dialect` if it is set, otherwise by its kind."""
    if engine.dialect is None:
        return DIALECTS[engine.kind]
    named = SIMULATED_DIALECTS_BY_NAME if engine.kind is EngineKind.SIMULATOR else DIALECTS_BY_NAME
    return named[engine.dialect]
