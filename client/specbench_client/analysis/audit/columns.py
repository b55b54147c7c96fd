"""The quantities that rules know, by the names under which papers, posts and our own tables print them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Name(StrEnum):
    """A quantity or a setting. Times are in ms, shares from 0 to 1, money in one currency."""

    METHOD = "method"
    ENGINE = "engine"
    ENGINE_VERSION = "engine_version"
    CONCURRENCY = "concurrency"
    DRAFT_LENGTH = "k"
    TEMPERATURE = "temperature"
    ACCEPTANCE_RATE = "acceptance_rate"
    ALPHA = "alpha"
    ACCEPTANCE_LENGTH = "acceptance_length"
    ACCEPTED_LENGTH = "accepted_length"
    TPOT = "tpot_ms"
    TTFT = "ttft_ms"
    E2E = "e2e_ms"
    E2E_MEAN = "e2e_mean_ms"
    STEP = "step_ms"
    SPEEDUP = "speedup"
    E2E_SPEEDUP = "e2e_speedup"
    TPOT_SPEEDUP = "tpot_speedup"
    THROUGHPUT_SPEEDUP = "throughput_speedup"
    THROUGHPUT = "throughput_tps"
    REQUESTS_PER_HOUR = "requests_per_hour"
    PRICE = "dollars_per_hour"
    COST_PER_REQUEST = "cost_per_request"
    COST_PER_MILLION = "cost_per_million_tokens"
    COST_REDUCTION = "cost_reduction"
    OUTPUT_TOKENS = "output_tokens"


TEXTS = (Name.METHOD, Name.ENGINE, Name.ENGINE_VERSION)
SETTINGS = (*TEXTS, Name.CONCURRENCY, Name.DRAFT_LENGTH, Name.TEMPERATURE)
"""What was chosen, not measured."""
TIMES = (Name.TPOT, Name.TTFT, Name.E2E, Name.E2E_MEAN, Name.STEP)
SHARES = (Name.ACCEPTANCE_RATE, Name.ALPHA, Name.COST_REDUCTION)
SPEEDUPS = (Name.SPEEDUP, Name.E2E_SPEEDUP, Name.TPOT_SPEEDUP, Name.THROUGHPUT_SPEEDUP)
COUNTS = (Name.THROUGHPUT, Name.REQUESTS_PER_HOUR, Name.OUTPUT_TOKENS)
MAY_BE_ZERO = (
    Name.DRAFT_LENGTH,
    Name.TEMPERATURE,
    *SHARES,
    Name.ACCEPTANCE_LENGTH,
    Name.ACCEPTED_LENGTH,
)
"""All others are divided by, or are no measurement where they are 0."""
WHOLE = (Name.DRAFT_LENGTH, Name.CONCURRENCY)
"""Counts of things that are whole."""

_MIDDLE = r"(?: (?:p50|median|mean|avg|average))?"
_NAMES: dict[Name, str] = {
    Name.METHOD: (
        r"method|arm|drafter|approach|configuration|config|setup|variant|strategy|technique|algorithm|speculator"
        r"|spec(?:ulative)?(?: method)?|(?:spec(?:ulative)? )?decod(?:ing|er)"
    ),
    Name.ENGINE: r"engine|framework|server",
    Name.ENGINE_VERSION: r"engine ?version|version|release",
    Name.CONCURRENCY: r"concurrency|concurrent (?:requests|users|streams)|batch(?: size)?|bs|streams|users",
    Name.DRAFT_LENGTH: (
        r"k|γ|gamma|num ?speculative ?tokens|(?:draft|speculation) length|(?:draft|spec(?:ulative)?) tokens"
    ),
    Name.TEMPERATURE: r"temperature|temp|t",
    Name.ACCEPTANCE_RATE: r"(?:draft )?accept(?:ance)?(?: (?:rate|ratio))?|ar",
    Name.ALPHA: r"α|alpha|conditional acceptance(?: rate)?|per token acceptance(?: rate)?",
    Name.ACCEPTANCE_LENGTH: (
        r"al|τ|tau|(?:mean )?accept(?:ance)? length(?: emitted| verified)?(?: pooled)?|tokens (?:per|a) step"
        r"|mean acceptance tokens"
    ),
    Name.ACCEPTED_LENGTH: r"(?:mean )?accepted (?:length|tokens)(?: per step)?|accepted per step",
    Name.TPOT: rf"tpot{_MIDDLE}|time per output token{_MIDDLE}|itl{_MIDDLE}",
    Name.TTFT: rf"ttft{_MIDDLE}|time to first token{_MIDDLE}",
    Name.E2E: r"(?:e2e|end to end)(?: latency| time)?(?: (?:p50|median))?",
    Name.E2E_MEAN: r"(?:e2e|end to end)(?: latency| time)? (?:mean|avg|average)",
    Name.STEP: rf"step(?: time| latency)?{_MIDDLE}",
    Name.SPEEDUP: r"speed ?up",
    Name.E2E_SPEEDUP: r"(?:e2e|end to end|latency) speed ?up",
    Name.TPOT_SPEEDUP: r"tpot speed ?up|tpot ratio",
    Name.THROUGHPUT_SPEEDUP: r"throughput (?:speed ?up|ratio|gain|improvement)|relative throughput",
    Name.THROUGHPUT: r"(?:(?:throughput|output) ?)?(?:tps|tok(?:ens)? (?:per )?s(?:ec(?:ond)?)?)|output throughput",
    Name.REQUESTS_PER_HOUR: r"req(?:uests)? (?:per )?h(?:our)?|requests an hour",
    Name.PRICE: r"(?:dollars|usd|price|cost|\$) (?:per )?h(?:our)?|(?:dollars|price) an hour",
    Name.COST_PER_REQUEST: r"(?:cost|\$|dollars|price) (?:per |a )?req(?:uest)?",
    Name.COST_PER_MILLION: r"(?:cost|\$|dollars|price) (?:per )?(?:1m|million|m) ?(?:output )?tok(?:ens)?",
    Name.COST_REDUCTION: r"cost (?:reduction|saved|savings?)|savings?",
    Name.OUTPUT_TOKENS: r"output (?:tokens|length)(?: per request)?|osl",
}
_KNOWN = {name: re.compile(pattern) for name, pattern in _NAMES.items()}
_UNIT = re.compile(r"[(\[](?P<bracket>[^)\]]*)[)\]]|(?:^|[\s_])(?P<tail>ns|us|µs|μs|ms|s|sec|seconds|%)(?=$|[\s_])")
_OTHER = re.compile(r"(?:p|q)(?!50$)\d+(?:\.\d+)?|min|max|minimum|maximum|minutes?|h|hours?|std|stdev|sd|best|worst")
"""In brackets: another statistic than the one that is read, or a unit that might be one."""

_LATENCIES = ("latency", "mean latency", "median latency", "average latency", "avg latency")
"""Of a token in one table, of a request in the next."""


@dataclass(frozen=True)
class Column:
    """What a column of a table is: a quantity of ours with its heading's units, or None: a setting of its own."""

    title: str
    name: Name | None
    units: tuple[str, ...] = ()
    """The words in brackets or at the end, in small letters; not all that is in brackets is a unit."""
    unread: bool = False
    """Another statistic of a quantity of ours, or a latency of nobody knows what: measured, so no setting."""


def column(title: str) -> Column:
    """Read a heading: `TPOT P50 (ms)`, `tpot_ms_p50`, `Accept rate`, `$/h`; what is not known stays a setting."""
    units = tuple(
        word
        for found in _UNIT.finditer(title)
        for word in re.split(r"[\s,;/]+", (found["bracket"] or found["tail"] or "").lower())
        if word
    )
    exact = next((name for name in Name if title.strip() == name), None)
    if exact is not None:
        return Column(title, exact, units)
    found = _known(_words(title))
    if found is None and not any(_OTHER.fullmatch(word) for word in units):
        found = _known(_words(_UNIT.sub(" ", title)))
    return Column(title, found, units, unread=found is None and _measured(title))


def _measured(title: str) -> bool:
    """Whether the heading is a measured quantity's but for the statistic: `TTFT p95`, `TPOT (ms, p99)`, `latency`."""
    words = _words(_UNIT.sub(" ", title)).split()
    plain = " ".join(word for word in words if not _OTHER.fullmatch(word))
    name = _known(plain)
    return plain in _LATENCIES or (name is not None and name not in SETTINGS)


def _known(words: str) -> Name | None:
    return next((name for name, pattern in _KNOWN.items() if pattern.fullmatch(words)), None)


def _words(title: str) -> str:
    """Small letters, one space between words, no brackets, `/` and `_` and `-` as spaces."""
    return " ".join(re.sub(r"[\s_/()\[\]*-]+", " ", title.lower().replace("#", "")).split())
