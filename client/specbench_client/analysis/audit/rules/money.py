"""Money is price over throughput, and nothing else."""

from __future__ import annotations

from specbench_client.analysis.audit.columns import Name
from specbench_client.analysis.audit.document import Document, Row
from specbench_client.analysis.audit.numbers import Told, exactly
from specbench_client.analysis.audit.rule import Looked, Rule, Seen

TOLERANCE = 0.02
ONE = exactly(1.0)


def _expected(document: Document, row: Row) -> list[tuple[Name, Told, str]]:
    """What each cost must be, and the sum."""
    price, tps, requests = (row.get(name) for name in (Name.PRICE, Name.THROUGHPUT, Name.REQUESTS_PER_HOUR))
    found = []
    if price and requests:
        found.append((Name.COST_PER_REQUEST, price / requests, f"{price} / {requests}"))
    if price and tps:
        each = price / (tps * exactly(3600.0)) * exactly(1e6)
        found.append((Name.COST_PER_MILLION, each, f"{price} / ({tps} × 3600) × 1,000,000"))
    baseline = document.baseline_of(row)
    for name in (Name.COST_PER_REQUEST, Name.COST_PER_MILLION):
        base, mine = baseline.get(name) if baseline else None, row.get(name)
        if base and mine and not row.is_baseline:
            found.append((Name.COST_REDUCTION, ONE - mine / base, f"1 − {mine} / {base}"))
    return found


def _look(document: Document) -> Looked:
    asked, seen = 0, []
    for row in document.rows:
        for name, expected, sum_ in _expected(document, row):
            told = row.get(name)
            if told is not None:
                asked += 1
                if told.apart(expected, TOLERANCE):
                    words = f"{row.label}: {name} {told} is not what price and throughput give"
                    seen.append(Seen((row,), words, (f"{sum_} = {expected}",)))
    return Looked(asked, seen)


COST = Rule(
    "Cost",
    "cost a request = $/h ÷ requests/h; cost of 1M tokens = $/h ÷ (tokens/s × 3600) × 1,000,000; reduction = 1 − cost ÷"
    " the baseline's",
    "the definitions; other ones (idle time, training) must be told in a column",
    f"{TOLERANCE:.0%}",
    _look,
)
