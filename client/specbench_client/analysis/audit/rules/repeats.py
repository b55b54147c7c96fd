"""One setting, one value: what is printed twice must be the same."""

from __future__ import annotations

from itertools import combinations

from specbench_client.analysis.audit.document import Document, Row
from specbench_client.analysis.audit.rule import Looked, Rule, Seen

TOLERANCE = 0.05


def _look(document: Document) -> Looked:
    groups: dict[str, list[Row]] = {}
    for row in document.rows:
        groups.setdefault(repr(sorted(row.settings.items())), []).append(row)
    asked, seen = 0, []
    for rows in groups.values():
        for one, other in combinations(rows, 2):
            for name in one.values.keys() & other.values.keys():
                asked += 1
                first, second = one.values[name], other.values[name]
                if first.apart(second, TOLERANCE):
                    places = f"{one.table} row {one.number}: {first}", f"{other.table} row {other.number}: {second}"
                    seen.append(Seen((one, other), f"{one.label}: {name} is both {first} and {second}", places))
    return Looked(asked, seen)


REPEATED = Rule(
    "RepeatedSetting",
    "rows with the same settings, in one table or in two, tell the same figures",
    "else a setting differs that the document does not name, or one of them is of another run",
    f"{TOLERANCE:.0%}",
    _look,
)
