"""Which dialect an engine speaks."""

from __future__ import annotations

from specbench_api.spec.engine import DialectName, Engine, EngineKind
from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.llama_cpp import LlamaCppDialect
from specbench_client.dialects.openai_wire import OpenAiDialect
from specbench_client.dialects.sglang import SglangDialect
from specbench_client.dialects.tensorrt_llm import TensorrtLlmDialect
from specbench_client.dialects.vllm_wire import VllmDialect

DIALECTS: dict[EngineKind, Dialect] = {
    EngineKind.SIMULATOR: VllmDialect(EngineKind.SIMULATOR),
    EngineKind.VLLM: VllmDialect(EngineKind.VLLM),
    EngineKind.SGLANG: SglangDialect(),
    EngineKind.TENSORRT_LLM: TensorrtLlmDialect(),
    EngineKind.LLAMA_CPP: LlamaCppDialect(),
    EngineKind.TRANSFORMERS: VllmDialect(EngineKind.TRANSFORMERS),
    EngineKind.EXTERNAL: OpenAiDialect(),
}
BY_NAME: dict[DialectName, Dialect] = {
    DialectName.OPENAI: DIALECTS[EngineKind.EXTERNAL],
    DialectName.VLLM: VllmDialect(EngineKind.EXTERNAL),
    DialectName.SGLANG: SglangDialect(EngineKind.EXTERNAL),
    DialectName.TENSORRT_LLM: TensorrtLlmDialect(EngineKind.EXTERNAL),
    DialectName.LLAMA_CPP: LlamaCppDialect(EngineKind.EXTERNAL),
}
"""Of an endpoint that already runs."""
IMITATED_BY_NAME: dict[DialectName, Dialect] = {
    DialectName.VLLM: DIALECTS[EngineKind.SIMULATOR],
    DialectName.SGLANG: SglangDialect(EngineKind.SIMULATOR),
    DialectName.TENSORRT_LLM: TensorrtLlmDialect(EngineKind.SIMULATOR),
}
"""Of the simulator, by whose answers it imitates."""


def dialect_of(engine: Engine) -> Dialect:
    """By the engine's kind; of an endpoint that already runs, and of the simulator, by its dialect."""
    if engine.dialect is None:
        return DIALECTS[engine.kind]
    named = IMITATED_BY_NAME if engine.kind is EngineKind.SIMULATOR else BY_NAME
    return named[engine.dialect]
