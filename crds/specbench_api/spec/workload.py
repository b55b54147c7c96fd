"""`spec.workloads[]`: prompts, sampling parameters and output limits."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from specbench_api.api_model import ApiModel, PreserveUnknown, RuledModel, ValidationRule
from specbench_api.spec.answers import Answers
from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.dataset import Dataset, Source

__all__ = [
    "RESERVED_BODY_FIELDS",
    "Answers",
    "ChatTemplate",
    "Dataset",
    "Output",
    "Sampling",
    "Source",
    "SystemPrompt",
    "ThinkTime",
    "ThinkTimeDistribution",
    "Workload",
]


def _unsigned(value: float) -> float:
    """Convert -0.0 to 0.0; otherwise the spelling alone would change the point's hash."""
    return value + 0.0


class Sampling(ApiModel):
    """Sampling parameters. They are always sent explicitly, because an engine's defaults differ between models."""

    temperature: Annotated[float, Field(ge=0, le=2), AfterValidator(_unsigned)] = 0
    """Sampling temperature; 0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1
    """Nucleus sampling: cumulative probability of the tokens considered; 1 considers all."""
    seed: Annotated[int, Field(ge=0, le=2147483647)] = 0
    """Base seed: each request derives its own from it. Also the seed of everything the client draws at random."""


class Output(ApiModel):
    """Limits of the answers."""

    max_tokens: Annotated[int, Field(ge=1, le=131072)] = 256
    """Maximum tokens of one answer."""
    ignore_eos: bool = False
    """true: continue past the natural end of the answer up to maxTokens. Text past the end inflates acceptance, so the
    results are marked."""
    stream: bool = True
    """false: request answers without streaming. TTFT, TPOT and chunk times are then not available."""


class SystemPrompt(RuledModel):
    """A system message that begins every prompt, as the instructions of an application do: `tokens` or `text`."""

    rules: ClassVar = (
        ValidationRule(
            "has(self.tokens) != has(self.text)",
            "systemPrompt needs exactly one of tokens (that many random words) and text: set one and remove the other",
            lambda prompt: (prompt.tokens is None) != (prompt.text is None),
        ),
    )

    tokens: Annotated[int, Field(ge=1, le=131_072)] | None = None
    """This many random words of one token each, drawn with sampling.seed: they cost the prefill and the cache of real
    instructions, but tell the model nothing."""
    text: Annotated[str, Field(min_length=1, max_length=65_536, pattern=r"\S")] | None = None
    """The text itself."""


class ThinkTimeDistribution(StrEnum):
    """How think times vary."""

    CONSTANT = "Constant"
    """All are equal."""
    EXPONENTIAL = "Exponential"
    """Drawn for each turn from an exponential distribution, with sampling.seed: the same on every arm."""


WAIT_SECONDS_MAX = 3600
"""Maximum mean think time, and maximum wait in a recorded session."""


class ThinkTime(ApiModel):
    """How long a user waits after an answer before the next turn of the conversation.

    A stream of a closed loop waits with its user, as does a place of load.arrival.maxInFlight: fewer requests are in
    flight than `concurrency` and the throughput is limited by the users, so ConcurrencyNotReached is not evaluated. The
    latency of a turn counts from the end of its think time. First turns do not wait. After a filler, a stream waits so
    that fillers keep up the same load.
    """

    seconds: Annotated[float, Field(gt=0, le=WAIT_SECONDS_MAX)]
    """Mean think time."""
    distribution: ThinkTimeDistribution = ThinkTimeDistribution.EXPONENTIAL
    """How think times vary."""


RESERVED_BODY_FIELDS = {
    "model": "it is spec.model.name",
    "messages": "they come from the dataset",
    "prompt": "it comes from the dataset",
    "n": "each request is measured with one answer: raise load.requests instead",
    "max_tokens": "set output.maxTokens",
    "max_completion_tokens": "set output.maxTokens; to rename max_tokens, set it to null, and this to output.maxTokens",
    "ignore_eos": "set output.ignoreEos",
    "stream": "set output.stream",
    "stream_options": "it follows from output.stream",
    "temperature": "set sampling.temperature",
    "top_p": "set sampling.topP",
    "seed": "set sampling.seed: each request derives its own from it",
    "cache_prompt": "it follows from promptCache",
    "timings_per_token": "it is always on: llama.cpp reports its draft counts in it",
    "return_spec_tokens_details": "it is always on: SGLang reports its draft counts in it",
}
"""Fields of the request body that `extraBody` must not set, and what to do instead."""
NEVER_REMOVED = ("model", "messages", "prompt", "n", "stream", "cache_prompt")
"""Reserved fields that not even null removes: without them, another request would be measured."""
TOKEN_LIMIT, NEW_TOKEN_LIMIT = "max_tokens", "max_completion_tokens"
HARMLESS_FIELDS = ("seed", "stream_options")
"""Reserved fields without which the same is measured: other answers are drawn, or the usage is missing."""


def renames_token_limit(extra_body: Mapping[str, Any]) -> bool:
    """Return whether the limit of an answer's tokens is sent under its new name."""
    return extra_body.get(TOKEN_LIMIT, 0) is None and extra_body.get(NEW_TOKEN_LIMIT) is not None


WITHHOLDS_REASONING = ("include_reasoning", "stream_reasoning")
"""Fields of vLLM's and SGLang's requests. If false, the tokens of the reasoning are never sent, or all at its end."""


class Workload(RuledModel):
    """Prompts, and how they are answered."""

    rules: ClassVar = (
        ValidationRule(
            "(!has(self.dataset.sessions) || self.dataset.sessions.answerTokens <= self.output.maxTokens)"
            " && (!has(self.dataset.members) || self.dataset.members.all(m, !has(m.sessions)"
            " || m.sessions.answerTokens <= self.output.maxTokens))",
            "sessions.answerTokens is larger than output.maxTokens, so the answers would be cut: raise output.maxTokens"
            " (without it, it is 256)",
            lambda workload: all(
                part.sessions is None or part.sessions.answer_tokens <= workload.output.max_tokens
                for part in (workload.dataset, *(workload.dataset.members or ()))
            ),
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    """Name in tables and status: `chat`."""
    dataset: Dataset
    """The prompts."""
    system_prompt: SystemPrompt | None = None
    """What all prompts begin with. A prompt's own system message follows in the same message. dataset.inputTokens does
    not count it. Without it: the prompts as they are."""
    think_time: ThinkTime | None = None
    """Wait between the turns of a conversation. Without it: a turn is sent as soon as the earlier answer has ended."""
    sampling: Sampling = Sampling()
    """Sampling parameters."""
    output: Output = Output()
    """Limits of the answers."""
    answers: Answers | None = None
    """What the answers are checked for, besides flaws that need no question. Without it: only those."""
    extra_body: Annotated[dict[str, Any], Field(max_length=32), PreserveUnknown()] = {}
    """Additional fields of every request's body, on every arm: top_k, stop, chat_template_kwargs, … null removes a
    field that a server rejects: {seed: null}. {max_tokens: null, max_completion_tokens: N} renames the limit of an
    answer's tokens, where N is output.maxTokens. Rejected are other values of fields that specbench sets itself, except
    its neutral values of other samplers (top_k, min_p, penalties), which are overridden, and fields that withhold
    reasoning (include_reasoning: false, stream_reasoning: false)."""
    chat_template: ChatTemplate | None = None
    """Who renders messages into tokens. Without it: the engine, with its own chat template."""

    @property
    def renames_token_limit(self) -> bool:
        """Whether `extraBody` renames the limit of an answer's tokens, and does not change it."""
        return renames_token_limit(self.extra_body) and self.extra_body[NEW_TOKEN_LIMIT] == self.output.max_tokens

    @property
    def claimed_fields(self) -> list[str]:
        """Names in `extraBody` that specbench sets itself, unless null removes them or the token limit is renamed."""
        extra = self.extra_body
        return sorted(
            name
            for name in RESERVED_BODY_FIELDS.keys() & extra
            if (extra[name] is not None or name in NEVER_REMOVED)
            and not (self.renames_token_limit and name == NEW_TOKEN_LIMIT)
        )

    @property
    def measured_fields(self) -> dict[str, Any]:
        """`extraBody` without what leaves the measured work the same: a renamed limit, and removed HARMLESS_FIELDS."""
        same = {name for name in HARMLESS_FIELDS if self.extra_body.get(name, 0) is None}
        same |= {TOKEN_LIMIT, NEW_TOKEN_LIMIT} if self.renames_token_limit else set()
        return {name: value for name, value in self.extra_body.items() if name not in same}

    @property
    def greedy(self) -> bool | None:
        """Whether requests ask for greedy answers; None if `extraBody` removes the temperature: the server chooses."""
        return None if "temperature" in self.extra_body else self.sampling.temperature == 0

    @property
    def waits(self) -> bool:
        """Whether a stream may wait between the requests of a conversation."""
        return self.think_time is not None or self.dataset.share_of(Source.AGENT_TRACES) > 0

    @property
    def requests_reasoning(self) -> bool | None:
        """Whether `extraBody` switches the model's reasoning on or off; None if it does neither.

        The variables of the chat template are those of most models; some engines add `reasoning_effort: none`.
        """
        variables = self.extra_body.get("chat_template_kwargs")
        variables = variables if isinstance(variables, dict) else {}
        for switch in (variables.get("enable_thinking"), variables.get("thinking")):
            if isinstance(switch, bool):
                return switch
        effort = self.extra_body.get("reasoning_effort")
        return effort != "none" if isinstance(effort, str) else None

    @property
    def client_template(self) -> ChatTemplate | None:
        """The chat template that the client applies; None if the engine applies its own."""
        return self.chat_template if self.chat_template is not None and self.chat_template.by_client else None
