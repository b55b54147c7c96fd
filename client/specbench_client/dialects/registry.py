"""Maps engines to their dialects."""

from __future__ import annotations

from specbench_api.spec.engine import DialectName, Engine, EngineKind
from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.llama_cpp import LlamaCppDialect
from specbench_client.dialects.sglang import SglangDialect
from specbench_client.dialects.tensorrt_llm import TensorrtLlmDialect
from specbench_client.dialects.vllm import ResearchDialect, VllmDialect

DIALECTS_BY_NAME: dict[DialectName, Dialect] = {
    DialectName.OPENAI: Dialect(),
    DialectName.VLLM: VllmDialect(),
    DialectName.SGLANG: SglangDialect(),
    DialectName.TENSORRT_LLM: TensorrtLlmDialect(),
    DialectName.LLAMA_CPP: LlamaCppDialect(),
}
DIALECTS: dict[EngineKind, Dialect] = {
    EngineKind.SIMULATOR: DIALECTS_BY_NAME[DialectName.VLLM],
    EngineKind.VLLM: DIALECTS_BY_NAME[DialectName.VLLM],
    EngineKind.SGLANG: DIALECTS_BY_NAME[DialectName.SGLANG],
    EngineKind.TENSORRT_LLM: DIALECTS_BY_NAME[DialectName.TENSORRT_LLM],
    EngineKind.LLAMA_CPP: DIALECTS_BY_NAME[DialectName.LLAMA_CPP],
    EngineKind.TRANSFORMERS: ResearchDialect(),
    EngineKind.EXTERNAL: DIALECTS_BY_NAME[DialectName.OPENAI],
}
"""The dialect of an engine whose `dialect` is not set."""


def dialect_of(engine: Engine) -> Dialect:
    """Return the dialect of an engine: by its `dialect` if it is set, otherwise by its kind."""
    return DIALECTS[engine.kind] if engine.dialect is None else DIALECTS_BY_NAME[engine.dialect]
