"""client/specbench_client/examples/: copies of the examples that `specbench demo` and `measure` use without a clone."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def files() -> dict[str, str]:
    """File name → text of each copy."""
    names = ("local-llama-cpp.yaml", "demo-prompts.jsonl", "prompts.jsonl")
    return {name: (EXAMPLES / name).read_text(encoding="utf-8") for name in names}
