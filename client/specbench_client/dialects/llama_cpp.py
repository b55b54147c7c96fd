"""Dialect of llama.cpp's `llama-server`, from a real server (builds of 2026-10) and its recordings.

It streams one chunk per token, also under speculation. With `timings_per_token` each chunk contains running totals:
`predicted_n`, and once the request has drafted, `draft_n` and `draft_n_accepted`. Drafts are counted when a step is
verified, before its tokens are sent, so the totals jump at the first token of a drafting step, which gives the accepted
drafts of each step. A token that ends the text, or one that ends in the middle of a character, has no chunk with text;
it is counted on the chunk with the finish reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import JsonValue

from specbench_api.outcome.provenance import FactName
from specbench_client.dialects.dialect import CompletionRequest, Dialect, EngineIdentity, shared_fields
from specbench_client.dialects.engine_answer import AnswerChunk, BadAnswer, EngineAnswer, RequestAcceptance
from specbench_client.dialects.engine_facts import (
    MAX_FACT_CHARS,
    FactReading,
    as_count,
    as_limit,
    of_object,
    read_facts,
)
from specbench_client.dialects.openai_stream import (
    ChatStream,
    build_answer,
    count_in,
    first_model,
)
from specbench_client.dialects.recognition import EngineSignature
from specbench_client.documents.record import AcceptanceSource
from specbench_client.transport.error_class import ErrorClass

PROPS_PAGE = "/props"


_SETTINGS = "default_generation_settings"
_UNKNOWN_BUILD = "b0-unknown"


@of_object
def _kv_tokens_of_all_slots(props: Mapping[str, Any]) -> JsonValue:
    # llama.cpp divides its context among its slots; each slot reports its own part.
    settings = props.get(_SETTINGS)
    each = as_count(settings.get("n_ctx")) if isinstance(settings, dict) else None
    slots = as_count(props.get("total_slots"))
    return as_count(each * slots) if isinstance(each, int) and isinstance(slots, int) else None


def _known_build(build_info: Any) -> str | None:
    """Return the build, `b6789-0a1b2c3`; None if the server was built without Git history."""
    known = build_info if build_info != _UNKNOWN_BUILD else None
    return known if isinstance(known, str) and 0 < len(known) <= MAX_FACT_CHARS else None


def _wheel_of_tags(tags: Any) -> str | None:
    """Return the wheel of the prebuilt server, `xllamacpp-2026.10.11549`, which its tags contain."""
    wheels = (
        [tag for tag in tags if isinstance(tag, str) and tag.startswith(WHEEL_TAG)] if isinstance(tags, list) else []
    )
    return wheels[0] if len(wheels) == 1 and len(wheels[0]) <= MAX_FACT_CHARS else None


WHEEL_TAG = "xllamacpp-"
"""Beginning of the tag with which our server of the prebuilt wheel identifies its build."""
_NO_GIT = "this server was built without Git history"
LLAMA_CPP_FACTS: tuple[FactReading, ...] = (
    FactReading(FactName.ENGINE_VERSION, PROPS_PAGE, ("build_info",), _known_build, _NO_GIT),
    FactReading(FactName.ENGINE_VERSION, "/v1/models", ("data", 0, "tags"), _wheel_of_tags, "no tag names a wheel"),
    FactReading(FactName.MODEL, PROPS_PAGE, ("model_path",)),
    FactReading(FactName.QUANTIZATION, PROPS_PAGE, ("model_ftype",)),
    FactReading(FactName.MAX_MODEL_LEN, PROPS_PAGE, (_SETTINGS, "n_ctx"), as_count),
    FactReading(FactName.MAX_RUNNING_REQUESTS, PROPS_PAGE, ("total_slots",), as_limit),
    FactReading(FactName.KV_CACHE_TOKENS, PROPS_PAGE, (), _kv_tokens_of_all_slots),
    FactReading(FactName.WEIGHTS_BYTES, "/v1/models", ("data", 0, "meta", "size"), as_count),
)


LLAMA_CPP_SIGNATURE = EngineSignature(
    engine="llama.cpp",
    owner="llamacpp",
    series=("llamacpp:",),
    keys={PROPS_PAGE: "default_generation_settings"},
    server="llama.cpp",
)


LONGEST_TAIL = 4
"""Maximum number of tokens without a chunk at the end: three of an incomplete character, and the end-of-text token."""
_SPEC = "llamacpp:spec_decode_num"
_STREAMED = {"stream": True, "stream_options": {"include_usage": True}, "timings_per_token": True}


class _Totals(NamedTuple):
    """Running totals of generated, drafted and accepted tokens."""

    tokens: int = 0
    drafted: int = 0
    accepted: int = 0


class LlamaCppDialect(Dialect):
    """See `Dialect`."""

    keeps_special_tokens = True
    health_path = "/health"
    identity_paths: tuple[str, ...] = ("/v1/models", "/props")
    readings = LLAMA_CPP_FACTS
    state_path: str | None = "/slots"
    signature: EngineSignature | None = LLAMA_CPP_SIGNATURE
    counter_series = {
        "output_tokens": "llamacpp:tokens_predicted_total",
        "prompt_tokens": "llamacpp:prompt_tokens_total",
        "cached_tokens": "llamacpp:prompt_tokens_cached_total",
        "draft_steps": f"{_SPEC}_drafts_total",
        "drafted_tokens": f"{_SPEC}_draft_tokens_total",
        "accepted_tokens": f"{_SPEC}_accepted_tokens_total",
    }

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """See `Dialect.body`. Overrides the defaults top_k 40, top_p 0.95 and min_p 0.05."""
        return {
            **shared_fields(request),
            "top_k": 0,
            "min_p": 0.0,
            "repeat_penalty": 1.0,
            "ignore_eos": request.output.ignore_eos,
            **({} if request.may_reuse else {"cache_prompt": False}),
            **({"preserved_tokens": list(request.markers)} if request.markers else {}),
            **(_STREAMED if request.output.stream else {"stream": False}),
        }

    def _counts(self, totals: Mapping[str, float]) -> dict[str, Any]:
        """See `Dialect._counts`. llama.cpp's own count of prompt tokens leaves out those from the cache."""
        counts = super()._counts(totals)
        computed, cached = counts["prompt_tokens"], counts["cached_tokens"]
        return counts | {"prompt_tokens": None if computed is None or cached is None else computed + cached}

    def identity(self, documents: Mapping[str, Any]) -> EngineIdentity:
        """See `Dialect.identity`."""
        facts = read_facts([one for one in self.readings if one.fact is FactName.ENGINE_VERSION], documents)
        version = facts[FactName.ENGINE_VERSION].value
        return EngineIdentity(
            model=first_model(documents.get("/v1/models")), version=version if isinstance(version, str) else None
        )

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- the counters exist in any case
        """See `Dialect.speculating`. Every slot has `speculative`, which is true only if a drafter is set up."""
        slots = state if isinstance(state, list) else []
        flags = [slot.get("speculative") for slot in slots if isinstance(slot, dict)]
        return all(flags) if flags and all(isinstance(one, bool) for one in flags) else None

    def _content(self, stream: ChatStream) -> tuple[AnswerChunk, ...]:
        return _content(stream, count_in(stream.usage, "completion_tokens") or 0)

    def _answer(self, stream: ChatStream, content: tuple[AnswerChunk, ...], *, drafting: bool) -> EngineAnswer:
        output_tokens = count_in(stream.usage, "completion_tokens") or 0
        acceptance = _acceptance(stream, output_tokens, drafting=drafting)
        answer = build_answer(
            stream, content, acceptance, lambda delta: count_in(delta.document, "timings", "predicted_n")
        )
        if answer.cached_tokens is not None:
            return answer
        return replace(answer, cached_tokens=count_in(stream.last, "timings", "cache_n"))


def _totals(document: Mapping[str, Any]) -> _Totals | None:
    """Return the running totals of a chunk; those of drafts are missing until the request has drafted."""
    timings = document.get("timings")
    tokens = count_in(timings, "predicted_n")
    if tokens is None:
        return None
    return _Totals(tokens, count_in(timings, "draft_n") or 0, count_in(timings, "draft_n_accepted") or 0)


def _content(stream: ChatStream, output_tokens: int) -> tuple[AnswerChunk, ...]:
    """Return the chunks with text, and the last one if tokens have no text. A chunk without totals is one token."""
    previous = 0
    chunks = []
    for delta in stream.deltas:
        if delta.text or delta.reasoning:
            totals = _totals(delta.document)
            tokens = previous + 1 if totals is None else totals.tokens
            if tokens < previous:
                raise BadAnswer(
                    f"a chunk counts {tokens} tokens after one that counted {previous}", ErrorClass.MALFORMED
                )
            chunks.append(AnswerChunk(delta.ns, tokens - previous, delta.coalesced))
            previous = tokens
        elif delta.finish_reason and 0 < output_tokens - previous <= LONGEST_TAIL:
            chunks.append(AnswerChunk(delta.ns, output_tokens - previous, delta.coalesced))
            previous = output_tokens
    return tuple(chunks)


def _acceptance(stream: ChatStream, output_tokens: int, *, drafting: bool) -> RequestAcceptance:
    end = _totals(stream.last)
    if not output_tokens or end is None:
        return RequestAcceptance(steps=output_tokens - 1 if output_tokens and not drafting else None)
    if not end.drafted and not drafting:
        return RequestAcceptance(steps=output_tokens - 1)
    totals = [_totals(delta.document) for delta in stream.deltas if delta.text or delta.reasoning]
    by_step = _by_step([one for one in totals if one is not None], end)
    accepted, drafted = (None, None) if by_step is None else by_step
    total = end.accepted if accepted is None else sum(accepted)
    return RequestAcceptance(
        steps=output_tokens - 1 - total if total < output_tokens else None,
        draft_steps=None if accepted is None else len(accepted),
        drafted_tokens=end.drafted,
        accepted_tokens=total,
        step_accepted=accepted,
        step_drafted=drafted,
        source=AcceptanceSource.PER_REQUEST if accepted is None else AcceptanceSource.PER_STEP,
        cut_tokens=None if accepted is None else end.accepted - total,
    )


def _by_step(samples: Sequence[_Totals], end: _Totals) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the accepted drafts of each drafting step, without those truncated at the end, and its drafts.

    None if they are unknown, because a chunk with more than one token (an incomplete character) hides at which token
    the totals jump.
    """
    if not samples:
        return ((), ()) if not end.drafted else None
    steps: list[tuple[int, int, int]] = []  # (accepted, drafted, tokens until the next drafting step)
    before = _Totals()
    for now in (*samples, end):
        tokens = now.tokens - before.tokens
        if now.drafted != before.drafted:
            if tokens != 1:
                return None
            steps.append((now.accepted - before.accepted, now.drafted - before.drafted, tokens))
        elif steps:
            steps[-1] = (*steps[-1][:2], steps[-1][2] + tokens)
        before = now
    delivered = tuple(min(accepted, tokens - 1) for accepted, _, tokens in steps)
    is_cut_early = any(step[0] != shown for step, shown in zip(steps[:-1], delivered[:-1], strict=True))
    if is_cut_early or any(one < 0 for one in delivered):
        return None
    return delivered, tuple(drafted for _, drafted, _ in steps)
