"""Decides whether the engine's token count of an answer agrees with its stream.

The usage counts the tokens unless the stream contradicts it. Then the count is missing, since it is not known which of
the two is wrong, and with it everything that is computed per token. Two contradictions leave a count: reasoning that
was not sent is subtracted if the usage has its tokens, and an answer above its limit has as many tokens as it says if
its stream has more chunks of text than the limit.

Counts before the end are running totals, and an empty usage or one of 0 after another is none: they contradict nothing.

Chunks of blank text or `<think>` at the start are no tokens if their running usage says so: a chat template or a
gateway wrote them, maybe long before the first token, so the answer's chunks begin after them. Without a running usage
it is unknown whether they are tokens. The number of chunks does not show it: a drafter's chunks are fewer than its
tokens. So such an answer has no number of tokens after its first chunk, with and without a drafter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, takewhile

from specbench_client.dialects.engine_answer import EngineAnswer, RequestAcceptance
from specbench_client.dialects.openai_stream import ChatStream, count_in
from specbench_client.documents.record import TokenConflict
from specbench_client.visible_text import without_blanks
from specbench_client.workload.chat_template.reasoning import OPENS, split_channels

END_TOKENS = 1
"""Tokens by which two right counts of an answer that was not cut may differ: the token that ends it."""
_NO_TEXT = ("role", "content", "tool_calls", "function_call")
"""Members of a chunk without text: roles, and parts that are read."""
UNREAD_SHARE = 0.05
"""Share of an answer's tokens that may be in chunks without text that is read."""
FIRST_TOKENS = 8
"""Tokens of a first chunk that make no difference to the time per token: a step's drafts."""
MARKERS = 16
"""Tokens without text that an answer may have besides: those that mark reasoning, channels and roles."""


def with_checked_count(
    answer: EngineAnswer, stream: ChatStream, max_tokens: int | None, *, streamed: bool, predicted: bool = False
) -> EngineAnswer:
    """Return the answer without the counts that its stream contradicts.

    `max_tokens`: the limit of the request; None: unknown. `streamed`: an answer that was not has no chunks to compare.
    `predicted`: whether the request has a predicted output.
    """
    apart = _reasoning_apart(answer, stream)
    answer = replace(answer, output_tokens=answer.output_tokens + apart) if answer.output_tokens and apart else answer
    tokens = answer.output_tokens or 0
    # Parsers of tool calls send any number of chunks for a token.
    chunks = len([None for delta in stream.deltas if delta.text or (delta.reasoning and not delta.calls)])
    written = _chunks_without_tokens(answer, stream) if tokens else 0
    is_counted = written and answer.content[0].tokens is not None
    if is_counted:
        answer = replace(answer, content=answer.content[written:])
    chunks -= written
    found: list[tuple[TokenConflict, int | None]] = []
    if streamed:
        found += _unsent(answer, stream, chunks, predicted=predicted)
    if _usages_differ(stream):
        found.append((TokenConflict.UNEQUAL_USAGES, None))
    if chunks > tokens:
        found.append((TokenConflict.MORE_CHUNKS_THAN_TOKENS, None))
    if max_tokens is not None and tokens > max_tokens + END_TOKENS:
        found.append((TokenConflict.ABOVE_MAX_TOKENS, tokens if chunks > max_tokens or not streamed else None))
    if written and not is_counted:
        found.append((TokenConflict.UNCOUNTED_START, tokens))
    if streamed and not written and _starts_large(answer, stream):
        found.append((TokenConflict.LARGE_START, tokens))
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


def _starts_large(answer: EngineAnswer, stream: ChatStream) -> bool:
    """Return whether the first of several chunks, which are not counted, has many of the answer's tokens."""
    sizes = [_byte_count(delta.text + delta.reasoning) for delta in stream.deltas if delta.text or delta.reasoning]
    if len(sizes) < 2 or answer.tool_calls or answer.output_tokens_client is not None:
        return False
    tokens = answer.output_tokens or 0
    return tokens * sizes[0] / sum(sizes) > max(FIRST_TOKENS, UNREAD_SHARE * tokens)


def _reasoning_in_usage(stream: ChatStream) -> int:
    """Return the reasoning tokens in a usage, which SGLang has beside its other counts."""
    named = count_in(stream.usage, "completion_tokens_details", "reasoning_tokens")
    return named or count_in(stream.usage, "reasoning_tokens") or 0


def _reasoning_apart(answer: EngineAnswer, stream: ChatStream) -> int:
    """Return the reasoning tokens that were sent and are in the usage's total, but not in its output tokens (xAI)."""
    reasoning = _reasoning_in_usage(stream)
    others = (answer.input_tokens or 0) + (answer.output_tokens or 0)
    return reasoning if stream.reasoning and count_in(stream.usage, "total_tokens") == others + reasoning else 0


def _chunks_without_tokens(answer: EngineAnswer, stream: ChatStream) -> int:
    """Return how many chunks at the start were not generated, or may not have been."""
    texts = (delta.text + delta.reasoning for delta in stream.deltas if delta.text or delta.reasoning)
    pairs = zip(answer.content, texts, strict=False)
    return len([*takewhile(lambda pair: not pair[0].tokens and without_blanks(pair[1]) in ("", OPENS), pairs)])


def _unsent(
    answer: EngineAnswer, stream: ChatStream, chunks: int, *, predicted: bool
) -> Iterator[tuple[TokenConflict, int | None]]:
    """Yield that tokens were not sent, and how many were; None if the usage does not say it.

    Rejected tokens of a prediction are in the usage's count only if the request has one: a drafter's are in no count.
    Some servers count reasoning apart: it may then be more than all tokens, or the total shows it. A token has at least
    a byte of text, except in chunks with counts of their own and in the markup of tool calls.
    """
    tokens, usage = answer.output_tokens or 0, stream.usage
    rejected = count_in(usage, "completion_tokens_details", "rejected_prediction_tokens") or 0
    if predicted and rejected and chunks <= tokens - rejected:
        yield TokenConflict.UNSENT_TOKENS, tokens - rejected
        return
    reasoning = _reasoning_in_usage(stream)
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
    unread = _unread_chunks(stream)
    is_counted = chunks + unread <= tokens and unread > max(END_TOKENS, UNREAD_SHARE * tokens)
    if (unsent > MARKERS and not answer.tool_calls) or is_counted:
        yield TokenConflict.UNSENT_TOKENS, None


def _unread_chunks(stream: ChatStream) -> int:
    """Return how many chunks have nothing that is read as text, but something else: text under an unknown key."""
    silent = [one.document.get("choices") for one in stream.deltas if not (one.text or one.reasoning)]
    deltas = [choices[0].get("delta") or {} for choices in silent if choices]
    return sum(any(value for key, value in delta.items() if key not in _NO_TEXT) for delta in deltas)


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
