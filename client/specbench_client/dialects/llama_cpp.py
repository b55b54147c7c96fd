"""llama.cpp's `llama-server`: facts from a real server (builds of 2026-10) and its recordings.

It streams one chunk a token, also under speculation, and with `timings_per_token` each chunk carries running totals:
`predicted_n`, and once the request has drafted `draft_n` and `draft_n_accepted`. Drafts are counted when a step is
verified, before its tokens are sent, so the first token of a drafting step is where the totals jump: that gives the
accepted drafts step by step. A token that ends the text, and one that ends in the middle of a character, have no
chunk with text of their own; they are counted on the chunk that says why the answer ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specbench_api.outcome.record import AcceptanceSource
from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.dialect import Acceptance, Answer, Ask, BadAnswer, Chunk, EngineCounters, Identity
from specbench_client.dialects.facts.others import LLAMA_CPP
from specbench_client.dialects.prometheus import count, totals
from specbench_client.dialects.stream import (
    Delta,
    Stream,
    count_in,
    first_model,
    read_stream,
    tokens_told,
    whole_answer,
)
from specbench_client.dialects.thoughts import thought_tokens
from specbench_client.slices import Slices
from specbench_client.transport.exchange import ErrorClass
from specbench_client.transport.sse import Event

LONGEST_TAIL = 4
"""Tokens without a chunk at the end: up to three of a broken character, and the end-of-text token."""
_SPEC = "llamacpp:spec_decode_num"
_STREAMED = {"stream": True, "stream_options": {"include_usage": True}, "timings_per_token": True}


@dataclass(frozen=True, slots=True)
class _Totals:
    """Running totals: tokens, drafted, accepted."""

    tokens: int = 0
    drafted: int = 0
    accepted: int = 0


class LlamaCppDialect:
    """See `Dialect`."""

    def __init__(self, kind: EngineKind = EngineKind.LLAMA_CPP) -> None:
        self.kind = kind

    path = "/v1/chat/completions"
    tokens_path = "/v1/completions"
    keeps_special_tokens = True
    health_path = "/health"
    metrics_path = "/metrics"
    identity_paths: tuple[str, ...] = ("/v1/models", "/props")
    readings = LLAMA_CPP
    state_path: str | None = "/slots"

    def body(self, ask: Ask) -> dict[str, Any]:
        """Sampling is explicit (its defaults: top_k 40, top_p 0.95, min_p 0.05); no prompt is kept between requests."""
        return {
            "model": ask.model,
            **ask.prompt,
            "temperature": ask.sampling.temperature,
            "top_p": ask.sampling.top_p,
            "top_k": 0,
            "min_p": 0.0,
            "repeat_penalty": 1.0,
            "seed": ask.seed,
            "max_tokens": ask.output.max_tokens,
            "ignore_eos": ask.output.ignore_eos,
            "cache_prompt": False,
            **({"preserved_tokens": list(ask.markers)} if ask.markers else {}),
            **(_STREAMED if ask.output.stream else {"stream": False}),
        }

    def read(self, events: Sequence[Event], *, drafting: bool) -> Slices[Answer]:
        """See `Dialect.read`."""
        stream = yield from read_stream(events)
        content = _content(stream, count_in(stream.usage, "completion_tokens") or 0)
        return _answer(stream, content, drafting=drafting)

    def read_whole(self, document: Any, *, drafting: bool) -> Answer:
        """See `Dialect.read_whole`."""
        return replace(_answer(whole_answer(document), (), drafting=drafting), output_tokens_client=None)

    def counters(self, metrics: str) -> EngineCounters:
        """See `Dialect.counters`."""
        sums = totals(metrics)
        return EngineCounters(
            output_tokens=count(sums, "llamacpp:tokens_predicted_total"),
            prompt_tokens=count(sums, "llamacpp:prompt_tokens_total"),
            cached_tokens=count(sums, "llamacpp:prompt_tokens_cached_total"),
            draft_steps=count(sums, f"{_SPEC}_drafts_total"),
            drafted_tokens=count(sums, f"{_SPEC}_draft_tokens_total"),
            accepted_tokens=count(sums, f"{_SPEC}_accepted_tokens_total"),
        )

    def identity(self, documents: Mapping[str, Any]) -> Identity:
        """See `Dialect.identity`."""
        props = documents.get("/props")
        build = props.get("build_info") if isinstance(props, dict) else None
        return Identity(
            model=first_model(documents.get("/v1/models")),
            version=build if isinstance(build, str) else None,
        )

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- its counters exist either way
        """Every slot says `speculative`; true only where a drafter is really set up."""
        slots = state if isinstance(state, list) else []
        told = [slot.get("speculative") for slot in slots if isinstance(slot, dict)]
        return all(told) if told and all(isinstance(one, bool) for one in told) else None


def _answer(stream: Stream, content: tuple[Chunk, ...], *, drafting: bool) -> Answer:
    output_tokens = count_in(stream.usage, "completion_tokens") or 0
    cached = count_in(stream.usage, "prompt_tokens_details", "cached_tokens")
    return Answer(
        text=stream.text,
        reasoning=stream.reasoning,
        content=content,
        acceptance=_acceptance(stream, output_tokens, drafting=drafting),
        input_tokens=count_in(stream.usage, "prompt_tokens"),
        output_tokens=output_tokens,
        output_tokens_client=tokens_told(content),
        cached_tokens=count_in(stream.last, "timings", "cache_n") if cached is None else cached,
        finish_reason=stream.finish_reason,
        fingerprint=stream.fingerprint,
        thought_tokens=thought_tokens(stream, _tokens_so_far),
    )


def _tokens_so_far(delta: Delta) -> int | None:
    return count_in(delta.document, "timings", "predicted_n")


def _timed(delta: Delta | Mapping[str, Any]) -> _Totals | None:
    """The running totals of a chunk; a request that has drafted nothing yet has none of drafts."""
    document = delta.document if isinstance(delta, Delta) else delta
    tokens = count_in(document, "timings", "predicted_n")
    if tokens is None:
        return None
    drafted = count_in(document, "timings", "draft_n") or 0
    return _Totals(tokens, drafted, count_in(document, "timings", "draft_n_accepted") or 0)


def _content(stream: Stream, output_tokens: int) -> tuple[Chunk, ...]:
    """Every chunk with text, and the last one where tokens came without. A chunk without totals is one token."""
    seen = 0
    chunks = []
    for delta in stream.deltas:
        if delta.text or delta.reasoning:
            timed = _timed(delta)
            total = seen + 1 if timed is None else timed.tokens
            if total < seen:
                raise BadAnswer(f"a chunk counts {total} tokens after one that counted {seen}", ErrorClass.MALFORMED)
            chunks.append(Chunk(delta.ns, total - seen, delta.gathered))
            seen = total
        elif delta.finish_reason and 0 < output_tokens - seen <= LONGEST_TAIL:
            chunks.append(Chunk(delta.ns, output_tokens - seen, delta.gathered))
            seen = output_tokens
    return tuple(chunks)


def _acceptance(stream: Stream, output_tokens: int, *, drafting: bool) -> Acceptance:
    end = _timed(stream.last)
    if not output_tokens or end is None:
        return Acceptance(steps=output_tokens - 1 if output_tokens and not drafting else None)
    if not end.drafted and not drafting:
        return Acceptance(steps=output_tokens - 1)
    timed = [_timed(delta) for delta in stream.deltas if delta.text or delta.reasoning]
    accepted = _by_step([one for one in timed if one is not None], end)
    total = end.accepted if accepted is None else sum(accepted)
    return Acceptance(
        steps=output_tokens - 1 - total if total < output_tokens else None,
        draft_steps=None if accepted is None else len(accepted),
        drafted_tokens=end.drafted,
        accepted_tokens=total,
        step_accepted=accepted,
        source=AcceptanceSource.PER_REQUEST if accepted is None else AcceptanceSource.PER_STEP,
    )


def _by_step(samples: Sequence[_Totals], end: _Totals) -> tuple[int, ...] | None:
    """Accepted drafts of each drafting step, less what was cut off at the end; None where the chunks do not show it.

    They do not where a chunk with more than one token (a character held back) hides the place of a jump.
    """
    if not samples:
        return () if not end.drafted else None
    steps: list[tuple[int, int]] = []  # (accepted, tokens until the next drafting step)
    before = _Totals()
    for now in (*samples, end):
        tokens = now.tokens - before.tokens
        if now.drafted != before.drafted:
            if tokens != 1:
                return None
            steps.append((now.accepted - before.accepted, tokens))
        elif steps:
            steps[-1] = (steps[-1][0], steps[-1][1] + tokens)
        before = now
    accepted = [min(accepted, tokens - 1) for accepted, tokens in steps]
    is_cut_early = any(told != counted for (told, _), counted in zip(steps[:-1], accepted[:-1], strict=True))
    return None if is_cut_early or any(one < 0 for one in accepted) else tuple(accepted)
