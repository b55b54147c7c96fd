"""The request of one turn: its configuration, and its URL, body and headers as they are sent.

The transport adds the headers that HTTP needs, such as Content-Length, unless the request has them already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specbench_api.spec.engine import Engine, PromptCache
from specbench_api.spec.workload import Answers, Output, Sampling, ThinkTime
from specbench_client.chat import ChatMessage
from specbench_client.dialects.dialect import CompletionRequest, Dialect
from specbench_client.load.conversations import request_seed
from specbench_client.transport.exchange import HttpRequest
from specbench_client.workload.chat_template.reasoning import SplitAnswer, split_channels
from specbench_client.workload.chat_template.template import AppliedTemplate


@dataclass(frozen=True, slots=True)
class RequestConfig:
    """The settings of all requests of a point: plain data that can be sent to a worker."""

    endpoint: str
    engine: Engine
    model: str
    sampling: Sampling
    output: Output
    repeat: int
    started_ns: int
    """The point's start (monotonic, absolute), the zero of the records' times."""
    drafting: bool
    """Whether the arm has a drafter."""
    request_prefix: str
    """Prefix of the point's request ids, `PREFIX-INDEX-TURN`, which makes them unique."""
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    counts_drafts: bool = True
    """False: the engine does not count the draft tokens that were verified, so the records have none."""
    keep_text: bool = False
    prompt_cache: PromptCache = PromptCache.DISABLED
    think_time: ThinkTime | None = None
    answers: Answers | None = None
    """What the answers are checked for."""
    template: AppliedTemplate | None = None
    """The chat template that the client applies to send token ids; None: messages are sent, the engine applies it."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Special tokens that an answer's text must contain."""
        return self.template.special_markers if self.template is not None else ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn to take.

    `intended_ns`: the intended time of sending (monotonic, absolute); `phase` may be set later.
    """

    conversation_index: int
    conversation_id: str
    prompt_id: str
    category: str | None
    turn: int
    messages: tuple[ChatMessage, ...]
    stream_index: int
    intended_ns: int
    phase: str
    output_tokens: int | None = None
    """Length of the answer, generated past its natural end; None: as the workload declares."""
    expected: str | None = None
    """The expected answer, see `expected_answers`; None: it is not compared."""


def build_request(config: RequestConfig, dialect: Dialect, turn: Turn) -> HttpRequest:
    """Return the encoded request of a turn. It does not depend on the time of sending."""
    seed = request_seed(config.sampling.seed, config.repeat, turn.conversation_id, turn.turn)
    messages = turn.messages if config.template is None else config.template.with_token_ids(turn.messages)
    output = config.output
    if turn.output_tokens is not None:
        output = output.model_copy(update={"max_tokens": turn.output_tokens, "ignore_eos": True})
    may_reuse = config.prompt_cache is PromptCache.AS_SERVED
    completion = CompletionRequest(
        config.model, messages, config.sampling, output, seed, config.markers, may_reuse, config.answers
    )
    path = dialect.path if completion.token_ids is None else dialect.tokens_path
    return HttpRequest(
        url=f"{config.endpoint.rstrip('/')}{path}",
        body=json.dumps({**dialect.body(completion), **config.extra_body}).encode(),
        headers={**config.headers, "X-Request-Id": request_id(config, turn)},
    )


def request_id(config: RequestConfig, turn: Turn) -> str:
    """Return the id of a turn's request, which is a header of the request and a field of its record."""
    return f"{config.request_prefix}-{turn.conversation_index:06d}-{turn.turn}"


def split_reply(template: AppliedTemplate | None, messages: tuple[ChatMessage, ...], text: str) -> SplitAnswer:
    """Split the text of an answer to these messages into reasoning and final text."""
    return split_channels(text) if template is None else template.split_answer(messages, text)
