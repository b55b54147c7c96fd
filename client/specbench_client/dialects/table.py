"""Which dialect an engine speaks."""

from __future__ import annotations

from specbench_api.spec.engine import DialectName, Engine, EngineKind
from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.llama_cpp import LlamaCppDialect
from specbench_client.dialects.openai_wire import OpenAiDialect
from specbench_client.dialects.vllm_wire import VllmDialect

DIALECTS: dict[EngineKind, Dialect] = {
    EngineKind.SIMULATOR: VllmDialect(EngineKind.SIMULATOR),
    EngineKind.LLAMA_CPP: LlamaCppDialect(),
    EngineKind.EXTERNAL: OpenAiDialect(),
}
BY_NAME: dict[DialectName, Dialect] = {
    DialectName.OPENAI: DIALECTS[EngineKind.EXTERNAL],
    DialectName.VLLM: VllmDialect(EngineKind.EXTERNAL),
    DialectName.LLAMA_CPP: LlamaCppDialect(EngineKind.EXTERNAL),
}


def dialect_of(engine: Engine) -> Dialect:
    """By the engine's kind; of an endpoint that already runs, by its dialect."""
    return BY_NAME[engine.dialect] if engine.dialect is not None else DIALECTS[engine.kind]
