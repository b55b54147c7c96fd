"""Decides whether the engine's token count of an answer agrees with its stream.

The usage counts the tokens unless the stream contradicts it. Then the count is missing, since it is not known which of
the two is wrong, and with it everything that is computed per token. Two contradictions leave a count: reasoning that
was not sent is subtracted if the usage has its tokens, and an answer above its limit has as many tokens as it says if
its stream has more chunks of text than the limit.

Counts before the end are running totals, and an empty usage or one of 0 after another is none: they contradict nothing.

Chunks of white space or `<think>` at the start are no tokens if their running usage says so: a chat template or a
gateway wrote them, maybe long before the first token, so the answer's chunks begin after them. The number of chunks
alone does not show it: a drafter's chunks are fewer than its tokens, and its answers would begin at another moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, takewhile

from specbench_client.dialects.engine_answer import EngineAnswer, RequestAcceptance
from specbench_client.dialects.openai_stream import ChatStream, count_in
from specbench_client.documents.record import TokenConflict
from specbench_client.workload.chat_template.reasoning import OPENS, split_channels

END_TOKENS = 1
"""Tokens by which two right counts of an answer that was not cut may differ: the token that ends it."""
MARKERS = 16
"""Tokens without text that an answer may have besides: those that mark reasoning, channels and roles."""


def with_checked_count(
    answer: EngineAnswer, stream: ChatStream, max_tokens: int | None, *, streamed: bool
) -> EngineAnswer:
    """Return the answer without the counts that its stream contradicts.

    `max_tokens`: the limit of the request; None: unknown. `streamed`: an answer that was not has no chunks to compare.
    """
    tokens = answer.output_tokens or 0
    # Parsers of tool calls send any number of chunks for a token.
    chunks = len([None for delta in stream.deltas if delta.text or (delta.reasoning and not delta.calls)])
    written = _chunks_without_tokens(answer, stream) if tokens else 0
    answer, chunks = replace(answer, content=answer.content[written:]), chunks - written
    found: list[tuple[TokenConflict, int | None]] = [*_unsent(answer, stream, chunks)] if streamed else []
    if _usages_differ(stream):
        found.append((TokenConflict.UNEQUAL_USAGES, None))
    if chunks > tokens:
        found.append((TokenConflict.MORE_CHUNKS_THAN_TOKENS, None))
    if max_tokens is not None and tokens > max_tokens + END_TOKENS:
        found.append((TokenConflict.ABOVE_MAX_TOKENS, tokens if chunks > max_tokens or not streamed else None))
    if not found:
        return answer
    conflict, counted = found[0]
    if counted == tokens:
        return replace(answer, token_conflict=conflict)
    return replace(
        answer,
        content=tuple(chunk._replace(tokens=None) for chunk in answer.content),
        acceptance=RequestAcceptance(),
        output_tokens=counted,
        output_tokens_client=None,
        reasoning_tokens=None,
        token_conflict=conflict,
    )


def _chunks_without_tokens(answer: EngineAnswer, stream: ChatStream) -> int:
    """Return how many chunks at the start were not generated."""
    texts = (delta.text + delta.reasoning for delta in stream.deltas if delta.text or delta.reasoning)
    pairs = zip(answer.content, texts, strict=False)
    return len([*takewhile(lambda pair: pair[0].tokens == 0 and pair[1].strip() in ("", OPENS), pairs)])


def _unsent(answer: EngineAnswer, stream: ChatStream, chunks: int) -> Iterator[tuple[TokenConflict, int | None]]:
    """Yield that tokens were not sent, and how many were; None if the usage does not say it.

    Some servers count reasoning apart: it may then be more than all tokens, or the total shows it. A token has at least
    a byte of text, except in chunks with counts of their own and in the markup of tool calls.
    """
    tokens, usage = answer.output_tokens or 0, stream.usage
    reasoning = count_in(usage, "completion_tokens_details", "reasoning_tokens") or 0
    if reasoning > tokens or count_in(usage, "total_tokens") == (answer.input_tokens or 0) + tokens + reasoning:
        reasoning = 0
    spoken = "".join([delta.reasoning for delta in stream.deltas if not delta.calls]) if reasoning else ""
    sent = _byte_count(spoken or split_channels(answer.text).reasoning) if reasoning else 0
    if reasoning and not sent and chunks <= tokens - reasoning:
        yield TokenConflict.UNSENT_TOKENS, tokens - reasoning
        return
    unsent = max(reasoning - sent, tokens - _byte_count(answer.reasoning + answer.text))
    if answer.output_tokens_client is not None:
        # Only tokens that the first chunk has beyond its bytes were generated before it: others are in the time after.
        first = {chunk.ns: chunk.tokens or 0 for chunk in answer.content[:1]}
        unsent = sum(first.values()) - sum(
            _byte_count(delta.text + delta.reasoning) for delta in stream.deltas if delta.ns in first
        )
    if unsent > MARKERS and not answer.tool_calls:
        yield TokenConflict.UNSENT_TOKENS, None


def _byte_count(text: str) -> int:
    """Return the bytes of a text in UTF-8; servers may split a character into surrogates."""
    return len(text.encode(errors="surrogatepass"))


def _usages_differ(stream: ChatStream) -> bool:
    """Return whether a usage is below an earlier one, or the usages since the end of the answer differ."""
    at_end = [*takewhile(lambda one: not (one.text or one.reasoning or one.finish_reason), reversed(stream.deltas))]
    final = [delta.tokens_so_far for delta in stream.deltas[-1 - len(at_end) :] if delta.tokens_so_far]
    counts = [delta.tokens_so_far for delta in stream.deltas if delta.tokens_so_far]
    falls = counts != sorted(counts) and any(
        count < most - END_TOKENS for count, most in zip(counts, accumulate(counts, max), strict=True)
    )
    return falls or (bool(final) and max(final) - min(final) > END_TOKENS)
