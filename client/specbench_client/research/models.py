"""Loads the target, its tokenizer and the drafter, and frees them of their makers' sampling defaults.

A model's own generation_config changes temperature, top-k or penalties where a request is silent; here the request
alone decides, so that every arm samples alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers

from specbench_client.research.errors import BadSetup
from specbench_client.research.settings import Settings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
UNBOUNDED = 10**9
"""Tokenizers without a limit say a number far above this."""


@dataclass(frozen=True)
class Target:
    """A loaded target. `eos`: every token that its makers say ends a text."""

    model: Any
    tokenizer: Any
    eos: frozenset[int]
    max_length: int


def load_target(settings: Settings) -> Target:
    """Load target and tokenizer. Raises BadSetup."""
    transformers.utils.logging.disable_progress_bar()  # the last words of a log are for what went wrong
    if settings.threads:
        torch.set_num_threads(settings.threads)
    model = load_model(settings.model, settings.revision, settings, "--model")
    source = settings.tokenizer or settings.model
    revision = None if settings.tokenizer else settings.revision
    tokenizer = _loaded(transformers.AutoTokenizer, source, {"revision": revision or "main"}, "--model")
    eos = _eos(model, tokenizer)
    model.generation_config = transformers.GenerationConfig()
    return Target(model, tokenizer, eos, _max_length(model, settings))


def load_model(source: str, revision: str | None, settings: Settings, option: str) -> Any:
    """Load a causal language model onto the device. Raises BadSetup."""
    dtype: Any = "auto" if settings.dtype == "auto" else DTYPES[settings.dtype]
    model = _loaded(transformers.AutoModelForCausalLM, source, {"revision": revision or "main", "dtype": dtype}, option)
    try:
        return model.to(device_of(settings)).eval()
    except (RuntimeError, AssertionError) as error:  # out of memory; torch without CUDA
        raise BadSetup(f"--device {settings.device}: {error}") from error


def device_of(settings: Settings) -> str:
    """The device: a GPU where there is one, unless the command line says otherwise."""
    if settings.device != "auto":
        return settings.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _loaded(kind: Any, source: str, options: dict[str, Any], option: str) -> Any:
    try:
        return kind.from_pretrained(source, **options)
    except (OSError, ValueError) as error:
        raise BadSetup(f"{option} {source}: {error}") from error


def _eos(model: Any, tokenizer: Any) -> frozenset[int]:
    said = model.generation_config.eos_token_id
    many = said if isinstance(said, list) else [said]
    return frozenset(token for token in (*many, tokenizer.eos_token_id) if token is not None)


def _max_length(model: Any, settings: Settings) -> int:
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None) or UNBOUNDED
    if settings.max_model_len and settings.max_model_len > most:
        raise BadSetup(f"--max-model-len {settings.max_model_len}: the model was made for {most}")
    return settings.max_model_len or int(most)
