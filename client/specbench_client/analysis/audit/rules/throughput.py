"""Rules on concurrency, throughput, latency and cost of a closed loop."""

from __future__ import annotations

from specbench_client.analysis.audit.columns import REQUEST_SPEEDUPS, Quantity
from specbench_client.analysis.audit.document import AuditDocument, AuditRow
from specbench_client.analysis.audit.printed_numbers import PrintedNumber, exactly
from specbench_client.analysis.audit.rules.rule import AuditRule, RuleOutcome, RuleViolation

RATIO = 0.10
PARTS = 0.15
MS_PER_HOUR = 3_600_000.0
RATES = (Quantity.THROUGHPUT, Quantity.REQUESTS_PER_HOUR)


def _rates(document: AuditDocument, row: AuditRow) -> list[tuple[PrintedNumber, str]]:
    """Return the row's throughput over the baseline's, from each column that has it, with its formula."""
    stated = row.get(Quantity.THROUGHPUT_SPEEDUP)
    found = [(stated, f"throughput ratio stated: {stated}")] if stated else []
    baseline = document.baseline_of(row)
    for name in RATES:
        base, mine = baseline.get(name) if baseline else None, row.get(name)
        if base and mine:
            found.append((mine / base, f"{name} ratio: {mine} / {base} = {mine / base}"))
    return found


def _throughput(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    speedups = [(row, stated, name) for row in document.rows for name in REQUEST_SPEEDUPS if (stated := row.get(name))]
    for row in document.rows:
        for rate, sum_ in [] if row.is_baseline else _rates(document, row):
            for other, stated, name in speedups:
                if other.is_baseline or not _same(row, other):
                    continue
                comparisons += 1
                if rate.differs(stated, RATIO):
                    rows = (row,) if other is row else (row, other)
                    words = f"{row.label}: a throughput ratio of {rate} disagrees with its own {name} of {stated}"
                    where = "" if other.table == row.table else f" (table {other.table})"
                    violations.append(
                        RuleViolation(rows, words, (sum_, f"{name} at the same settings{where}: {stated}", _LITTLE))
                    )
    return RuleOutcome(comparisons, violations)


_LITTLE = "closed loop at one concurrency: throughput = concurrency / time of a request, so both ratios are one"


def _same(row: AuditRow, other: AuditRow) -> bool:
    """Return whether both rows have the same settings, with a concurrency among them."""
    return row.concurrency is not None and dict(row.settings) == dict(other.settings)


def _streams(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for row in document.rows:
        tpot, rate, streams = row.get(Quantity.TPOT), row.get(Quantity.THROUGHPUT), row.concurrency
        if tpot and rate and streams:
            comparisons += 1
            most = exactly(streams * 1000) / tpot
            if rate.exceeds(most, RATIO):
                words = (
                    f"{row.label}: {rate} tokens/s are more than {streams:g} streams can make at {tpot} ms per token"
                )
                violations.append(RuleViolation((row,), words, (f"{streams:g} × 1000 / {tpot} = {most}",)))
    return RuleOutcome(comparisons, violations)


def _little(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for row in document.rows:
        whole, rate, streams = row.get(Quantity.E2E_MEAN), row.get(Quantity.REQUESTS_PER_HOUR), row.concurrency
        if whole and rate and streams:
            comparisons += 1
            expected = exactly(streams * MS_PER_HOUR) / whole
            if rate.differs(expected, RATIO):
                words = f"{row.label}: {streams:g} streams of {whole} ms requests do not make {rate} requests per hour"
                violations.append(RuleViolation((row,), words, (f"{streams:g} × 3,600,000 / {whole} = {expected}",)))
    return RuleOutcome(comparisons, violations)


def _parts(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for row in document.rows:
        whole, first = row.get(Quantity.E2E) or row.get(Quantity.E2E_MEAN), row.get(Quantity.TTFT)
        tpot, tokens = row.get(Quantity.TPOT), row.get(Quantity.OUTPUT_TOKENS)
        if whole and first and tpot and tokens:
            comparisons += 1
            expected = first + tpot * (tokens - exactly(1.0))
            if whole.differs(expected, PARTS):
                sum_ = f"{first} + {tpot} × ({tokens} − 1) = {expected}"
                words = f"{row.label}: an E2E latency of {whole} ms is not TTFT plus the time of its later tokens"
                violations.append(RuleViolation((row,), words, (sum_, f"stated: {whole}")))
    return RuleOutcome(comparisons, violations)


THROUGHPUT = AuditRule(
    "ThroughputRatio",
    "at one concurrency, throughput over the baseline's = whole-request speed-up",
    "Little's law: in a closed loop throughput is concurrency over the mean time of a request. Compared where both"
    " are stated at the same settings, in one table or in two. A steady window of few requests may be some percent off",
    f"{RATIO:.0%}",
    _throughput,
)
STREAMS = AuditRule(
    "ThroughputAboveStreams",
    "output tokens/s ≤ concurrency / TPOT",
    "no stream emits more than one token each TPOT, and none while it prefills",
    f"{RATIO:.0%}",
    _streams,
)
LITTLE = AuditRule(
    "LittlesLaw",
    "requests per hour = concurrency × 3600 s / mean time of a request",
    "Little's law in a closed loop; checked only where the heading states that the time is a mean",
    f"{RATIO:.0%}",
    _little,
)
END_TO_END = AuditRule(
    "EndToEnd",
    "E2E = TTFT + (output tokens − 1) × TPOT",
    "the definition of TPOT. Medians of skewed parts do not add up exactly",
    f"{PARTS:.0%}",
    _parts,
)


TOLERANCE = 0.02
ONE = exactly(1.0)


def _expected_costs(document: AuditDocument, row: AuditRow) -> list[tuple[Quantity, PrintedNumber, str]]:
    """Return what each cost must be, with its formula."""
    price, tps, requests = (row.get(name) for name in (Quantity.PRICE, Quantity.THROUGHPUT, Quantity.REQUESTS_PER_HOUR))
    found = []
    if price and requests:
        found.append((Quantity.COST_PER_REQUEST, price / requests, f"{price} / {requests}"))
    if price and tps:
        each = price / (tps * exactly(3600.0)) * exactly(1e6)
        found.append((Quantity.COST_PER_MILLION, each, f"{price} / ({tps} × 3600) × 1,000,000"))
    baseline = document.baseline_of(row)
    for name in (Quantity.COST_PER_REQUEST, Quantity.COST_PER_MILLION):
        base, mine = baseline.get(name) if baseline else None, row.get(name)
        if base and mine and not row.is_baseline:
            found.append((Quantity.COST_REDUCTION, ONE - mine / base, f"1 − {mine} / {base}"))
    return found


def _cost(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for row in document.rows:
        for name, expected, sum_ in _expected_costs(document, row):
            stated = row.get(name)
            if stated is not None:
                comparisons += 1
                if stated.differs(expected, TOLERANCE):
                    words = f"{row.label}: {name} {stated} does not follow from price and throughput"
                    violations.append(RuleViolation((row,), words, (f"{sum_} = {expected}",)))
    return RuleOutcome(comparisons, violations)


COST = AuditRule(
    "Cost",
    "cost per request = $/h ÷ requests/h; cost of 1M tokens = $/h ÷ (tokens/s × 3600) × 1,000,000; reduction = 1 − cost"
    " ÷ the baseline's",
    "the definitions; other costs (idle time, training) need a column of their own",
    f"{TOLERANCE:.0%}",
    _cost,
)
