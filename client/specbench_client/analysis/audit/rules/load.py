"""Concurrency, throughput and times of one closed loop are bound to one another."""

from __future__ import annotations

from specbench_client.analysis.audit.columns import Name
from specbench_client.analysis.audit.document import Document, Row
from specbench_client.analysis.audit.numbers import Told, exactly
from specbench_client.analysis.audit.rule import Looked, Rule, Seen

RATIO = 0.10
PARTS = 0.15
MS_PER_HOUR = 3_600_000.0
OF_WHOLE = (Name.SPEEDUP, Name.E2E_SPEEDUP)
RATES = (Name.THROUGHPUT, Name.REQUESTS_PER_HOUR)


def _rates(document: Document, row: Row) -> list[tuple[Told, str]]:
    """The row's throughput over the baseline's, by each column that tells it."""
    told = row.get(Name.THROUGHPUT_SPEEDUP)
    found = [(told, f"throughput ratio told: {told}")] if told else []
    baseline = document.baseline_of(row)
    for name in RATES:
        base, mine = baseline.get(name) if baseline else None, row.get(name)
        if base and mine:
            found.append((mine / base, f"{name} ratio: {mine} / {base} = {mine / base}"))
    return found


def _throughput(document: Document) -> Looked:
    asked, seen = 0, []
    speedups = [(row, told, name) for row in document.rows for name in OF_WHOLE if (told := row.get(name))]
    for row in document.rows:
        for rate, sum_ in [] if row.is_baseline else _rates(document, row):
            for other, told, name in speedups:
                if other.is_baseline or not _same(row, other):
                    continue
                asked += 1
                if rate.apart(told, RATIO):
                    rows = (row,) if other is row else (row, other)
                    words = f"{row.label}: a throughput ratio of {rate} disagrees with its own {name} of {told}"
                    where = "" if other.table == row.table else f" (table {other.table})"
                    seen.append(Seen(rows, words, (sum_, f"{name} at the same settings{where}: {told}", _LITTLE)))
    return Looked(asked, seen)


_LITTLE = "closed loop at one concurrency: throughput = concurrency / time of a request, so both ratios are one"


def _same(row: Row, other: Row) -> bool:
    """Whether both state the same settings, a load among them."""
    return row.concurrency is not None and dict(row.settings) == dict(other.settings)


def _streams(document: Document) -> Looked:
    asked, seen = 0, []
    for row in document.rows:
        tpot, rate, streams = row.get(Name.TPOT), row.get(Name.THROUGHPUT), row.concurrency
        if tpot and rate and streams:
            asked += 1
            most = exactly(streams * 1000) / tpot
            if rate.above(most, RATIO):
                words = (
                    f"{row.label}: {rate} tokens a second are more than {streams:g} streams make at {tpot} ms a token"
                )
                seen.append(Seen((row,), words, (f"{streams:g} × 1000 / {tpot} = {most}",)))
    return Looked(asked, seen)


def _little(document: Document) -> Looked:
    asked, seen = 0, []
    for row in document.rows:
        whole, rate, streams = row.get(Name.E2E_MEAN), row.get(Name.REQUESTS_PER_HOUR), row.concurrency
        if whole and rate and streams:
            asked += 1
            expected = exactly(streams * MS_PER_HOUR) / whole
            if rate.apart(expected, RATIO):
                words = f"{row.label}: {rate} requests an hour are not what {streams:g} streams make of {whole} ms each"
                seen.append(Seen((row,), words, (f"{streams:g} × 3,600,000 / {whole} = {expected}",)))
    return Looked(asked, seen)


def _parts(document: Document) -> Looked:
    asked, seen = 0, []
    for row in document.rows:
        whole, first = row.get(Name.E2E) or row.get(Name.E2E_MEAN), row.get(Name.TTFT)
        tpot, tokens = row.get(Name.TPOT), row.get(Name.OUTPUT_TOKENS)
        if whole and first and tpot and tokens:
            asked += 1
            expected = first + tpot * (tokens - exactly(1.0))
            if whole.apart(expected, PARTS):
                sum_ = f"{first} + {tpot} × ({tokens} − 1) = {expected}"
                words = f"{row.label}: {whole} ms for a request are not its first token and the others"
                seen.append(Seen((row,), words, (sum_, f"told: {whole}")))
    return Looked(asked, seen)


THROUGHPUT = Rule(
    "ThroughputRatio",
    "at one concurrency, throughput over the baseline's = whole-request speed-up",
    "Little's law: in a closed loop throughput is concurrency over the mean time of a request. Compared where both"
    " are told at the same settings, in one table or in two. A steady window of few requests may be some percent off",
    f"{RATIO:.0%}",
    _throughput,
)
STREAMS = Rule(
    "ThroughputAboveStreams",
    "output tokens a second ≤ concurrency / TPOT",
    "no stream emits more than one token each TPOT, and none while it prefills",
    f"{RATIO:.0%}",
    _streams,
)
LITTLE = Rule(
    "LittlesLaw",
    "requests an hour = concurrency × 3600 s / mean time of a request",
    "Little's law in a closed loop; asked where the column says that its time is a mean",
    f"{RATIO:.0%}",
    _little,
)
END_TO_END = Rule(
    "EndToEnd",
    "E2E = TTFT + (output tokens − 1) × TPOT",
    "the definition of TPOT. Medians of skewed parts do not add up exactly",
    f"{PARTS:.0%}",
    _parts,
)
