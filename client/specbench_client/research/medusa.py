"""Medusa drafting: heads on the target's last hidden state, each of which drafts the token of one further position.

transformers has no such drafter, so the loop is implemented here. The heads' most likely tokens form one chain (no
trees); the target verifies it in one pass and accepts a draft token if it chooses the same token. The answer therefore
has the target's own distribution, greedy or sampled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from specbench_client.research.runtime import BadResearchSetup, GenerationStep, ResearchSettings, TokenIds

FILE = "medusa_lm_head.safetensors"
_LINEAR = re.compile(r"^(\d+)\.(\d+)\.(linear\.)?(weight|bias)$")


@dataclass(frozen=True)
class MedusaLayer:
    """One linear layer of a head. A residual layer adds SiLU of its output to its input; the last one gives logits."""

    weight: Any
    bias: Any
    residual: bool

    def __call__(self, state: Any) -> Any:
        """Apply the layer."""
        out = torch.nn.functional.linear(state, self.weight, self.bias)
        return state + torch.nn.functional.silu(out) if self.residual else out


@dataclass(frozen=True)
class MedusaHeads:
    """The heads, in order of position."""

    layers: tuple[tuple[MedusaLayer, ...], ...]

    def parameters(self) -> Iterator[Any]:
        """Yield all weights and biases, like a torch module."""
        for layer in chain.from_iterable(self.layers):
            yield from (one for one in (layer.weight, layer.bias) if one is not None)

    def draft(self, state: Any, count: int) -> list[int]:
        """Return the most likely tokens of the first `count` heads for a hidden state."""
        drafts = []
        for head in self.layers[:count]:
            out = state
            for layer in head:
                out = layer(out)
            drafts.append(int(out.argmax()))
        return drafts


@dataclass(frozen=True)
class MedusaRequest:
    """A generation: prompt, maximum tokens, end tokens, and the function that chooses a token from logits."""

    prompt: TokenIds
    max_tokens: int
    eos: frozenset[int]
    choose: Callable[[Any], int]


def load_heads(settings: ResearchSettings, model: Any) -> MedusaHeads:
    """Load heads in the layout of Medusa's authors: `HEAD.LAYER.linear.weight` and `.bias`, last `HEAD.LAYER.weight`.

    Raises BadResearchSetup.
    """
    assert settings.drafter_model is not None
    where = f"--drafter-model {settings.drafter_model}"
    try:
        tensors = load_file(_file(settings.drafter_model, settings.drafter_revision))
    except (OSError, SafetensorError, HfHubHTTPError, HFValidationError) as error:
        raise BadResearchSetup(f"{where}: {error}") from error
    heads = _heads({name: one.to(model.device, model.dtype) for name, one in tensors.items()}, where)
    if len(heads) < settings.num_speculative_tokens:
        count = settings.num_speculative_tokens
        raise BadResearchSetup(f"{where}: it has {len(heads)} heads: --num-speculative-tokens {count} is too many")
    return MedusaHeads(heads[: settings.num_speculative_tokens])


def decode(
    model: Any,
    heads: MedusaHeads,
    answer: MedusaRequest,
    emit: Callable[[GenerationStep], None],
    stopped: Callable[[], bool],
) -> None:
    """Draft and verify until the answer ends."""
    cache = transformers.DynamicCache(config=model.config)
    cache.activate_past_recording()
    logits, states = _forward(model, cache, answer.prompt)
    tokens, produced, state = [answer.choose(logits[-1])], 1, states[-1]
    emit(GenerationStep(tuple(tokens)))
    while produced < answer.max_tokens and tokens[-1] not in answer.eos and not stopped():
        drafts = heads.draft(state, answer.max_tokens - produced - 1)
        logits, states = _forward(model, cache, (tokens[-1], *drafts))
        tokens = _verified(drafts, logits, answer)
        accepted = len(tokens) - 1
        emit(GenerationStep(tuple(tokens), len(drafts), accepted))
        cache.crop(accepted - len(drafts))
        produced, state = produced + len(tokens), states[accepted]


def _forward(model: Any, cache: Any, tokens: tuple[int, ...]) -> tuple[Any, Any]:
    """Return logits and last hidden states of these tokens, and add the tokens to the cache."""
    ids = torch.tensor([tokens], device=model.device)
    out = model(ids, past_key_values=cache, use_cache=True, output_hidden_states=True)
    return out.logits[0], out.hidden_states[-1][0]


def _verified(drafts: list[int], logits: Any, answer: MedusaRequest) -> list[int]:
    """Return the target's tokens up to the first that differs from the draft or ends the text."""
    tokens: list[int] = []
    for place in range(len(drafts) + 1):
        tokens.append(answer.choose(logits[place]))
        if place == len(drafts) or tokens[-1] != drafts[place] or tokens[-1] in answer.eos:
            break
    return tokens


def _file(source: str, revision: str | None) -> Path:
    path = Path(source).expanduser()
    if path.exists():
        return path / FILE if path.is_dir() else path
    return Path(hf_hub_download(source, FILE, revision=revision))


def _heads(tensors: dict[str, Any], where: str) -> tuple[tuple[MedusaLayer, ...], ...]:
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for name, tensor in tensors.items():
        match = _LINEAR.match(name)
        if match is None:
            raise BadResearchSetup(f"{where}: unexpected tensor {name!r}: give a file of Medusa heads")
        layer = found.setdefault(int(match[1]), {}).setdefault(int(match[2]), {"residual": bool(match[3])})
        layer[match[4]] = tensor
    if not found or sorted(found) != list(range(len(found))):
        raise BadResearchSetup(f"{where}: heads must be numbered from 0 without gaps, found {sorted(found)}")
    return tuple(_head(found[number], where) for number in range(len(found)))


def _head(layers: dict[int, dict[str, Any]], where: str) -> tuple[MedusaLayer, ...]:
    ordered = [layers[number] for number in sorted(layers)]
    if ordered[-1]["residual"] or any(one["residual"] < two["residual"] for one, two in pairwise(ordered)):
        raise BadResearchSetup(f"{where}: all layers of a head except the last must be residual")
    return tuple(MedusaLayer(one["weight"], one.get("bias"), one["residual"]) for one in ordered)
