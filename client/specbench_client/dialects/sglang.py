"""SGLang's wire: facts from the source of 0.5.23; no server of it was recorded.

Tokens of a chunk come from `continuous_usage_stats`. A request that asks for it (`return_spec_tokens_details`) has its
drafting told in a chunk of its own before the usage: verifications, correct drafts, and how many verifications had
how many correct drafts. A baseline ignores the question. Of the two acceptance lengths that can be made of it, emitted
((tokens - 1) / verifications) counts what came, verified (1 + correct / verifications) what was found correct:
correct drafts are counted before the answer is cut at its stop. What was cut is taken off here, so that both differ by
the last step alone. SGLang's own `spec_accept_length` (tokens / verifications) is a third one, and not used.

No list of steps exists. Where every chunk is one verification, the chunks put the counts in order: as many chunks of
each size as the histogram has verifications with so many drafts, and one left over, the last, of which a part came.

`spec_num_proposed_drafts` is no count: it is the verifications times the length that the server was started with. It
is left out where the answer itself denies it. Two things it hides: under `--speculative-adaptive` other lengths were
drafted, and of a tree it counts all the nodes, of which one path can be accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specbench_api.outcome.record import AcceptanceSource
from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.chunks import answer_of, content_by_usage, sizes_of, steps_by_chunk
from specbench_client.dialects.dialect import Acceptance, Answer, Ask, Chunk, EngineCounters, Identity
from specbench_client.dialects.facts.sglang import SGLANG
from specbench_client.dialects.prometheus import count, totals
from specbench_client.dialects.stream import Stream, count_in, counts_in, first_model, read_stream, whole_answer
from specbench_client.slices import Slices
from specbench_client.transport.sse import Event

_STREAMED = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


@dataclass(frozen=True, slots=True)
class _Told:
    """What a request's `spec_tokens_details` say. `by_correct`: verifications by their number of correct drafts."""

    verified: int
    correct: int
    by_correct: tuple[int, ...] | None
    proposed: int | None


@dataclass(frozen=True, slots=True)
class _Shown:
    """What its chunks show: the drafts of each step that came, in order, and how many of the last were cut off."""

    came: tuple[int, ...]
    trim: int


class SglangDialect:
    """See `Dialect`."""

    def __init__(self, kind: EngineKind = EngineKind.SGLANG) -> None:
        self.kind = kind

    path = "/v1/chat/completions"
    tokens_path = "/v1/completions"
    keeps_special_tokens = True
    health_path = "/ready"  # its /health generates a token when nobody else does
    metrics_path = "/metrics"
    identity_paths: tuple[str, ...] = ("/v1/models", "/server_info", "/model_info")
    readings = SGLANG
    state_path: str | None = "/server_info"

    def body(self, ask: Ask) -> dict[str, Any]:
        """Sampling is explicit: its defaults may come from the model. The seed counts on a deterministic server only.

        Token ids of the answer are not asked for: a streamed chat would be refused.
        """
        return {
            "model": ask.model,
            **ask.prompt,
            "temperature": ask.sampling.temperature,
            "top_p": ask.sampling.top_p,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": ask.seed,
            "max_tokens": ask.output.max_tokens,
            "ignore_eos": ask.output.ignore_eos,
            **({"skip_special_tokens": False} if ask.markers else {}),
            "return_spec_tokens_details": True,
            **(_STREAMED if ask.output.stream else {"stream": False}),
        }

    def read(self, events: Sequence[Event], *, drafting: bool) -> Slices[Answer]:
        """See `Dialect.read`."""
        stream = yield from read_stream(events)
        return _answer(stream, content_by_usage(stream), drafting=drafting)

    def read_whole(self, document: Any, *, drafting: bool) -> Answer:
        """See `Dialect.read_whole`."""
        return replace(_answer(whole_answer(document), (), drafting=drafting), output_tokens_client=None)

    def counters(self, metrics: str) -> EngineCounters:
        """Tokens and verifications, added when a request ends. Nothing counts drafts: its gauges are averages."""
        sums = totals(metrics)
        return EngineCounters(
            output_tokens=count(sums, "sglang:generation_tokens_total"),
            prompt_tokens=count(sums, "sglang:prompt_tokens_total"),
            cached_tokens=count(sums, "sglang:cached_tokens_total"),
            draft_steps=count(sums, "sglang:spec_verify_calls_total"),
            started_s=sums.get("process_start_time_seconds"),
        )

    def identity(self, documents: Mapping[str, Any]) -> Identity:
        """See `Dialect.identity`."""
        model = first_model(documents.get("/v1/models"))
        return Identity(
            model=model or _word(documents.get("/model_info"), "model_path"),
            version=_word(documents.get("/server_info"), "version"),
        )

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- its gauges exist either way
        """By the algorithm among its arguments."""
        if not isinstance(state, dict) or "speculative_algorithm" not in state:
            return None
        return bool(state["speculative_algorithm"])


def _word(document: Any, key: str) -> str | None:
    found = document.get(key) if isinstance(document, dict) else None
    return found if isinstance(found, str) else None


def _answer(stream: Stream, content: tuple[Chunk, ...], *, drafting: bool) -> Answer:
    output_tokens = count_in(stream.usage, "completion_tokens") or 0
    told = _told(stream)
    if told is None:
        return answer_of(stream, content, steps_by_chunk(content, output_tokens, drafting=drafting))
    return answer_of(stream, content, _acceptance(told, content, output_tokens))


def _told(stream: Stream) -> _Told | None:
    """What the last chunk that speaks of drafts says; None where none does."""
    spoken = (delta.document["sglext"] for delta in reversed(stream.deltas) if delta.document.get("sglext"))
    extension = next(spoken, None)
    block = extension.get("spec_tokens_details") if isinstance(extension, dict) else None
    verified, correct = count_in(block, "spec_verify_ct"), count_in(block, "spec_num_correct_drafts")
    if verified is None or correct is None:
        return None
    by_correct = counts_in(block, "spec_correct_drafts_histogram")
    if by_correct is not None and (sum(by_correct) != verified or _drafts(by_correct) != correct):
        by_correct = None  # it contradicts the engine's own sums
    return _Told(verified, correct, by_correct, count_in(block, "spec_num_proposed_drafts"))


def _drafts(by_correct: Sequence[int]) -> int:
    return sum(drafts * steps for drafts, steps in enumerate(by_correct))


def _deepest(by_correct: Sequence[int]) -> int:
    """The most correct drafts of one verification."""
    return max((drafts for drafts, steps in enumerate(by_correct) if steps), default=0)


def _acceptance(told: _Told, content: Sequence[Chunk], output_tokens: int) -> Acceptance:
    """Two unknowns stand in it: tokens = 1 + Σ(correct + 1) + steps without drafts - what was cut off.

    Where every step verified drafts, there are none without. Else the chunks tell. Where they do not either, the least
    cut that explains the count is taken.
    """
    undrafted_less_trim = output_tokens - 1 - (told.correct + told.verified)
    least = max(0, -undrafted_less_trim)
    shown = _shown(told, content, output_tokens)
    trim = least if shown is None else shown.trim
    steps = told.verified + undrafted_less_trim + trim
    most = told.correct if told.by_correct is None else _deepest(told.by_correct)
    explained = output_tokens > 0 and trim <= most
    return Acceptance(
        steps=steps if explained else None,
        draft_steps=told.verified,
        drafted_tokens=_drafted(told),
        accepted_tokens=told.correct - trim if explained else told.correct,
        step_accepted=shown.came if shown is not None and explained and steps == told.verified else None,
        source=AcceptanceSource.PER_REQUEST,
    )


def _shown(told: _Told, content: Sequence[Chunk], output_tokens: int) -> _Shown | None:
    """What the chunks show, where each is one step: by the histogram, and by the number of steps that remain."""
    sizes = sizes_of(content)
    hidden = output_tokens - sum(sizes)  # a token without text at the end has no chunk of its own
    sizes += [hidden] if hidden > 0 else []
    if told.by_correct is None or hidden < 0 or len(sizes) < 2 or sizes[0] != 1:
        return None
    came = tuple(size - 1 for size in sizes[1:])
    left = _left_over(told.by_correct, came[:-1])
    if left is None or left < came[-1]:
        return None
    return _Shown(came, left - came[-1]) if len(came) >= told.verified else None


def _left_over(by_correct: Sequence[int], came: Sequence[int]) -> int | None:
    """The correct drafts of the one step that is in the histogram and not among these; None where that is not one.

    Steps without any may be more than the histogram has: those that verified nothing.
    """
    left = Counter({drafts: steps for drafts, steps in enumerate(by_correct) if drafts})
    left.subtract(drafts for drafts in came if drafts)
    places = [drafts for drafts, steps in left.items() if steps]
    if not places:
        return 0
    return places[0] if len(places) == 1 and left[places[0]] == 1 else None


def _drafted(told: _Told) -> int | None:
    """The drafts proposed, as far as the answer does not deny that each verification had as many."""
    if told.proposed is None or not told.verified:
        return 0 if told.proposed == 0 else None
    longest, rest = divmod(told.proposed, told.verified)
    is_denied = rest or told.correct > told.proposed or _deepest(told.by_correct or ()) > longest
    return None if is_denied else told.proposed
