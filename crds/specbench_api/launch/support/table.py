"""The whole table, and what it says of one release."""

from __future__ import annotations

from dataclasses import replace

from specbench_api.launch.support import external, llama_cpp, sglang, simulator, tensorrt_llm, transformers, vllm
from specbench_api.launch.support.cell import Cell, Cells
from specbench_api.spec.drafter import Method
from specbench_api.spec.engine import EngineKind

ENGINES: dict[EngineKind, Cells] = {
    EngineKind.SIMULATOR: simulator.CELLS,
    EngineKind.VLLM: vllm.CELLS,
    EngineKind.SGLANG: sglang.CELLS,
    EngineKind.TENSORRT_LLM: tensorrt_llm.CELLS,
    EngineKind.LLAMA_CPP: llama_cpp.CELLS,
    EngineKind.TRANSFORMERS: transformers.CELLS,
    EngineKind.EXTERNAL: external.CELLS,
}
CELLS: dict[tuple[EngineKind, Method], Cell] = {
    (kind, method): cells[method] for kind, cells in ENGINES.items() for method in Method
}

RELEASES: dict[EngineKind, str] = {EngineKind.VLLM: vllm.RELEASE}
"""What is launched where the spec names no version: of engines that have lost methods between releases."""


def cell(kind: EngineKind, method: Method, version: str | None = None) -> Cell:
    """The pair's cell, as far as a release has it. Every pair has one: a test walks the whole table."""
    found = CELLS[kind, method]
    if found.has(version):
        return found
    why = found.how if not found.supported else f"{kind} {version} has no {method}: releases {found.versions} have"
    return replace(found, supported=False, how=why)
