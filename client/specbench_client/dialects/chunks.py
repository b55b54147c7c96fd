"""What chunks tell that carry the usage so far: their tokens, and steps where the engine says nothing of its drafting.

Shared by the engines that count tokens in each chunk (`continuous_usage_stats`).
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.record import AcceptanceSource
from specbench_client.dialects.dialect import Acceptance, Answer, BadAnswer, Chunk
from specbench_client.dialects.stream import Stream, count_in, tokens_told
from specbench_client.dialects.thoughts import by_usage, thought_tokens
from specbench_client.transport.exchange import ErrorClass


def answer_of(stream: Stream, content: tuple[Chunk, ...], acceptance: Acceptance) -> Answer:
    """The answer with what OpenAI's fields say of it; one without chunks counted none of its tokens."""
    return Answer(
        text=stream.text,
        reasoning=stream.reasoning,
        content=content,
        acceptance=acceptance,
        input_tokens=count_in(stream.usage, "prompt_tokens"),
        output_tokens=count_in(stream.usage, "completion_tokens") or 0,
        output_tokens_client=tokens_told(content),
        cached_tokens=count_in(stream.usage, "prompt_tokens_details", "cached_tokens"),
        finish_reason=stream.finish_reason,
        fingerprint=stream.fingerprint,
        thought_tokens=thought_tokens(stream, by_usage),
    )


def content_by_usage(stream: Stream) -> tuple[Chunk, ...]:
    """Every chunk that brought text or tokens. The first one (role only) and the last (usage only) bring neither."""
    seen = 0
    chunks = []
    for delta in stream.deltas:
        if not delta.document.get("choices"):
            continue
        total = count_in(delta.document.get("usage"), "completion_tokens")
        if total is not None and total < seen:
            raise BadAnswer(f"a chunk counts {total} tokens after one that counted {seen}", ErrorClass.MALFORMED)
        tokens = None if total is None else total - seen
        if delta.text or delta.reasoning or tokens:
            chunks.append(Chunk(delta.ns, tokens, delta.gathered))
        seen = total or seen
    return tuple(chunks)


def steps_by_chunk(content: Sequence[Chunk], output_tokens: int, *, drafting: bool) -> Acceptance:
    """The acceptance of an answer of which the engine says nothing else. A baseline makes one token a step.

    A drafter whose acceptance is not told leaves the chunks: one a step, where the engine's stream interval is 1 and
    nobody merges. What is read from them says so (`source`), and gives way where the engine's counters deny it.
    """
    if not output_tokens:
        return Acceptance()
    if not drafting:
        return Acceptance(steps=output_tokens - 1)
    sizes = sizes_of(content)
    if sum(sizes) != output_tokens or sizes[0] != 1:
        return Acceptance()
    steps = len(sizes) - 1
    return Acceptance(steps=steps, accepted_tokens=output_tokens - 1 - steps, source=AcceptanceSource.CHUNKS)


def sizes_of(content: Sequence[Chunk]) -> list[int]:
    """Tokens of each chunk that has any."""
    return [chunk.tokens for chunk in content if chunk.tokens]
