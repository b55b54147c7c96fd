"""Shapes of the models with random weights, and their sizes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MEDUSA_HEADS = 3


@dataclass(frozen=True)
class Shape:
    """Dimensions of a Llama. `draft_layers`: the target's first layers, which are the truncated draft model."""

    name: str
    title: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    draft_layers: int
    build_s: float
    """Estimated seconds to create and save the models."""

    def parameters(self, layers: int | None = None) -> int:
        """Return the number of parameters, with all layers or the first few."""
        pairs = self.hidden // self.heads * self.kv_heads
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * pairs
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden
        return embeddings + (self.layers if layers is None else layers) * layer + self.hidden

    @property
    def medusa_parameters(self) -> int:
        """Parameters of all heads: each has one residual layer and one output layer, as Medusa-1 has."""
        return MEDUSA_HEADS * (self.hidden * self.hidden + self.hidden + self.vocabulary * self.hidden)


LLAMA_1B = Shape(
    "1b", "Llama 3.2 1B", hidden=2048, intermediate=8192, layers=16, heads=32, kv_heads=8, vocabulary=128_256,
    tied=True, draft_layers=4, build_s=40,
)  # fmt: skip
LLAMA_8B = Shape(
    "8b", "Llama 3.1 8B", hidden=4096, intermediate=14_336, layers=32, heads=32, kv_heads=8, vocabulary=128_256,
    tied=False, draft_layers=4, build_s=90,
)  # fmt: skip
SMALL = Shape(
    "small", "a small Llama", hidden=64, intermediate=128, layers=4, heads=4, kv_heads=2, vocabulary=512,
    tied=True, draft_layers=1, build_s=12,
)  # fmt: skip
MEDIUM = Shape(
    "medium", "a medium Llama", hidden=128, intermediate=384, layers=6, heads=8, kv_heads=2, vocabulary=1024,
    tied=False, draft_layers=2, build_s=12,
)  # fmt: skip
