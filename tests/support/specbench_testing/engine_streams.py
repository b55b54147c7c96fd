"""Builds streams in the formats of the engines from known decode steps, which a dialect must reconstruct."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from specbench_client.transport.exchange import ReceivedBytes
from specbench_client.transport.sse import SseEvent, parse_events

WORD = "word "


@dataclass(frozen=True)
class StreamStep:
    """One decode step: drafts proposed (0: none) and accepted."""

    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class DecodedAnswer:
    """One answer: its first token from the prefill, then steps; `cut` tokens of the last one are not delivered."""

    steps: tuple[StreamStep, ...] = ()
    cut: int = 0
    prompt_tokens: int = 7

    @property
    def sizes(self) -> list[int]:
        """Tokens delivered: the first one, then those of each step."""
        sizes = [1, *(step.accepted + 1 for step in self.steps)]
        return [*sizes[:-1], sizes[-1] - self.cut]

    @property
    def output_tokens(self) -> int:
        return sum(self.sizes)

    @property
    def drafting(self) -> list[StreamStep]:
        return [step for step in self.steps if step.drafted]

    @property
    def delivered(self) -> tuple[int, ...]:
        """Delivered accepted drafts of each drafting step."""
        return tuple(size - 1 for size, step in zip(self.sizes[1:], self.steps, strict=True) if step.drafted)


def vllm(
    decoded: DecodedAnswer, *, detail: str | None = "detailed", continuous: bool = True, merge: int = 1
) -> list[dict[str, Any]]:
    """vLLM's chunks: one per step, or per `merge` steps.

    `detail` is `--per-request-spec-decode-metrics`; None: neither the flag nor a drafter.
    """
    chunks = [_chunk({"role": "assistant", "content": ""}, usage=_usage(decoded, 0) if continuous else None)]
    for so_far, size, _ in _gathered(decoded, merge):
        finish = "length" if so_far == decoded.output_tokens else None
        usage = _usage(decoded, so_far) if continuous else None
        chunks.append(_chunk({"content": WORD * size}, finish, usage=usage))
    metrics: dict[str, Any] = {"time_to_first_token_ms": 1.5}
    if detail not in (None, "none"):
        metrics["speculative_decoding"] = _vllm_block(decoded, per_step=detail == "detailed")
    details = {"prompt_tokens_details": {"cached_tokens": 0}}
    usage = {**_usage(decoded, decoded.output_tokens), **details}
    return [*chunks, {"choices": [], "usage": usage, "system_fingerprint": "vllm-test", "metrics": metrics}]


def sglang(decoded: DecodedAnswer, *, drafting: bool = True, merge: int = 1) -> list[dict[str, Any]]:
    """SGLang's chunks: one per step, or per `merge` steps; the finish reason and the drafts have their own chunks."""
    chunks = [_chunk({"role": "assistant", "content": ""})]
    for so_far, size, _ in _gathered(decoded, merge):
        chunks.append(_chunk({"content": WORD * size}, usage=_usage(decoded, so_far)))
    chunks.append(_chunk({}, "length"))
    if drafting and decoded.drafting:
        chunks.append({"choices": [], "usage": None, "sglext": {"spec_tokens_details": _sglang_block(decoded)}})
    usage = {**_usage(decoded, decoded.output_tokens), "prompt_tokens_details": {"cached_tokens": 0}}
    return [*chunks, {"choices": [], "usage": usage}]


def tensorrt_llm(
    decoded: DecodedAnswer, *, merge: int = 1, prompts_own: int = 1, with_average: bool = True
) -> list[dict[str, Any]]:
    """TensorRT-LLM's chunks: one per iteration, or per `merge`, with the average so far.

    `prompts_own`: whether the prefill iteration is counted; `with_average`: whether chunks contain the average.
    """
    chunks = [_chunk({"role": "assistant"}, usage=_usage(decoded, 0))]
    coalesced = list(_gathered(decoded, merge))
    for tokens, size, iterations in coalesced:
        finish = "length" if tokens == decoded.output_tokens else None
        chunk = _chunk({"content": WORD * size, "reasoning_content": ""}, finish, usage=_usage(decoded, tokens))
        counted = iterations - 1 + prompts_own
        average = {"avg_decoded_tokens_per_iter": tokens / counted if counted else 0.0} if with_average else {}
        chunk["choices"][0].update(average)
        chunks.append(chunk)
    usage = {**_usage(decoded, decoded.output_tokens), "prompt_tokens_details": {"cached_tokens": 0}}
    return [*chunks, {"choices": [], "usage": usage}]


def llama(decoded: DecodedAnswer, *, ends_itself: bool = False, held_back: int = 1) -> list[dict[str, Any]]:
    """llama.cpp's chunks: one per token with running totals, or per `held_back` tokens (a character in parts).

    `ends_itself`: the last token ends the text and has no chunk.
    """
    chunks = [_chunk({"role": "assistant", "content": None})]
    totals = list(_llama_totals(decoded))
    shown = totals[:-1] if ends_itself else totals
    chunks += [
        {**_chunk({"content": WORD}), "timings": shown[min(start + held_back, len(shown)) - 1]}
        for start in range(0, len(shown), held_back)
    ]
    chunks.append(_chunk({}, "stop" if ends_itself else "length"))
    usage = {**_usage(decoded, decoded.output_tokens), "prompt_tokens_details": {"cached_tokens": 0}}
    timings = {"cache_n": 0, **totals[-1]}
    return [*chunks, {"choices": [], "usage": usage, "system_fingerprint": "b0-test", "timings": timings}]


def sse(chunks: Iterable[dict[str, Any]], *, done: bool = True) -> bytes:
    """Return the stream's bytes."""
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, *(["data: [DONE]\n\n"] if done else [])]).encode()


def arrivals(body: bytes, cuts: Sequence[int] = ()) -> tuple[ReceivedBytes, ...]:
    """The body cut at these offsets; the n-th piece arrives at n ns."""
    places = [0, *sorted({min(cut, len(body)) for cut in cuts}), len(body)]
    return tuple(ReceivedBytes(number, body[start:end]) for number, (start, end) in enumerate(pairwise(places)))


def as_events(chunks: Sequence[dict[str, Any]], *, done: bool = True) -> list[SseEvent]:
    """Parse each chunk as a separate read; the n-th event arrives at n ns."""
    pieces = [sse([chunk], done=False) for chunk in chunks] + [sse([])] * done
    return parse_events([ReceivedBytes(number, piece) for number, piece in enumerate(pieces)])


def _chunk(delta: dict[str, Any], finish: str | None = None, usage: dict[str, Any] | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], **({"usage": usage} if usage else {})}


def _usage(decoded: DecodedAnswer, completion_tokens: int) -> dict[str, Any]:
    prompt = decoded.prompt_tokens
    total = prompt + completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion_tokens, "total_tokens": total}


def _gathered(decoded: DecodedAnswer, merge: int) -> Iterator[tuple[int, int, int]]:
    """For each chunk: tokens so far, its own tokens, and steps so far including the prefill."""
    sizes, so_far = decoded.sizes, 0
    for start in range(0, len(sizes), merge):
        own = sizes[start : start + merge]
        so_far += sum(own)
        yield so_far, sum(own), start + len(own)


def _sglang_block(decoded: DecodedAnswer) -> dict[str, Any]:
    """Accepted drafts before the last step is cut; proposed drafts as if every step had as many as the longest."""
    steps = decoded.drafting
    deepest, longest = max(step.accepted for step in steps), max(step.drafted for step in steps)
    return {
        "spec_verify_ct": len(steps),
        "spec_num_correct_drafts": sum(step.accepted for step in steps),
        "spec_num_proposed_drafts": longest * len(steps),
        "spec_correct_drafts_histogram": [
            sum(step.accepted == drafts for step in steps) for drafts in range(deepest + 1)
        ],
    }


def _vllm_block(decoded: DecodedAnswer, *, per_step: bool) -> dict[str, Any]:
    """Counted before the last step is cut, without the steps that had no drafts."""
    drafting = decoded.drafting
    block: dict[str, Any] = {
        "num_spec_steps": len(drafting),
        "num_draft_tokens": sum(step.drafted for step in drafting),
        "num_accepted_draft_tokens": sum(step.accepted for step in drafting),
    }
    if per_step:
        block["per_step_accepted"] = [step.accepted for step in drafting]
        block["per_step_drafted"] = [step.drafted for step in drafting]
    return block


def _llama_totals(decoded: DecodedAnswer) -> Iterator[dict[str, int]]:
    """The totals after each token; the drafts of a step are counted before its first token."""
    tokens = drafted = accepted = 0
    for size, step in zip(decoded.sizes, (StreamStep(), *decoded.steps), strict=True):
        drafted, accepted = drafted + step.drafted, accepted + step.accepted
        for _ in range(size):
            tokens += 1
            draft_totals = {"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {}
            yield {"predicted_n": tokens, **draft_totals}
