"""Loads the target, its tokenizer and the drafter, without the models' own sampling defaults.

A model's generation_config sets temperature, top-k or penalties that a request does not set. It is ignored here, so
that every arm samples in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from specbench_client.research.runtime import BadResearchSetup, ResearchSettings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
UNBOUNDED = 10**9
"""Length limit of a model that declares none."""


@dataclass(frozen=True)
class LoadedTarget:
    """A loaded target. `eos`: all tokens that end a text according to its config and tokenizer."""

    model: Any
    tokenizer: Any
    eos: frozenset[int]
    max_length: int


def load_target(settings: ResearchSettings) -> LoadedTarget:
    """Load target and tokenizer. Raises BadResearchSetup."""
    transformers.utils.logging.disable_progress_bar()  # keeps errors visible at the end of the log
    if settings.threads:
        torch.set_num_threads(settings.threads)
    model = load_model(settings.model, settings.revision, settings, "--model")
    source = settings.tokenizer or settings.model
    revision = None if settings.tokenizer else settings.revision
    tokenizer = _from_pretrained(transformers.AutoTokenizer, source, {"revision": revision or "main"}, "--model")
    eos = _eos(model, tokenizer)
    model.generation_config = transformers.GenerationConfig()
    return LoadedTarget(model, tokenizer, eos, _max_length(model, settings))


def load_model(source: str, revision: str | None, settings: ResearchSettings, option: str) -> Any:
    """Load a causal language model onto the device. Raises BadResearchSetup."""
    dtype: Any = "auto" if settings.dtype == "auto" else DTYPES[settings.dtype]
    model = _from_pretrained(
        transformers.AutoModelForCausalLM, source, {"revision": revision or "main", "dtype": dtype}, option
    )
    try:
        return model.to(device_of(settings)).eval()
    except (RuntimeError, AssertionError) as error:  # out of memory; torch without CUDA
        raise BadResearchSetup(f"--device {settings.device}: {error}") from error


def device_of(settings: ResearchSettings) -> str:
    """Return the device: that of the command line, or else a GPU if there is one."""
    if settings.device != "auto":
        return settings.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _from_pretrained(kind: Any, source: str, options: dict[str, Any], option: str) -> Any:
    try:
        return kind.from_pretrained(source, **options)
    except (OSError, ValueError) as error:
        raise BadResearchSetup(f"{option} {source}: {error}") from error


def _eos(model: Any, tokenizer: Any) -> frozenset[int]:
    configured = model.generation_config.eos_token_id
    tokens = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in (*tokens, tokenizer.eos_token_id) if token is not None)


def _max_length(model: Any, settings: ResearchSettings) -> int:
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None) or UNBOUNDED
    if settings.max_model_len and settings.max_model_len > most:
        raise BadResearchSetup(f"--max-model-len {settings.max_model_len}: the model supports at most {most}: lower it")
    return settings.max_model_len or int(most)


# The page `/facts` describes the loaded models, not the options of the command line.

NONE = "none"


def model_facts(settings: ResearchSettings, model: Any, drafter: Any) -> Mapping[str, str | int | None]:
    """Return the facts of `GenerationRuntime.facts`. `drafter`: a model, Medusa heads, or None without weights."""
    on_gpu = model.device.type == "cuda"
    return {
        "model": settings.model,
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": _quantization(model),
        "max_running_requests": 1,
        "prefix_cache": False,
        "cuda_graphs": False,
        "attention_backend": getattr(model.config, "_attn_implementation", None),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda or NONE,
        "gpu": torch.cuda.get_device_name(model.device) if on_gpu else None,
        "drafter_vocabulary": _vocabulary(drafter),
        "weights_bytes": _bytes(model),
        "drafter_weights_bytes": 0 if drafter is None else _bytes(drafter),
        "kv_bytes_per_token": _kv_bytes_per_token(model),
        "gpu_memory_used_bytes": torch.cuda.memory_reserved(model.device) if on_gpu else None,
    }


def _bytes(model: Any) -> int:
    """Return the size of the parameters; shared parameters count once."""
    return sum(one.numel() * one.element_size() for one in model.parameters())


def _quantization(model: Any) -> str:
    config = getattr(model.config, "quantization_config", None)
    return NONE if config is None else str(getattr(config, "quant_method", "unnamed"))


def _vocabulary(drafter: Any) -> int | None:
    """Return a draft model's vocabulary size; None for Medusa heads, which use the target's vocabulary."""
    config = getattr(drafter, "config", None)
    return None if config is None else int(config.get_text_config().vocab_size)


def _kv_bytes_per_token(model: Any) -> int | None:
    """Return the bytes of keys and values of all layers per token; None if the config lacks the dimensions."""
    config = model.config.get_text_config()
    layers, heads = (getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
    if layers is None or heads is None:
        return None
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    pairs = getattr(config, "num_key_value_heads", None) or heads
    return int(2 * layers * pairs * width * torch.empty((), dtype=model.dtype).element_size())
