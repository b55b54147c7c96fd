"""All faults that the simulator can inject, each in one small method.

`FAULTS` names and describes all of them. The rest of the simulator calls a method of ``Faults``
at the place where a fault takes effect, and has no code for individual faults. A fault changes what the engine does or
reports; the truth file always contains what really happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
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


@dataclass(frozen=True, slots=True)
class FaultHelp:
    """A fault's default value, the meaning of the value, its effect, and its maximum."""

    default: float
    value: str
    effect: str
    greatest: float = float("inf")


FAULTS: dict[str, FaultHelp] = {
    "merge-chunks": FaultHelp(4, "steps", "each chunk contains the tokens of this many steps"),
    "truncate": FaultHelp(0.5, "share", "only this share of the output is sent, with finish_reason stop", 1),
    "miscount": FaultHelp(3, "tokens", "usage reports this many more tokens than were sent"),
    "diverge": FaultHelp(1, "share", "with a drafter, this share of answers has different text in its second half", 1),
    "never-draft": FaultHelp(1, "", "the configured drafter starts normally but never drafts"),
    "prompt-cache": FaultHelp(
        0.9, "share", "this share of every prompt is a cache hit, with a fast prefill and in usage", 1
    ),
    "slow-start": FaultHelp(30, "seconds", "every request gets 503 for this long"),
    "never-ready": FaultHelp(1, "", "every request gets 503 forever"),
    "crash-after": FaultHelp(1, "requests", "the process exits with 1 after answering this many requests"),
    "reset-after": FaultHelp(3, "chunks", "every stream's connection is reset after this many content chunks"),
    "stall": FaultHelp(3, "chunks", "every stream stalls after this many content chunks and stays open"),
    "http-500": FaultHelp(1, "probability", "a request gets a 500 with this probability", 1),
    "malformed-sse": FaultHelp(2, "chunk", "this content chunk (counted from 1) is cut in the middle of its JSON"),
    "restart-counters": FaultHelp(1, "requests", "counters restart at 0 after answering this many requests"),
    "throttle": FaultHelp(0.2, "per second", "steps get slower by this share per second of engine time"),
    "cold": FaultHelp(2, "times", "steps start this many times slower and warm up over a minute of engine time"),
    "own-limit": FaultHelp(32, "tokens", "answers are cut after this many tokens, with finish_reason length"),
    "temperature": FaultHelp(
        1, "temperature", "answers are sampled at this temperature, whatever the request contains; 0 is greedy"
    ),
    "drafter-memory": FaultHelp(
        0.95, "probability", "draft tokens of repeated prompts are accepted with this probability", 1
    ),
    "oom": FaultHelp(0, "requests", "killed by SIGKILL (exit 137) at the request after this many"),
    "reuse-last-block": FaultHelp(
        1, "", f"with a drafter, the last {BLOCK_TOKENS} tokens of each hit in the prefix cache are computed again"
    ),
    "reuse-lost": FaultHelp(
        1, "share", "with a drafter, this share of each hit in the prefix cache is computed again", 1
    ),
    "acceptance-decay": FaultHelp(
        0.22, "share", "accepted tokens per step fall by this share of their first value in 12 hours of engine time", 1
    ),
    "acceptance-decay-cached": FaultHelp(
        0.22, "share", "as acceptance-decay, but only with --enable-prefix-caching", 1
    ),
    "corrupt-json": FaultHelp(
        8, "requests", "with a drafter and this many requests, documents of a schema end or begin again in their middle"
    ),
    "broken-tool-calls": FaultHelp(1, "share", "the arguments of this share of tool calls end in their middle", 1),
    "loops": FaultHelp(
        1, "share", "this share of answers repeats one to eight tokens from the middle to the request's limit", 1
    ),
    "empty": FaultHelp(1, "share", "this share of answers has no text", 1),
    "finish-reason": FaultHelp(1, "share", "this share of answers has the finish reason abort", 1),
    "wrong-deep": FaultHelp(
        4, "draft tokens", "with more draft tokens per step, half of the answers have other words and numbers"
    ),
    "restored-damage": FaultHelp(
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

    values: Mapping[str, float] = field(default_factory=dict)

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
                answer = replace(changed, faults=(*answer.faults, fault))
        return answer

    def _probability(self, fault: str, value: float, at: AnswerCircumstances) -> float:
        """Return the probability that the fault changes an answer."""
        probabilities = {
            "diverge": value if at.draft_tokens else 0.0,
            "corrupt-json": float(bool(at.draft_tokens) and at.is_document and at.running >= value),
            "wrong-deep": WRONG_SHARE if at.draft_tokens > value else 0.0,
            "restored-damage": value * at.restored_tokens / 1000,
            "broken-tool-calls": value if at.is_tool_call else 0.0,
            "truncate": 1.0,
            "own-limit": 1.0,
        }
        return probabilities.get(fault, value)

    def temperature(self, requested: float) -> float:
        """Return the temperature that is really used."""
        return self.values.get("temperature", requested)

    def acceptance(self, conditional: tuple[float, ...], *, repeated: bool) -> tuple[float, ...]:
        """Return the conditional acceptance probabilities by position."""
        remembered = self.values.get("drafter-memory")
        return conditional if remembered is None or not repeated else (remembered,) * len(conditional)

    def decayed(self, conditional: tuple[float, ...], engine_seconds: float, *, caches: bool) -> tuple[float, ...]:
        """Return the probabilities after this time.

        Only the first one falls: the expected number of accepted tokens is proportional to it, so that it falls by
        exactly the fault's share.
        """
        share = self.values.get("acceptance-decay", 0.0)
        share += self.values.get("acceptance-decay-cached", 0.0) if caches else 0.0
        left = max(0.0, 1.0 - share * engine_seconds / DECAY_PERIOD_S)
        return tuple(one * left if position == 0 else one for position, one in enumerate(conditional))

    def drafter(self, configured: SimulatedDrafter) -> SimulatedDrafter:
        """Return the drafter that is really used."""
        return replace(configured, match_probability=0.0) if "never-draft" in self.values else configured

    def reported_tokens(self, sent: int) -> int:
        return sent + int(self.values.get("miscount", 0))

    def cached_tokens(self, prompt_tokens: int) -> int:
        return int(prompt_tokens * self.values.get("prompt-cache", 0.0))

    def reused_tokens(self, hit: int, *, speculates: bool) -> int:
        """Return how many tokens of a hit in the prefix cache are not computed again."""
        if not speculates:
            return hit
        last_block = BLOCK_TOKENS if "reuse-last-block" in self.values else 0
        return max(0, hit - round(hit * self.values.get("reuse-lost", 0.0)) - last_block)

    # -- time --------------------------------------------------------------------------------------------------

    def ready(self, seconds_since_start: float) -> bool:
        return "never-ready" not in self.values and seconds_since_start >= self.values.get("slow-start", 0.0)

    def slowdown(self, engine_seconds: float) -> float:
        throttled = 1.0 + self.values.get("throttle", 0.0) * engine_seconds
        cold = 1.0 + (self.values.get("cold", 1.0) - 1.0) * exp(-engine_seconds / WARM_UP_S)
        return min(MAX_SLOWDOWN, throttled * cold)

    # -- the wire ----------------------------------------------------------------------------------------------

    @property
    def steps_per_chunk(self) -> int:
        return max(1, int(self.values.get("merge-chunks", 1)))

    def garbles(self, chunks_sent: int) -> bool:
        """Return whether the next content chunk is cut in the middle."""
        return self.values.get("malformed-sse") == chunks_sent + 1

    def resets(self, chunks_sent: int) -> bool:
        return chunks_sent >= self.values.get("reset-after", float("inf"))

    def stalls(self, chunks_sent: int) -> bool:
        return chunks_sent >= self.values.get("stall", float("inf"))

    def refuses(self, seed: int, request_index: int) -> bool:
        """Return whether this request gets a 500."""
        chance = Random(f"http-500:{seed}:{request_index}").random()  # noqa: S311 -- a simulation
        return chance < self.values.get("http-500", 0.0)

    # -- the process -------------------------------------------------------------------------------------------

    def crashes(self, answered: int) -> bool:
        return answered >= self.values.get("crash-after", float("inf"))

    def runs_out_of_memory(self, arrived: int) -> bool:
        """Return whether the engine is killed at the request that just arrived, number ``arrived``."""
        return arrived > self.values.get("oom", float("inf"))

    def restarts_counters(self, answered: int) -> bool:
        return self.values.get("restart-counters") == answered


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


_CHANGES: dict[str, Change] = {
    "diverge": _diverge,
    "wrong-deep": _wrong,
    "restored-damage": _wrong,
    "corrupt-json": _corrupt,
    "broken-tool-calls": _cut,
    "loops": _loop,
    "empty": _empty,
    "truncate": _truncate,
    "own-limit": _limit,
    "finish-reason": _abort,
}
"""The faults that change answers, in the order in which they are applied."""


def parse_faults(texts: tuple[str, ...]) -> Faults:
    """Parse ``NAME`` or ``NAME=VALUE`` options, each fault at most once. Raises ConfigError."""
    values: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in FAULTS:
            near = get_close_matches(name, FAULTS, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"give one of {', '.join(FAULTS)}"
            raise ConfigError(f"--fault {text}: unknown fault {name!r}: {remedy}")
        if name in values:
            raise ConfigError(f"--fault {name} is given twice: give each fault once")
        values[name] = _value(name, number) if number else FAULTS[name].default
    return Faults(values)


def _value(fault: str, number: str) -> float:
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
