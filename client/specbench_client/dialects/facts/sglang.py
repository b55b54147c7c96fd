"""What SGLang tells on `/server_info`: its arguments as they took effect, and the memory of its first rank.

From the source of 0.5.23 and of releases next to it; no server of it was recorded. Where a name changed between them,
both are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from specbench_api.outcome.facts import FactName
from specbench_client.dialects.facts.reading import Reading, count, gibibytes, negated, of_object, or_none

INFO = "/server_info"
_STATE = ("internal_states", 0)
_MEMORY = (*_STATE, "memory_usage")
_SECRET = re.compile(r"api_key|password|secret|keyfile|(^|_)token$")
_NO_ARGUMENTS = ("internal_states", "version", "status")


@of_object
def _arguments(info: Mapping[str, Any]) -> JsonValue:
    """Everything but what is no argument, and what nobody may read in a report."""
    told = {name: value for name, value in info.items() if name not in _NO_ARGUMENTS and not _SECRET.search(name)}
    return told or None


@of_object
def _per_token(memory: Mapping[str, Any]) -> JsonValue:
    size, tokens = gibibytes(memory.get("kvcache")), count(memory.get("token_capacity"))
    return round(size / tokens) if isinstance(size, int) and isinstance(tokens, int) and tokens else None


SGLANG: tuple[Reading, ...] = (
    Reading(FactName.ENGINE_VERSION, INFO, ("version",)),
    Reading(FactName.MODEL, INFO, ("model_path",)),
    Reading(FactName.MODEL, "/model_info", ("model_path",)),
    Reading(FactName.ARGUMENTS, INFO, (), _arguments),
    Reading(FactName.DTYPE, INFO, ("dtype",)),
    Reading(FactName.QUANTIZATION, INFO, ("quantization",), or_none),
    Reading(FactName.KV_CACHE_DTYPE, INFO, ("kv_cache_dtype",)),
    Reading(FactName.MAX_MODEL_LEN, "/v1/models", ("data", 0, "max_model_len"), count),
    Reading(FactName.MAX_MODEL_LEN, INFO, ("context_length",), count),
    Reading(FactName.MAX_RUNNING_REQUESTS, INFO, (*_STATE, "effective_max_running_requests_per_dp"), count),
    Reading(FactName.MAX_RUNNING_REQUESTS, INFO, ("max_running_requests",), count),
    Reading(FactName.PREFIX_CACHE, INFO, ("disable_radix_cache",), negated),
    Reading(FactName.CUDA_GRAPHS, INFO, ("cuda_graph_backend_decode",)),
    Reading(FactName.CUDA_GRAPHS, INFO, ("disable_cuda_graph",), negated),
    Reading(FactName.CHUNKED_PREFILL, INFO, ("chunked_prefill_size",), count),
    Reading(FactName.ATTENTION_BACKEND, INFO, ("attention_backend",)),
    Reading(FactName.WEIGHTS_BYTES, INFO, (*_MEMORY, "weight"), gibibytes),
    Reading(FactName.KV_CACHE_TOKENS, INFO, ("max_total_num_tokens",), count),
    Reading(FactName.KV_CACHE_TOKENS, INFO, (*_MEMORY, "token_capacity"), count),
    Reading(FactName.KV_CACHE_BYTES, INFO, (*_MEMORY, "kvcache"), gibibytes),
    Reading(FactName.KV_BYTES_PER_TOKEN, INFO, _MEMORY, _per_token),
)
