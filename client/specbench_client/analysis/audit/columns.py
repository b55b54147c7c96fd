"""The quantities that rules use, and the column headings under which papers, posts and specbench print them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Quantity(StrEnum):
    """A quantity or a setting. Times are in ms, shares are from 0 to 1, money is in one currency."""

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


TEXTS = (Quantity.METHOD, Quantity.ENGINE, Quantity.ENGINE_VERSION)
SETTINGS = (*TEXTS, Quantity.CONCURRENCY, Quantity.DRAFT_LENGTH, Quantity.TEMPERATURE)
"""What was chosen and not measured."""
TIMES = (Quantity.TPOT, Quantity.TTFT, Quantity.E2E, Quantity.E2E_MEAN, Quantity.STEP)
SHARES = (Quantity.ACCEPTANCE_RATE, Quantity.ALPHA, Quantity.COST_REDUCTION)
SPEEDUPS = (Quantity.SPEEDUP, Quantity.E2E_SPEEDUP, Quantity.TPOT_SPEEDUP, Quantity.THROUGHPUT_SPEEDUP)
REQUEST_SPEEDUPS = (Quantity.SPEEDUP, Quantity.E2E_SPEEDUP)
"""Columns that may be speed-ups of whole requests."""
COUNTS = (Quantity.THROUGHPUT, Quantity.REQUESTS_PER_HOUR, Quantity.OUTPUT_TOKENS)
MAY_BE_ZERO = (
    Quantity.DRAFT_LENGTH,
    Quantity.TEMPERATURE,
    *SHARES,
    Quantity.ACCEPTANCE_LENGTH,
    Quantity.ACCEPTED_LENGTH,
)
"""Quantities that may be 0. All others are divisors, or cannot have been measured as 0."""
WHOLE = (Quantity.DRAFT_LENGTH, Quantity.CONCURRENCY)
"""Quantities that are whole numbers."""

_MIDDLE = r"(?: (?:p50|median|mean|avg|average))?"
_NAMES: dict[Quantity, str] = {
    Quantity.METHOD: (
        r"method|arm|drafter|approach|configuration|config|setup|variant|strategy|technique|algorithm|speculator"
        r"|spec(?:ulative)?(?: method)?|(?:spec(?:ulative)? )?decod(?:ing|er)"
    ),
    Quantity.ENGINE: r"engine|framework|server",
    Quantity.ENGINE_VERSION: r"engine ?version|version|release",
    Quantity.CONCURRENCY: r"concurrency|concurrent (?:requests|users|streams)|batch(?: size)?|bs|streams|users",
    Quantity.DRAFT_LENGTH: (
        r"k|γ|gamma|num ?speculative ?tokens|(?:draft|speculation) length|(?:draft|spec(?:ulative)?) tokens"
    ),
    Quantity.TEMPERATURE: r"temperature|temp|t",
    Quantity.ACCEPTANCE_RATE: r"(?:draft )?accept(?:ance)?(?: (?:rate|ratio))?|ar",
    Quantity.ALPHA: r"α|alpha|conditional acceptance(?: rate)?|per token acceptance(?: rate)?",
    Quantity.ACCEPTANCE_LENGTH: (
        r"al|τ|tau|(?:mean )?accept(?:ance)? length(?: emitted| verified)?(?: pooled)?|tokens (?:per|a) step"
        r"|mean acceptance tokens"
    ),
    Quantity.ACCEPTED_LENGTH: r"(?:mean )?accepted (?:length|tokens)(?: per step)?|accepted per step",
    Quantity.TPOT: rf"tpot{_MIDDLE}|time per output token{_MIDDLE}|itl{_MIDDLE}",
    Quantity.TTFT: rf"ttft{_MIDDLE}|time to first token{_MIDDLE}",
    Quantity.E2E: r"(?:e2e|end to end)(?: latency| time)?(?: (?:p50|median))?",
    Quantity.E2E_MEAN: r"(?:e2e|end to end)(?: latency| time)? (?:mean|avg|average)",
    Quantity.STEP: rf"step(?: time| latency)?{_MIDDLE}",
    Quantity.SPEEDUP: r"speed ?up",
    Quantity.E2E_SPEEDUP: r"(?:e2e|end to end|latency) speed ?up",
    Quantity.TPOT_SPEEDUP: r"tpot speed ?up|tpot ratio",
    Quantity.THROUGHPUT_SPEEDUP: r"throughput (?:speed ?up|ratio|gain|improvement)|relative throughput",
    Quantity.THROUGHPUT: r"(?:(?:throughput|output) ?)?(?:tps|tok(?:ens)? (?:per )?s(?:ec(?:ond)?)?)|output throughput",
    Quantity.REQUESTS_PER_HOUR: r"req(?:uests)? (?:per )?h(?:our)?|requests an hour",
    Quantity.PRICE: r"(?:dollars|usd|price|cost|\$) (?:per )?h(?:our)?|(?:dollars|price) an hour",
    Quantity.COST_PER_REQUEST: r"(?:cost|\$|dollars|price) (?:per |a )?req(?:uest)?",
    Quantity.COST_PER_MILLION: r"(?:cost|\$|dollars|price) (?:per )?(?:1m|million|m) ?(?:output )?tok(?:ens)?",
    Quantity.COST_REDUCTION: r"cost (?:reduction|saved|savings?)|savings?",
    Quantity.OUTPUT_TOKENS: r"output (?:tokens|length)(?: per request)?|osl",
}
_KNOWN = {name: re.compile(pattern) for name, pattern in _NAMES.items()}
_UNIT = re.compile(r"[(\[](?P<bracket>[^)\]]*)[)\]]|(?:^|[\s_])(?P<tail>ns|us|µs|μs|ms|s|sec|seconds|%)(?=$|[\s_])")
_OTHER = re.compile(r"(?:p|q)(?!50$)\d+(?:\.\d+)?|min|max|minimum|maximum|minutes?|h|hours?|std|stdev|sd|best|worst")
"""Words in brackets that name another statistic than median or mean, or an ambiguous unit."""

_LATENCIES = ("latency", "mean latency", "median latency", "average latency", "avg latency")
"""Ambiguous headings: the latency of a token in one table, of a request in another."""


@dataclass(frozen=True)
class HeadingColumn:
    """A column of a table: a known quantity with the units of its heading, or a setting (`name` is None)."""

    title: str
    name: Quantity | None
    units: tuple[str, ...] = ()
    """The words in brackets or at the end, in lower case; not all of them are units."""
    unread: bool = False
    """Whether it is another statistic of a known quantity, or an ambiguous latency: measured, so not a setting."""


def read_heading(title: str) -> HeadingColumn:
    """Read a heading such as `TPOT P50 (ms)`, `tpot_ms_p50`, `Accept rate` or `$/h`; unknown headings are settings."""
    units = tuple(
        word
        for found in _UNIT.finditer(title)
        for word in re.split(r"[\s,;/]+", (found["bracket"] or found["tail"] or "").lower())
        if word
    )
    exact = next((name for name in Quantity if title.strip() == name), None)
    if exact is not None:
        return HeadingColumn(title, exact, units)
    found = _known(_words(title))
    if found is None and not any(_OTHER.fullmatch(word) for word in units):
        found = _known(_words(_UNIT.sub(" ", title)))
    return HeadingColumn(title, found, units, unread=found is None and _measured(title))


def _measured(title: str) -> bool:
    """Return whether a heading is a measured quantity of another statistic: `TTFT p95`, `TPOT (ms, p99)`, `latency`."""
    words = _words(_UNIT.sub(" ", title)).split()
    plain = " ".join(word for word in words if not _OTHER.fullmatch(word))
    name = _known(plain)
    return plain in _LATENCIES or (name is not None and name not in SETTINGS)


def _known(words: str) -> Quantity | None:
    return next((name for name, pattern in _KNOWN.items() if pattern.fullmatch(words)), None)


def _words(title: str) -> str:
    """Return the words in lower case, separated by one space, without brackets, `/`, `_` and `-`."""
    return " ".join(re.sub(r"[\s_/()\[\]*-]+", " ", title.lower().replace("#", "")).split())


# Units of cells and headings. The unit of a cell takes precedence over that of its heading. A unit that does not belong
# to its quantity is rejected and not guessed: a speed-up of `+89%` may be 0.89 or 1.89.

_TIMES = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3}
"""Factors to ms. Both signs for micro are in use."""
_OF: tuple[tuple[tuple[Quantity, ...], Mapping[str, float]], ...] = (
    (TIMES, _TIMES),
    (SHARES, {"%": 0.01}),
    (SPEEDUPS, {"x": 1.0, "×": 1.0}),
    (COUNTS, {"k": 1000.0}),
)


def units_of(name: Quantity) -> Mapping[str, float]:
    """Return the units that a quantity may be printed in, each with its factor to specbench's unit."""
    return next((units for names, units in _OF if name in names), {})


def heading_unit(column: HeadingColumn) -> str:
    """Return the unit that a heading gives its cells; empty if it has none."""
    known = units_of(column.name) if column.name else {}
    return next((word for word in column.units if word in known), "")


def unit_factor(name: Quantity, heading: str, cell: str) -> float:
    """Return the factor to specbench's unit. `heading`, `cell`: their units, empty for none. Raises ValueError."""
    known = units_of(name)
    if cell and cell not in known:
        allowed = ", ".join(known) or "none"
        raise ValueError(f"{cell!r} is not a unit of {name} (its units: {allowed})")
    return known[cell] if cell else known.get(heading, 1.0)
