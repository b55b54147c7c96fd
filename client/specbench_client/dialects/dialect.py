"""What the dialects of all engines share: requests, counters, and the dialect of plain OpenAI-compatible endpoints.

Pure: a dialect builds request bodies and parses answers after all times are taken. Values that an engine does not
report are None, never 0. A plain endpoint reports neither the tokens of a chunk nor acceptance, and neither is guessed:
a chunk may contain any number of tokens. Token counts come from the usage, which is requested.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specbench_api.spec.workload import NEW_TOKEN_LIMIT, TOKEN_LIMIT, Answers, Output, Sampling, renames_token_limit
from specbench_client.chat import ChatMessage
from specbench_client.cooperative_tasks import CooperativeTask
from specbench_client.dialects.engine_answer import AnswerChunk, EngineAnswer, RequestAcceptance
from specbench_client.dialects.engine_facts import MODEL_LIST_FACTS, VERSION_FACT, FactReading
from specbench_client.dialects.metrics_page import (
    add_totals,
    counter_value,
    first_start_s,
    fraction_value,
    totals_by_model,
)
from specbench_client.dialects.openai_stream import (
    COUNTED_STREAM,
    ChatStream,
    build_answer,
    chunks_by_usage,
    count_in,
    first_model,
    read_stream,
    read_unstreamed,
    text_in,
)
from specbench_client.dialects.recognition import EngineSignature
from specbench_client.dialects.token_conflicts import with_checked_count
from specbench_client.documents.summary import CounterDeltas, TokenCounters
from specbench_client.transport.sse import SseEvent


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One engine-independent request. `seed` is this request's own seed, which is derived from `sampling.seed`."""

    model: str
    messages: tuple[ChatMessage, ...]
    sampling: Sampling
    output: Output
    seed: int
    markers: tuple[str, ...] = ()
    """Special tokens that mark the model's reasoning, which the answer's text must contain."""
    may_reuse: bool = False
    """Whether the engine may reuse the KV cache of an earlier prompt, for engines where each request decides."""
    answers: Answers | None = None

    @property
    def token_ids(self) -> Sequence[int] | None:
        """The prompt as token ids; None if it is text."""
        return self.messages[-1].token_ids

    @property
    def prompt(self) -> dict[str, Any]:
        """The body's fields with the prompt, the same on every engine with OpenAI's routes."""
        if self.token_ids is not None:
            return {"prompt": list(self.token_ids)}
        return {"messages": [one.sent for one in self.messages]}


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """The engine's own counters at one time, summed over label sets; None for a counter that it does not have."""

    output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    draft_steps: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    started_s: float | None = None
    """When the engine's process started, if it reports it. A change shows a restart that counters may not show."""
    kv_cache_usage: float | None = None
    """Fraction of the KV cache in use now, the mean over the engine's workers. Cached prefixes are not in use."""
    unread: str | None = None
    """Why there are no counters: what the server answered, or which names its page lacks."""
    other_models: tuple[str, ...] = ()
    """Other models on the page; their series are left out."""
    all_models: EngineCounters | None = None
    """The counters over all models of the page, if it has others."""


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """The model and version that the engine reports."""

    model: str | None = None
    version: str | None = None
    counts_drafts: bool = True
    """Whether the draft tokens that it reports, if any, are a count."""


class Dialect:
    """The HTTP API of a plain OpenAI-compatible endpoint; the dialects of engines extend it by what they report."""

    path = "/v1/chat/completions"
    """Route for completions of messages."""
    tokens_path = "/v1/completions"
    """Route for completions of token ids."""
    health_path = "/v1/models"
    keeps_special_tokens = False
    """Whether the engine can be requested to leave special tokens in a completion's text."""
    metrics_path = "/metrics"
    counter_series: Mapping[str, str] = {}
    """The series of each count of `EngineCounters` on the metrics page; empty if the engine has none."""
    kv_usage_series: str | None = None
    """The gauge of `EngineCounters.kv_cache_usage`."""
    identity_paths: tuple[str, ...] = ("/v1/models",)
    """Paths of the JSON documents for `identity`; any of them may be missing."""
    readings: tuple[FactReading, ...] = (VERSION_FACT, *MODEL_LIST_FACTS)
    """The facts of a launch and the pages that contain them."""
    state_path: str | None = None
    """Path of the JSON document for `speculating`."""
    signature: EngineSignature | None = None
    """How the engine is recognised; None for plain OpenAI."""

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return the JSON body, with explicit sampling parameters and a request for usage and acceptance.

        Fields that OpenAI's API does not have are not sent to a plain endpoint: some servers reject them.
        """
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        return {
            **shared_fields(request),
            **({"ignore_eos": True} if request.output.ignore_eos else {}),
            **(streamed if request.output.stream else {"stream": False}),
        }

    def read(
        self, events: Sequence[SseEvent], *, drafting: bool, max_tokens: int | None = None, predicted: bool = False
    ) -> CooperativeTask[EngineAnswer]:
        """Parse a streamed answer in slices. Raises BadAnswer.

        `drafting`: whether this arm has a drafter. `max_tokens`: the limit of the request; None: unknown. `predicted`:
        whether the request has a predicted output.
        """
        stream = yield from read_stream(events)
        answer = self._answer(stream, self._content(stream), drafting=drafting)
        return with_checked_count(answer, stream, max_tokens, streamed=True, predicted=predicted)

    def read_whole(self, document: Any, *, drafting: bool, max_tokens: int | None = None) -> EngineAnswer:
        """Parse an answer that was not streamed, without chunks and the fields derived from them. Raises BadAnswer."""
        stream = read_unstreamed(document)
        answer = replace(self._answer(stream, (), drafting=drafting), output_tokens_client=None)
        return with_checked_count(answer, stream, max_tokens, streamed=False)

    def counters(self, metrics: str, model: str | None = None) -> EngineCounters:
        """Parse a Prometheus page; counters that it does not contain are None.

        `model`: the served name. If the page has series of this name and of others, only these count.
        """
        by_model = totals_by_model(metrics)
        others = by_model.keys() - {model, None} if model is not None and model in by_model else set()
        counts = self._counts(add_totals(totals for name, totals in by_model.items() if name not in others))
        unread = None
        if self.counter_series and all(count is None for count in counts.values()):
            unread = f"GET {self.metrics_path} does not have {', '.join(self.counter_series.values())}"
        return EngineCounters(
            **counts,
            started_s=first_start_s(metrics),
            kv_cache_usage=fraction_value(metrics, self.kv_usage_series) if self.kv_usage_series else None,
            unread=unread,
            other_models=tuple(sorted(map(str, others))),
            all_models=EngineCounters(**self._counts(add_totals(by_model.values()))) if others else None,
        )

    def _counts(self, totals: Mapping[str, float]) -> dict[str, Any]:
        """Return the counts of `counter_series`."""
        return {name: counter_value(totals, series) for name, series in self.counter_series.items()}

    def identity(self, documents: Mapping[str, Any]) -> EngineIdentity:
        """Parse the documents at `identity_paths`, by path; a missing one is None or left out."""
        return EngineIdentity(first_model(documents.get("/v1/models")), text_in(documents.get("/version"), "version"))

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- not reported
        """Return whether the engine is running with a drafter; None if it does not report it."""
        return None

    def _content(self, stream: ChatStream) -> tuple[AnswerChunk, ...]:
        """Return the chunks with text, and those with tokens where the engine counts them."""
        with_text = (delta for delta in stream.deltas if delta.text or delta.reasoning)
        return tuple(AnswerChunk(delta.ns, None, delta.coalesced) for delta in with_text)

    def _answer(self, stream: ChatStream, content: tuple[AnswerChunk, ...], *, drafting: bool) -> EngineAnswer:  # noqa: ARG002 -- not reported
        """Return the answer of a stream, whose chunks are `content`."""
        answer = build_answer(stream, content, RequestAcceptance())
        return replace(answer, output_tokens_client=None, reasoning_tokens=None)


class CountedStreamDialect(Dialect, ABC):
    """A dialect of an engine that counts the tokens in each chunk on request (`continuous_usage_stats`)."""

    own_fields: Mapping[str, Any]
    """Fields of every body that only this engine has: neutral values of sampling, which its defaults may change."""

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """See `Dialect.body`. Defaults may come from the model, so all sampling fields are set."""
        return {
            **shared_fields(request),
            **self.own_fields,
            "ignore_eos": request.output.ignore_eos,
            **({"skip_special_tokens": False} if request.markers and self.keeps_special_tokens else {}),
            **(COUNTED_STREAM if request.output.stream else {"stream": False}),
        }

    def _content(self, stream: ChatStream) -> tuple[AnswerChunk, ...]:
        return chunks_by_usage(stream)

    def _answer(self, stream: ChatStream, content: tuple[AnswerChunk, ...], *, drafting: bool) -> EngineAnswer:
        output_tokens = count_in(stream.usage, "completion_tokens") or 0
        return build_answer(stream, content, self._acceptance(stream, content, output_tokens, drafting=drafting))

    @abstractmethod
    def _acceptance(
        self, stream: ChatStream, content: tuple[AnswerChunk, ...], output_tokens: int, *, drafting: bool
    ) -> RequestAcceptance:
        """Return the acceptance that the engine reports, else that of the chunks."""


def counter_difference(before: EngineCounters, after: EngineCounters) -> CounterDeltas:
    """Return the increase of each counter; None where either side lacks it.

    `restarted`: a counter decreased, or the engine's process started later than the earlier one. The differences do not
    describe the point then; they are returned unchanged for the finding that reports the restart.
    """
    gains = _gains(before, after)
    # One that started before has not restarted: several processes behind one address answer in turn.
    is_new = before.started_s is not None and after.started_s is not None and before.started_s < after.started_s
    return CounterDeltas(
        **gains,
        restarted=is_new or any(gain < 0 for gain in gains.values()),
        process_started_s=after.started_s,
        output_tokens_total=after.output_tokens,
        prompt_tokens_total=after.prompt_tokens,
        unread=before.unread or after.unread,
        other_models=list(after.other_models),
        all_models=(
            TokenCounters(**_gains(before.all_models, after.all_models))
            if before.all_models and after.all_models
            else None
        ),
    )


def is_same_process(before: EngineCounters, after: EngineCounters) -> bool:
    """Return whether the start of the process, or counts that did not fall, show that no other process answers."""
    counted = any(getattr(before, name) for name in _gains(before, after))
    is_known = counted or None not in (before.started_s, after.started_s)
    return is_known and not counter_difference(before, after).restarted


def _gains(before: EngineCounters, after: EngineCounters) -> dict[str, int]:
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in TokenCounters.model_fields}
    return {name: end - start for name, (start, end) in pairs.items() if start is not None and end is not None}


def shared_fields(request: CompletionRequest) -> dict[str, Any]:
    """Return the fields of a body that all engines with OpenAI's routes have."""
    return {
        "model": request.model,
        **request.prompt,
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "seed": request.seed,
        "max_tokens": request.output.max_tokens,
        **_form_fields(request),
    }


def with_extra_fields(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with the fields of `extraBody`, where null removes a field.

    A renamed token limit has the number of this request: a prompt may have its own, and the first completion has.
    """
    fields_ = {**body, **extra}
    if renames_token_limit(extra):
        fields_[NEW_TOKEN_LIMIT] = body[TOKEN_LIMIT]
    return {name: value for name, value in fields_.items() if value is not None}


def _form_fields(request: CompletionRequest) -> dict[str, Any]:
    """Return the fields that prescribe the form of the answer; empty if it is any text."""
    answers = request.answers
    if answers is not None and answers.json_schema is not None:
        named = {"name": "answer", "schema": answers.json_schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if answers is not None and answers.tools is not None:
        return {"tools": answers.tools, "tool_choice": "auto"}
    return {}
