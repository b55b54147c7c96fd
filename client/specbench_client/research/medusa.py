"""Medusa: heads on the target's last hidden state, each of which drafts the token one place further on.

transformers has no such drafter, so the loop is ours. The heads' first choices form one chain (Medusa's trees are not
built); the target verifies it in one pass, and a draft is accepted where it is the token that the target chooses there.
So the answer's distribution is the target's own, greedy or drawn.
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

from specbench_client.research.errors import BadSetup
from specbench_client.research.runtime import Step, Tokens
from specbench_client.research.settings import Settings

FILE = "medusa_lm_head.safetensors"
_LINEAR = re.compile(r"^(\d+)\.(\d+)\.(linear\.)?(weight|bias)$")


@dataclass(frozen=True)
class Layer:
    """One linear layer of a head. A residual one adds SiLU of itself to what it reads; the last gives logits."""

    weight: Any
    bias: Any
    residual: bool

    def __call__(self, state: Any) -> Any:
        """Apply it."""
        out = torch.nn.functional.linear(state, self.weight, self.bias)
        return state + torch.nn.functional.silu(out) if self.residual else out


@dataclass(frozen=True)
class Heads:
    """The heads, nearest token first."""

    layers: tuple[tuple[Layer, ...], ...]

    def parameters(self) -> Iterator[Any]:
        """Their weights and biases, as a module of torch gives its own."""
        for layer in chain.from_iterable(self.layers):
            yield from (one for one in (layer.weight, layer.bias) if one is not None)

    def draft(self, state: Any, count: int) -> list[int]:
        """The first choices of the first `count` heads for a hidden state."""
        drafts = []
        for head in self.layers[:count]:
            out = state
            for layer in head:
                out = layer(out)
            drafts.append(int(out.argmax()))
        return drafts


@dataclass(frozen=True)
class Answer:
    """What is to be decoded: after which tokens, how many at most, what ends it, how a token is chosen from logits."""

    prompt: Tokens
    max_tokens: int
    eos: frozenset[int]
    choose: Callable[[Any], int]


def load_heads(settings: Settings, model: Any) -> Heads:
    """Read heads in the layout of Medusa's authors: `HEAD.LAYER.linear.weight` and `.bias`, last `HEAD.LAYER.weight`.

    Raises BadSetup.
    """
    assert settings.drafter_model is not None
    where = f"--drafter-model {settings.drafter_model}"
    try:
        tensors = load_file(_file(settings.drafter_model, settings.drafter_revision))
    except (OSError, SafetensorError, HfHubHTTPError, HFValidationError) as error:
        raise BadSetup(f"{where}: {error}") from error
    heads = _heads({name: one.to(model.device, model.dtype) for name, one in tensors.items()}, where)
    if len(heads) < settings.num_speculative_tokens:
        asked = settings.num_speculative_tokens
        raise BadSetup(f"{where}: it has {len(heads)} heads: --num-speculative-tokens {asked} is too many")
    return Heads(heads[: settings.num_speculative_tokens])


def decode(
    model: Any,
    heads: Heads,
    answer: Answer,
    emit: Callable[[Step], None],
    stopped: Callable[[], bool],
) -> None:
    """Draft and verify until the answer ends."""
    cache = transformers.DynamicCache(config=model.config)
    cache.activate_past_recording()
    logits, states = _forward(model, cache, answer.prompt)
    tokens, produced, state = [answer.choose(logits[-1])], 1, states[-1]
    emit(Step(tuple(tokens)))
    while produced < answer.max_tokens and tokens[-1] not in answer.eos and not stopped():
        drafts = heads.draft(state, answer.max_tokens - produced - 1)
        logits, states = _forward(model, cache, (tokens[-1], *drafts))
        tokens = _verified(drafts, logits, answer)
        accepted = len(tokens) - 1
        emit(Step(tuple(tokens), len(drafts), accepted))
        cache.crop(accepted - len(drafts))
        produced, state = produced + len(tokens), states[accepted]


def _forward(model: Any, cache: Any, tokens: tuple[int, ...]) -> tuple[Any, Any]:
    """Logits and last hidden states of these tokens, which the cache then holds."""
    ids = torch.tensor([tokens], device=model.device)
    out = model(ids, past_key_values=cache, use_cache=True, output_hidden_states=True)
    return out.logits[0], out.hidden_states[-1][0]


def _verified(drafts: list[int], logits: Any, answer: Answer) -> list[int]:
    """The target's tokens up to the first that is not the draft, or that ends the text."""
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


def _heads(tensors: dict[str, Any], where: str) -> tuple[tuple[Layer, ...], ...]:
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for name, tensor in tensors.items():
        match = _LINEAR.match(name)
        if match is None:
            raise BadSetup(f"{where}: no Medusa head has a tensor {name!r}")
        layer = found.setdefault(int(match[1]), {}).setdefault(int(match[2]), {"residual": bool(match[3])})
        layer[match[4]] = tensor
    if not found or sorted(found) != list(range(len(found))):
        raise BadSetup(f"{where}: heads are numbered from 0, and it has {sorted(found)}")
    return tuple(_head(found[number], where) for number in range(len(found)))


def _head(layers: dict[int, dict[str, Any]], where: str) -> tuple[Layer, ...]:
    ordered = [layers[number] for number in sorted(layers)]
    if ordered[-1]["residual"] or any(one["residual"] < two["residual"] for one, two in pairwise(ordered)):
        raise BadSetup(f"{where}: the last layer of a head gives logits, and the others are residual")
    return tuple(Layer(one["weight"], one.get("bias"), one["residual"]) for one in ordered)
