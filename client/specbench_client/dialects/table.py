"""Which dialect belongs to which engine kind."""

from __future__ import annotations

from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.llama_cpp import LlamaCppDialect
from specbench_client.dialects.vllm_wire import VllmDialect

DIALECTS: dict[EngineKind, Dialect] = {
    EngineKind.SIMULATOR: VllmDialect(EngineKind.SIMULATOR),
    EngineKind.LLAMA_CPP: LlamaCppDialect(),
}
