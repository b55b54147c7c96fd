"""What vLLM tells: facts from 0.33.0's source, `cache_config_info` from a recording of 0.32.0.

Its arguments, number formats and kernels stand on `/server_info`, which only a server in development mode has, with
routes beside it that nobody should reach; it is not started so, and they stay unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from specbench_api.outcome.facts import FactName
from specbench_client.dialects.facts.reading import Reading, count, flag, of_object

CACHE = "vllm:cache_config_info"
MODELS = (
    Reading(FactName.MODEL, "/v1/models", ("data", 0, "root")),
    Reading(FactName.MAX_MODEL_LEN, "/v1/models", ("data", 0, "max_model_len"), count),
)
"""vLLM's form of the list of models, which others have too."""
VERSION = Reading(FactName.ENGINE_VERSION, "/version", ("version",))


@of_object
def _blocks(cache: Mapping[str, Any]) -> JsonValue:
    """Tokens of all blocks; releases before `kv_cache_size_tokens` tell no more."""
    blocks, size = (count(cache.get(name)) for name in ("num_gpu_blocks", "block_size"))
    return blocks * size if isinstance(blocks, int) and isinstance(size, int) and blocks else None


@of_object
def _per_token(cache: Mapping[str, Any]) -> JsonValue:
    memory, tokens = (count(cache.get(name)) for name in ("kv_cache_memory_bytes", "kv_cache_size_tokens"))
    return round(memory / tokens) if isinstance(memory, int) and isinstance(tokens, int) and tokens else None


VLLM: tuple[Reading, ...] = (
    VERSION,
    *MODELS,
    Reading(FactName.KV_CACHE_TOKENS, "/metrics", (CACHE, "kv_cache_size_tokens"), count),
    Reading(FactName.KV_CACHE_TOKENS, "/metrics", (CACHE,), _blocks),
    Reading(FactName.KV_CACHE_BYTES, "/metrics", (CACHE, "kv_cache_memory_bytes"), count),
    Reading(FactName.KV_BYTES_PER_TOKEN, "/metrics", (CACHE,), _per_token),
    Reading(FactName.KV_CACHE_DTYPE, "/metrics", (CACHE, "cache_dtype")),
    Reading(FactName.PREFIX_CACHE, "/metrics", (CACHE, "enable_prefix_caching"), flag),
)
