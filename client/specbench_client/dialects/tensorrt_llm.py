"""TensorRT-LLM's wire: facts from sources of the 1.2 release candidates; no server of 1.2.1 was read or recorded.

A request with a field that it does not know is refused, so nothing is asked for but what its two routes have.
Tokens of a chunk come from `continuous_usage_stats`. The one thing it tells of drafting is how many tokens an iteration
gave on average so far (`avg_decoded_tokens_per_iter`): tokens / average are the iterations. The tokens are those that
were kept, so nothing is cut off afterwards, and accepted drafts are what came beyond one token a step. It tells neither
which steps had drafts nor how many: those stay unknown, and acceptance by position with them.

Whether the iteration that read the prompt is one of them is not known for 1.2.1 (in the candidates' samplers it is). It
decides on one step an answer, so it is not assumed: the first chunk shows it, which has one token, and an average of 1
where it is counted and of 0 where it is not. Where no chunk shows it (it was merged with the next, or the answer was
not streamed), steps are missing. So are they where more chunks came than there were iterations: one of them is wrong.

A token that ends the answer and is taken out of it is still among the tokens of the average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specbench_api.outcome.record import AcceptanceSource
from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.chunks import answer_of, content_by_usage, sizes_of, steps_by_chunk
from specbench_client.dialects.dialect import Acceptance, Answer, Ask, Chunk, EngineCounters, Identity
from specbench_client.dialects.facts.others import TENSORRT_LLM
from specbench_client.dialects.stream import Stream, count_in, first_model, read_stream, whole_answer
from specbench_client.slices import Slices
from specbench_client.transport.sse import Event

WHOLE = 0.01
"""How far from a whole number a count of iterations may lie: the average has the seven digits of a 32-bit float."""
_MOST = 2**53
"""Above this it is no average of tokens, and perhaps no number that a float holds."""
_AVERAGE = "avg_decoded_tokens_per_iter"
_STREAMED = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


@dataclass(frozen=True, slots=True)
class _Progress:
    """Tokens so far, that a chunk tells, and the iterations that made them; None: its average is of other tokens."""

    tokens: int
    iterations: int | None


class TensorrtLlmDialect:
    """See `Dialect`."""

    def __init__(self, kind: EngineKind = EngineKind.TENSORRT_LLM) -> None:
        self.kind = kind

    path = "/v1/chat/completions"
    tokens_path = "/v1/completions"
    keeps_special_tokens = True
    health_path = "/health"
    metrics_path = "/prometheus/metrics"  # its /metrics forgets what it has told, and is left to whoever reads it
    identity_paths: tuple[str, ...] = ("/v1/models", "/version")
    readings = TENSORRT_LLM
    state_path: str | None = None

    def body(self, ask: Ask) -> dict[str, Any]:
        """Sampling is explicit; every field is one that both routes know."""
        return {
            "model": ask.model,
            **ask.prompt,
            "temperature": ask.sampling.temperature,
            "top_p": ask.sampling.top_p,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": ask.seed,
            "max_tokens": ask.output.max_tokens,
            "ignore_eos": ask.output.ignore_eos,
            **({"skip_special_tokens": False} if ask.markers else {}),
            **(_STREAMED if ask.output.stream else {"stream": False}),
        }

    def read(self, events: Sequence[Event], *, drafting: bool) -> Slices[Answer]:
        """See `Dialect.read`."""
        stream = yield from read_stream(events)
        return _answer(stream, content_by_usage(stream), drafting=drafting)

    def read_whole(self, document: Any, *, drafting: bool) -> Answer:
        """See `Dialect.read_whole`."""
        return replace(_answer(whole_answer(document), (), drafting=drafting), output_tokens_client=None)

    def counters(self, metrics: str) -> EngineCounters:  # noqa: ARG002 -- see below
        """None: it counts requests, and neither tokens nor drafts.

        Statistics of its iterations (/metrics) have drafts, are given out once and thrown away beyond the last
        thousand: no sum over them is a count.
        """
        return EngineCounters()

    def identity(self, documents: Mapping[str, Any]) -> Identity:
        """See `Dialect.identity`."""
        version = documents.get("/version")
        told = version.get("version") if isinstance(version, dict) else None
        return Identity(
            model=first_model(documents.get("/v1/models")),
            version=told if isinstance(told, str) else None,
        )

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- nothing tells
        """See `Dialect.speculating`."""
        return None


def _answer(stream: Stream, content: tuple[Chunk, ...], *, drafting: bool) -> Answer:
    output_tokens = count_in(stream.usage, "completion_tokens") or 0
    progress = _progress(stream)
    if not progress or not output_tokens:
        return answer_of(stream, content, steps_by_chunk(content, output_tokens, drafting=drafting))
    return answer_of(stream, content, _acceptance(progress, content, output_tokens, drafting=drafting))


def _progress(stream: Stream) -> list[_Progress]:
    """What each chunk with tokens and an average tells; of a whole answer, its only one."""
    told = []
    for delta in stream.deltas:
        choices = delta.document.get("choices")
        average = _number(choices[0].get(_AVERAGE)) if choices else None
        tokens = count_in(delta.document.get("usage"), "completion_tokens")
        if tokens and average is not None:
            told.append(_Progress(tokens, _iterations(tokens, average, ended=delta.finish_reason == "stop")))
    return told


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST
    return float(value) if is_number else None


def _iterations(tokens: int, average: float, *, ended: bool) -> int | None:
    """How many: tokens / average, where that is a count. A text that ended itself may lack the token that ended it."""
    if not average:
        return 0 if tokens == 1 else None
    for made in (tokens, tokens + 1) if ended else (tokens,):
        iterations = made / average
        if iterations < made + WHOLE and abs(iterations - round(iterations)) <= WHOLE:
            return round(iterations)
    return None


def _acceptance(
    progress: Sequence[_Progress], content: Sequence[Chunk], output_tokens: int, *, drafting: bool
) -> Acceptance:
    end, sizes = progress[-1], sizes_of(content)
    prompts_own = _prompts_own(progress[0])
    steps = None if end.iterations is None or prompts_own is None else end.iterations - prompts_own
    if steps is None and not drafting:
        return steps_by_chunk(content, output_tokens, drafting=False)
    if steps is None or not len(sizes) - 1 <= steps < end.tokens:
        return Acceptance()
    accepted = end.tokens - 1 - steps
    if not accepted and not drafting:
        return Acceptance(steps=steps)
    return Acceptance(steps=steps, accepted_tokens=accepted, source=AcceptanceSource.PER_REQUEST)


def _prompts_own(first: _Progress) -> int | None:
    """1 where the iteration that read the prompt is counted, 0 where it is not; None where nothing shows it."""
    return first.iterations if first.tokens == 1 and first.iterations in (0, 1) else None
