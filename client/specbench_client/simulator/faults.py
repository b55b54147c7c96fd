"""All faults that the simulator can inject, each in one small method.

They are defined in one module, so that it documents all of them. The rest of the simulator calls a method of ``Faults``
at the place where a fault takes effect, and has no code for individual faults. A fault changes what the engine does or
reports; the truth file always contains what really happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from itertools import cycle, islice
from math import exp
from random import Random

from specbench_client.simulator.errors import ConfigError
from specbench_client.simulator.generated_text import GeneratedText, alter_text
from specbench_client.simulator.prefix_cache import BLOCK_TOKENS
from specbench_client.simulator.speculation import SimulatedDrafter

# A throttled engine gets slower but must not stop: without a bound a long test would never end.
MAX_SLOWDOWN = 10.0
# Time constant of a cold engine: after it, two thirds of the slowdown are gone.
WARM_UP_S = 20.0
# Period of engine time in which a decaying acceptance falls by the fault's value.
DECAY_PERIOD_S = 12 * 3600.0
# Share of answers that are wrong with too many draft tokens.
WRONG_SHARE = 0.5
# Maximum number of tokens that an endless answer repeats.
MAX_PERIOD = 8


class Fault(StrEnum):
    """The faults that can be injected."""

    MERGE_CHUNKS = "merge-chunks"
    TRUNCATE = "truncate"
    MISCOUNT = "miscount"
    DIVERGE = "diverge"
    NEVER_DRAFT = "never-draft"
    PROMPT_CACHE = "prompt-cache"
    SLOW_START = "slow-start"
    NEVER_READY = "never-ready"
    CRASH_AFTER = "crash-after"
    RESET_AFTER = "reset-after"
    STALL = "stall"
    HTTP_500 = "http-500"
    MALFORMED_SSE = "malformed-sse"
    RESTART_COUNTERS = "restart-counters"
    THROTTLE = "throttle"
    COLD = "cold"
    OWN_LIMIT = "own-limit"
    TEMPERATURE = "temperature"
    DRAFTER_MEMORY = "drafter-memory"
    OOM = "oom"
    REUSE_LAST_BLOCK = "reuse-last-block"
    REUSE_LOST = "reuse-lost"
    ACCEPTANCE_DECAY = "acceptance-decay"
    ACCEPTANCE_DECAY_CACHED = "acceptance-decay-cached"
    CORRUPT_JSON = "corrupt-json"
    BROKEN_TOOL_CALLS = "broken-tool-calls"
    LOOPS = "loops"
    EMPTY = "empty"
    FINISH_REASON = "finish-reason"
    WRONG_DEEP = "wrong-deep"
    RESTORED_DAMAGE = "restored-damage"


@dataclass(frozen=True, slots=True)
class FaultHelp:
    """A fault's default value, the meaning of the value, its effect, and its maximum."""

    default: float
    value: str
    effect: str
    greatest: float = float("inf")


FAULTS: dict[Fault, FaultHelp] = {
    Fault.MERGE_CHUNKS: FaultHelp(4, "steps", "each chunk contains the tokens of this many steps"),
    Fault.TRUNCATE: FaultHelp(0.5, "share", "only this share of the output is sent, with finish_reason stop", 1),
    Fault.MISCOUNT: FaultHelp(3, "tokens", "usage reports this many more tokens than were sent"),
    Fault.DIVERGE: FaultHelp(
        1, "share", "with a drafter, this share of answers has different text in its second half", 1
    ),
    Fault.NEVER_DRAFT: FaultHelp(1, "", "the configured drafter starts normally but never drafts"),
    Fault.PROMPT_CACHE: FaultHelp(
        0.9, "share", "this share of every prompt is a cache hit, with a fast prefill and in usage", 1
    ),
    Fault.SLOW_START: FaultHelp(30, "seconds", "every request gets 503 for this long"),
    Fault.NEVER_READY: FaultHelp(1, "", "every request gets 503 forever"),
    Fault.CRASH_AFTER: FaultHelp(1, "requests", "the process exits with 1 after answering this many requests"),
    Fault.RESET_AFTER: FaultHelp(3, "chunks", "every stream's connection is reset after this many content chunks"),
    Fault.STALL: FaultHelp(3, "chunks", "every stream stalls after this many content chunks and stays open"),
    Fault.HTTP_500: FaultHelp(1, "probability", "a request gets a 500 with this probability", 1),
    Fault.MALFORMED_SSE: FaultHelp(2, "chunk", "this content chunk (counted from 1) is cut in the middle of its JSON"),
    Fault.RESTART_COUNTERS: FaultHelp(1, "requests", "counters restart at 0 after answering this many requests"),
    Fault.THROTTLE: FaultHelp(0.2, "per second", "steps get slower by this share per second of engine time"),
    Fault.COLD: FaultHelp(2, "times", "steps start this many times slower and warm up over a minute of engine time"),
    Fault.OWN_LIMIT: FaultHelp(32, "tokens", "answers are cut after this many tokens, with finish_reason length"),
    Fault.TEMPERATURE: FaultHelp(
        1, "temperature", "answers are sampled at this temperature, whatever the request contains; 0 is greedy"
    ),
    Fault.DRAFTER_MEMORY: FaultHelp(
        0.95, "probability", "draft tokens of repeated prompts are accepted with this probability", 1
    ),
    Fault.OOM: FaultHelp(0, "requests", "killed by SIGKILL (exit 137) at the request after this many"),
    Fault.REUSE_LAST_BLOCK: FaultHelp(
        1, "", f"with a drafter, the last {BLOCK_TOKENS} tokens of each hit in the prefix cache are computed again"
    ),
    Fault.REUSE_LOST: FaultHelp(
        1, "share", "with a drafter, this share of each hit in the prefix cache is computed again", 1
    ),
    Fault.ACCEPTANCE_DECAY: FaultHelp(
        0.22, "share", "accepted tokens per step fall by this share of their first value in 12 hours of engine time", 1
    ),
    Fault.ACCEPTANCE_DECAY_CACHED: FaultHelp(
        0.22, "share", "as acceptance-decay, but only with --enable-prefix-caching", 1
    ),
    Fault.CORRUPT_JSON: FaultHelp(
        8, "requests", "with a drafter and this many requests, documents of a schema end or begin again in their middle"
    ),
    Fault.BROKEN_TOOL_CALLS: FaultHelp(1, "share", "the arguments of this share of tool calls end in their middle", 1),
    Fault.LOOPS: FaultHelp(
        1, "share", "this share of answers repeats one to eight tokens from the middle to the request's limit", 1
    ),
    Fault.EMPTY: FaultHelp(1, "share", "this share of answers has no text", 1),
    Fault.FINISH_REASON: FaultHelp(1, "share", "this share of answers has the finish reason abort", 1),
    Fault.WRONG_DEEP: FaultHelp(
        4, "draft tokens", "with more draft tokens per step, half of the answers have other words and numbers"
    ),
    Fault.RESTORED_DAMAGE: FaultHelp(
        0.5, "probability", "an answer has other words and numbers with this probability per 1000 cached prompt tokens"
    ),
}


@dataclass(frozen=True, slots=True)
class AnswerCircumstances:
    """What an answer's faults depend on, apart from its text.

    ``draft_tokens``: per step, 0 without a drafter; ``running``: requests in the engine, including this one;
    ``restored_tokens``: those of its prompt that came from the prefix cache.
    """

    max_tokens: int
    draft_tokens: int = 0
    running: int = 1
    restored_tokens: int = 0
    is_document: bool = False
    is_tool_call: bool = False


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of one engine; empty for an engine without faults."""

    values: Mapping[Fault, float] = field(default_factory=dict)

    # -- text and counts ---------------------------------------------------------------------------------------

    def rewrite(self, answer: GeneratedText, at: AnswerCircumstances) -> GeneratedText:
        """Return the answer changed by faults, which it then names."""
        for fault, change in _CHANGES.items():
            value = self.values.get(fault)
            if value is None:
                continue
            draw = Random(f"{fault}:{answer.identity}").random()  # noqa: S311 -- a simulation
            changed = change(answer, value, at) if draw < self._probability(fault, value, at) else answer
            if changed != answer:
                answer = replace(changed, faults=(*answer.faults, fault.value))
        return answer

    def _probability(self, fault: Fault, value: float, at: AnswerCircumstances) -> float:
        """Return the probability that the fault changes an answer."""
        probabilities = {
            Fault.DIVERGE: value if at.draft_tokens else 0.0,
            Fault.CORRUPT_JSON: float(bool(at.draft_tokens) and at.is_document and at.running >= value),
            Fault.WRONG_DEEP: WRONG_SHARE if at.draft_tokens > value else 0.0,
            Fault.RESTORED_DAMAGE: value * at.restored_tokens / 1000,
            Fault.BROKEN_TOOL_CALLS: value if at.is_tool_call else 0.0,
            Fault.TRUNCATE: 1.0,
            Fault.OWN_LIMIT: 1.0,
        }
        return probabilities.get(fault, value)

    def temperature(self, requested: float) -> float:
        """Return the temperature that is really used."""
        return self.values.get(Fault.TEMPERATURE, requested)

    def acceptance(self, conditional: tuple[float, ...], *, repeated: bool) -> tuple[float, ...]:
        """Return the conditional acceptance probabilities by position."""
        remembered = self.values.get(Fault.DRAFTER_MEMORY)
        return conditional if remembered is None or not repeated else (remembered,) * len(conditional)

    def decayed(self, conditional: tuple[float, ...], engine_seconds: float, *, caches: bool) -> tuple[float, ...]:
        """Return the probabilities after this time.

        Only the first one falls: the expected number of accepted tokens is proportional to it, so that it falls by
        exactly the fault's share.
        """
        share = self.values.get(Fault.ACCEPTANCE_DECAY, 0.0)
        share += self.values.get(Fault.ACCEPTANCE_DECAY_CACHED, 0.0) if caches else 0.0
        left = max(0.0, 1.0 - share * engine_seconds / DECAY_PERIOD_S)
        return tuple(one * left if position == 0 else one for position, one in enumerate(conditional))

    def drafter(self, configured: SimulatedDrafter) -> SimulatedDrafter:
        """Return the drafter that is really used."""
        return replace(configured, match_probability=0.0) if Fault.NEVER_DRAFT in self.values else configured

    def reported_tokens(self, sent: int) -> int:
        return sent + int(self.values.get(Fault.MISCOUNT, 0))

    def cached_tokens(self, prompt_tokens: int) -> int:
        return int(prompt_tokens * self.values.get(Fault.PROMPT_CACHE, 0.0))

    def reused_tokens(self, hit: int, *, speculates: bool) -> int:
        """Return how many tokens of a hit in the prefix cache are not computed again."""
        if not speculates:
            return hit
        last_block = BLOCK_TOKENS if Fault.REUSE_LAST_BLOCK in self.values else 0
        return max(0, hit - round(hit * self.values.get(Fault.REUSE_LOST, 0.0)) - last_block)

    # -- time --------------------------------------------------------------------------------------------------

    def ready(self, seconds_since_start: float) -> bool:
        return Fault.NEVER_READY not in self.values and seconds_since_start >= self.values.get(Fault.SLOW_START, 0.0)

    def slowdown(self, engine_seconds: float) -> float:
        throttled = 1.0 + self.values.get(Fault.THROTTLE, 0.0) * engine_seconds
        cold = 1.0 + (self.values.get(Fault.COLD, 1.0) - 1.0) * exp(-engine_seconds / WARM_UP_S)
        return min(MAX_SLOWDOWN, throttled * cold)

    # -- the wire ----------------------------------------------------------------------------------------------

    @property
    def steps_per_chunk(self) -> int:
        return max(1, int(self.values.get(Fault.MERGE_CHUNKS, 1)))

    def garbles(self, chunks_sent: int) -> bool:
        """Return whether the next content chunk is cut in the middle."""
        return self.values.get(Fault.MALFORMED_SSE) == chunks_sent + 1

    def resets(self, chunks_sent: int) -> bool:
        return chunks_sent >= self.values.get(Fault.RESET_AFTER, float("inf"))

    def stalls(self, chunks_sent: int) -> bool:
        return chunks_sent >= self.values.get(Fault.STALL, float("inf"))

    def refuses(self, seed: int, request_index: int) -> bool:
        """Return whether this request gets a 500."""
        chance = Random(f"http-500:{seed}:{request_index}").random()  # noqa: S311 -- a simulation
        return chance < self.values.get(Fault.HTTP_500, 0.0)

    # -- the process -------------------------------------------------------------------------------------------

    def crashes(self, answered: int) -> bool:
        return answered >= self.values.get(Fault.CRASH_AFTER, float("inf"))

    def runs_out_of_memory(self, arrived: int) -> bool:
        """Return whether the engine is killed at the request that just arrived, number ``arrived``."""
        return arrived > self.values.get(Fault.OOM, float("inf"))

    def restarts_counters(self, answered: int) -> bool:
        return self.values.get(Fault.RESTART_COUNTERS) == answered


Change = Callable[[GeneratedText, float, AnswerCircumstances], GeneratedText]


def _diverge(answer: GeneratedText, _value: float, _at: AnswerCircumstances) -> GeneratedText:
    return alter_text(answer, start=len(answer.words) // 2)


def _wrong(answer: GeneratedText, _value: float, _at: AnswerCircumstances) -> GeneratedText:
    return alter_text(answer, start=0)


def _corrupt(answer: GeneratedText, value: float, at: AnswerCircumstances) -> GeneratedText:
    """Return a document that ends in its middle or begins again there; neither is JSON."""
    middle = len(answer.words) // 2
    if not middle or Random(f"cut:{answer.identity}").random() < 0.5:  # noqa: S311 -- a simulation
        return _cut(answer, value, at)
    return replace(answer, words=answer.words[:middle] + answer.words[: len(answer.words) - middle])


def _cut(answer: GeneratedText, _value: float, _at: AnswerCircumstances) -> GeneratedText:
    return replace(answer, words=answer.words[: len(answer.words) // 2] or ("{",), finish_reason="stop")


def _loop(answer: GeneratedText, _value: float, at: AnswerCircumstances) -> GeneratedText:
    """Return the first half, whose last words are repeated up to the request's limit."""
    start = answer.words[: max(1, len(answer.words) // 2)]
    period = Random(f"period:{answer.identity}").randint(1, MAX_PERIOD)  # noqa: S311 -- a simulation
    repeated = islice(cycle(start[-period:]), max(0, at.max_tokens - len(start)))
    return replace(answer, words=(*start, *repeated), finish_reason="length")


def _empty(answer: GeneratedText, _value: float, _at: AnswerCircumstances) -> GeneratedText:
    return replace(answer, words=("",), finish_reason="stop")


def _truncate(answer: GeneratedText, value: float, _at: AnswerCircumstances) -> GeneratedText:
    return replace(answer, words=answer.words[: max(1, int(len(answer.words) * value))], finish_reason="stop")


def _limit(answer: GeneratedText, value: float, _at: AnswerCircumstances) -> GeneratedText:
    if len(answer.words) <= value:
        return answer
    return replace(answer, words=answer.words[: int(value)], finish_reason="length")


def _abort(answer: GeneratedText, _value: float, _at: AnswerCircumstances) -> GeneratedText:
    return replace(answer, finish_reason="abort")


_CHANGES: dict[Fault, Change] = {
    Fault.DIVERGE: _diverge,
    Fault.WRONG_DEEP: _wrong,
    Fault.RESTORED_DAMAGE: _wrong,
    Fault.CORRUPT_JSON: _corrupt,
    Fault.BROKEN_TOOL_CALLS: _cut,
    Fault.LOOPS: _loop,
    Fault.EMPTY: _empty,
    Fault.TRUNCATE: _truncate,
    Fault.OWN_LIMIT: _limit,
    Fault.FINISH_REASON: _abort,
}
"""The faults that change answers, in the order in which they are applied."""


def parse_faults(texts: tuple[str, ...]) -> Faults:
    """Parse ``NAME`` or ``NAME=VALUE`` options, each fault at most once. Raises ConfigError."""
    values: dict[Fault, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in FAULTS:
            near = get_close_matches(name, FAULTS, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"give one of {', '.join(FAULTS)}"
            raise ConfigError(f"--fault {text}: unknown fault {name!r}: {remedy}")
        fault = Fault(name)
        if fault in values:
            raise ConfigError(f"--fault {name} is given twice: give each fault once")
        values[fault] = _value(fault, number) if number else FAULTS[fault].default
    return Faults(values)


def _value(fault: Fault, number: str) -> float:
    known = FAULTS[fault]
    try:
        value = float(number)
    except ValueError as error:
        raise ConfigError(f"--fault {fault}={number}: {known.value or 'the value'} must be a number") from error
    if not known.value:
        raise ConfigError(f"--fault {fault}={number}: this fault takes no value: give --fault {fault}")
    if not 0 <= value <= known.greatest:
        raise ConfigError(f"--fault {fault}={number}: {known.value} must be between 0 and {known.greatest:g}")
    return value


def describe_faults() -> str:
    """Return one line per fault, for ``--help``."""
    labels = {fault: fault + (f"={known.default:g}" if known.value else "") for fault, known in FAULTS.items()}
    width = max(map(len, labels.values())) + 1
    return "\n".join(
        f"{labels[fault]:{width}s}{known.effect}" + (f" ({known.value})" if known.value else "")
        for fault, known in FAULTS.items()
    )
