"""Dialect of SGLang, from the source of 0.5.23; no server of it was recorded.

The tokens of a chunk come from `continuous_usage_stats`. With `return_spec_tokens_details` a chunk before the usage
contains the verifications, the correct drafts, and a histogram of verifications by their number of correct drafts; a
baseline ignores the field. Two acceptance lengths can be derived: emitted, (tokens - 1) / verifications, and verified,
1 + correct / verifications. Correct drafts are counted before the answer is truncated at its stop; the truncated ones
are subtracted here, so that both differ in the last step only. SGLang's own `spec_accept_length`, tokens /
verifications, is a third definition, which is not used.

There is no list of steps. If every chunk is one verification, the chunks give the order: for each size there are as
many chunks as the histogram has verifications, except for the last one, which may be delivered in part.

`spec_num_proposed_drafts` is not a count: it is the verifications times the draft length that the server was started
with. It is left out if the answer contradicts it, under `--speculative-adaptive`, which drafts other lengths, and where
DSpark verifies only some of its drafts (`spec_cap_lens_histogram`, empty otherwise). For a tree it counts all nodes, of
which one path can be accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import JsonValue

from specbench_api.outcome.provenance import FactName
from specbench_client.dialects.dialect import CountedStreamDialect, EngineIdentity
from specbench_client.dialects.engine_answer import AnswerChunk, RequestAcceptance
from specbench_client.dialects.engine_facts import (
    FactReading,
    as_count,
    as_limit,
    as_negated_flag,
    as_scalar_or_none,
    bytes_from_gib,
    of_object,
)
from specbench_client.dialects.openai_stream import (
    ChatStream,
    chunk_sizes,
    count_in,
    counts_in,
    first_model,
    steps_by_chunk,
    text_in,
)
from specbench_client.dialects.recognition import EndpointPages, EngineSignature
from specbench_client.documents.record import AcceptanceSource

# `/server_info` contains the effective arguments and the memory of the first rank. From the source of 0.5.23 and of the
# releases around it; if a name changed between them, both are read.

SERVER_INFO = "/server_info"
_INTERNAL_STATE = ("internal_states", 0)
_MEMORY = (*_INTERNAL_STATE, "memory_usage")
_SECRET_NAME = re.compile(r"api_key|password|secret|keyfile|(^|_)token$")
_ARGUMENTS_BYTES = 64 * 1024
"""Longer than the arguments of any server: there are some hundreds, with short values."""
_NO_ARGUMENTS = ("internal_states", "version", "status")


@of_object
def _engine_arguments(info: Mapping[str, Any]) -> JsonValue:
    """Return the arguments without secrets, which must not appear in a report; None if they are implausibly long."""
    arguments = {
        name: value for name, value in info.items() if name not in _NO_ARGUMENTS and not _SECRET_NAME.search(name)
    }
    return arguments if arguments and len(orjson.dumps(arguments)) <= _ARGUMENTS_BYTES else None


@of_object
def _kv_bytes_per_token(memory: Mapping[str, Any]) -> JsonValue:
    size, tokens = bytes_from_gib(memory.get("kvcache")), as_count(memory.get("token_capacity"))
    return round(size / tokens) if isinstance(size, int) and isinstance(tokens, int) and tokens else None


def _running_requests(states: Any) -> JsonValue:
    # Each data-parallel replica has a state, with a limit of its own; without one of them the sum is not known.
    known = states if isinstance(states, list) and all(isinstance(state, dict) for state in states) else []
    limits = [as_limit(state.get("effective_max_running_requests_per_dp")) for state in known]
    return sum(limit for limit in limits if isinstance(limit, int)) if limits and all(limits) else None


SGLANG_FACTS: tuple[FactReading, ...] = (
    FactReading(FactName.ENGINE_VERSION, SERVER_INFO, ("version",)),
    FactReading(FactName.MODEL, SERVER_INFO, ("model_path",)),
    FactReading(FactName.MODEL, "/model_info", ("model_path",)),
    FactReading(FactName.ARGUMENTS, SERVER_INFO, (), _engine_arguments),
    FactReading(FactName.DTYPE, SERVER_INFO, ("dtype",)),
    FactReading(FactName.QUANTIZATION, SERVER_INFO, ("quantization",), as_scalar_or_none),
    FactReading(FactName.KV_CACHE_DTYPE, SERVER_INFO, ("kv_cache_dtype",)),
    FactReading(FactName.MAX_MODEL_LEN, "/v1/models", ("data", 0, "max_model_len"), as_count),
    FactReading(FactName.MAX_MODEL_LEN, SERVER_INFO, ("context_length",), as_count),
    FactReading(
        FactName.MAX_RUNNING_REQUESTS,
        SERVER_INFO,
        ("internal_states",),
        _running_requests,
        "one of them has no effective_max_running_requests_per_dp",
    ),
    FactReading(FactName.MAX_RUNNING_REQUESTS, SERVER_INFO, ("max_running_requests",), as_limit),
    FactReading(FactName.PREFIX_CACHE, SERVER_INFO, ("disable_radix_cache",), as_negated_flag),
    FactReading(FactName.CUDA_GRAPHS, SERVER_INFO, ("cuda_graph_backend_decode",)),
    FactReading(FactName.CUDA_GRAPHS, SERVER_INFO, ("disable_cuda_graph",), as_negated_flag),
    FactReading(FactName.CHUNKED_PREFILL, SERVER_INFO, ("chunked_prefill_size",), as_count),
    FactReading(FactName.ATTENTION_BACKEND, SERVER_INFO, ("attention_backend",)),
    FactReading(FactName.WEIGHTS_BYTES, SERVER_INFO, (*_MEMORY, "weight"), bytes_from_gib),
    FactReading(FactName.KV_CACHE_TOKENS, SERVER_INFO, ("max_total_num_tokens",), as_count),
    FactReading(FactName.KV_CACHE_TOKENS, SERVER_INFO, (*_MEMORY, "token_capacity"), as_count),
    FactReading(FactName.KV_CACHE_BYTES, SERVER_INFO, (*_MEMORY, "kvcache"), bytes_from_gib),
    FactReading(FactName.KV_BYTES_PER_TOKEN, SERVER_INFO, _MEMORY, _kv_bytes_per_token),
)


def _drafter(pages: EndpointPages) -> str | None:
    """Return the algorithm, and the longest path of drafts or, without a tree, the draft tokens."""
    info = pages.documents.get(SERVER_INFO)
    if not isinstance(info, dict) or not info.get("speculative_algorithm"):
        return None
    depth = info.get("speculative_num_steps") or info.get("speculative_num_draft_tokens")
    return f"{info['speculative_algorithm']}" + (f" k={depth}" if depth else "")


SGLANG_SIGNATURE = EngineSignature(
    engine="SGLang",
    owner="sglang",
    series=("sglang:",),
    keys={SERVER_INFO: "internal_states"},
    drafter=_drafter,
    report_acceptance="update SGLang to a release with return_spec_tokens_details, such as 0.5.23",
)


@dataclass(frozen=True, slots=True)
class _SpecCounts:
    """A request's `spec_tokens_details`. `by_correct`: verifications by their number of correct drafts."""

    verified: int
    correct: int
    by_correct: tuple[int, ...] | None
    proposed: int | None


@dataclass(frozen=True, slots=True)
class _ChunkSteps:
    """Accepted drafts of each step as delivered, in order, and how many of the last step were truncated."""

    delivered: tuple[int, ...]
    trim: int


class SglangDialect(CountedStreamDialect):
    """See `Dialect`.

    The seed has an effect on a deterministic server only. Token ids of the answer are not requested: the server rejects
    this for a streamed chat.
    """

    keeps_special_tokens = True
    health_path = "/ready"  # Its /health generates a token if the engine is idle.
    identity_paths: tuple[str, ...] = ("/v1/models", "/server_info", "/model_info")
    readings = SGLANG_FACTS
    state_path: str | None = "/server_info"
    signature: EngineSignature | None = SGLANG_SIGNATURE
    own_fields = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "return_spec_tokens_details": True}
    # They are updated when a request ends. Accepted drafts are not counted: the gauges are averages.
    counter_series = {
        "output_tokens": "sglang:generation_tokens_total",
        "prompt_tokens": "sglang:prompt_tokens_total",
        "cached_tokens": "sglang:cached_tokens_total",
        "draft_steps": "sglang:spec_verify_calls_total",
    }
    kv_usage_series = "sglang:token_usage"

    def identity(self, documents: Mapping[str, Any]) -> EngineIdentity:
        """See `Dialect.identity`."""
        model, info = first_model(documents.get("/v1/models")), documents.get("/server_info")
        return EngineIdentity(
            model=model or text_in(documents.get("/model_info"), "model_path"),
            version=text_in(info, "version"),
            counts_drafts=not (isinstance(info, dict) and info.get("speculative_adaptive")),
        )

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- the gauges exist in any case
        """See `Dialect.speculating`; read from the algorithm among the arguments."""
        if not isinstance(state, dict) or "speculative_algorithm" not in state:
            return None
        return bool(state["speculative_algorithm"])

    def _acceptance(
        self, stream: ChatStream, content: tuple[AnswerChunk, ...], output_tokens: int, *, drafting: bool
    ) -> RequestAcceptance:
        counts = _spec_counts(stream)
        if counts is None:
            return steps_by_chunk(content, output_tokens, drafting=drafting)
        return _delivered_acceptance(counts, content, output_tokens)


def _spec_counts(stream: ChatStream) -> _SpecCounts | None:
    """Return the counts in the last chunk that has them; None if none has."""
    extensions = (delta.document["sglext"] for delta in reversed(stream.deltas) if delta.document.get("sglext"))
    extension = next(extensions, None)
    block = extension.get("spec_tokens_details") if isinstance(extension, dict) else None
    verified, correct = count_in(block, "spec_verify_ct"), count_in(block, "spec_num_correct_drafts")
    if verified is None or correct is None:
        return None
    by_correct = counts_in(block, "spec_correct_drafts_histogram")
    if by_correct is not None and (sum(by_correct) != verified or _drafts(by_correct) != correct):
        by_correct = None  # The histogram contradicts the engine's own totals.
    proposed = None if counts_in(block, "spec_cap_lens_histogram") else count_in(block, "spec_num_proposed_drafts")
    return _SpecCounts(verified, correct, by_correct, proposed)


def _drafts(by_correct: Sequence[int]) -> int:
    return sum(drafts * steps for drafts, steps in enumerate(by_correct))


def _deepest(by_correct: Sequence[int]) -> int:
    """Return the maximum of correct drafts in one verification."""
    return max((drafts for drafts, steps in enumerate(by_correct) if steps), default=0)


def _delivered_acceptance(counts: _SpecCounts, content: Sequence[AnswerChunk], output_tokens: int) -> RequestAcceptance:
    """Return the acceptance from: tokens = 1 + Σ(correct + 1) + steps without drafts - truncated tokens.

    The last two are unknown. If every step verified drafts, there are no steps without. Otherwise the chunks show it;
    if they do not, the smallest truncation that explains the count is used.
    """
    undrafted_less_trim = output_tokens - 1 - (counts.correct + counts.verified)
    least = max(0, -undrafted_less_trim)
    shown = _chunk_steps(counts, content, output_tokens)
    trim = least if shown is None else shown.trim
    steps = counts.verified + undrafted_less_trim + trim
    most = counts.correct if counts.by_correct is None else _deepest(counts.by_correct)
    explained = output_tokens > 0 and trim <= most
    listed = shown.delivered if shown is not None and explained and steps == counts.verified else None
    return RequestAcceptance(
        steps=steps if explained else None,
        draft_steps=counts.verified,
        drafted_tokens=_drafted(counts),
        accepted_tokens=counts.correct - trim if explained else counts.correct,
        step_accepted=listed,
        source=AcceptanceSource.PER_REQUEST,
        cut_tokens=None if listed is None else trim,
    )


def _chunk_steps(counts: _SpecCounts, content: Sequence[AnswerChunk], output_tokens: int) -> _ChunkSteps | None:
    """Return the steps that the chunks show, if histogram and number of steps confirm that each chunk is one step."""
    sizes = chunk_sizes(content)
    hidden = output_tokens - sum(sizes)  # A token without text at the end has no chunk.
    sizes += [hidden] if hidden > 0 else []
    if counts.by_correct is None or hidden < 0 or len(sizes) < 2 or sizes[0] != 1:
        return None
    delivered = tuple(size - 1 for size in sizes[1:])
    last = _unmatched(counts.by_correct, delivered[:-1])
    if last is None or last < delivered[-1]:
        return None
    return _ChunkSteps(delivered, last - delivered[-1]) if len(delivered) >= counts.verified else None


def _unmatched(by_correct: Sequence[int], delivered: Sequence[int]) -> int | None:
    """Return the correct drafts of the one step that is in the histogram but not in `delivered`; None if not unique.

    Steps without accepted drafts may be more than in the histogram: those that verified no drafts.
    """
    left = Counter({drafts: steps for drafts, steps in enumerate(by_correct) if drafts})
    left.subtract(drafts for drafts in delivered if drafts)
    unmatched = [drafts for drafts, steps in left.items() if steps]
    if not unmatched:
        return 0
    return unmatched[0] if len(unmatched) == 1 and left[unmatched[0]] == 1 else None


def _drafted(counts: _SpecCounts) -> int | None:
    """Return the proposed drafts, if the answer does not contradict that each verification had as many."""
    if counts.proposed is None or not counts.verified:
        return 0 if counts.proposed == 0 else None
    longest, rest = divmod(counts.proposed, counts.verified)
    is_denied = rest or counts.correct > counts.proposed or _deepest(counts.by_correct or ()) > longest
    return None if is_denied else counts.proposed
