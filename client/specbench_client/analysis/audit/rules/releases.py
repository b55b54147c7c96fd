"""A method cannot have been measured on an engine's release that does not have it."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from specbench_api.launch.support.table import cell
from specbench_api.spec.drafter import Method
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.audit.columns import Name
from specbench_client.analysis.audit.document import Document, Row
from specbench_client.analysis.audit.rule import Looked, Rule, Seen


@dataclass(frozen=True)
class First:
    """The first release of an engine that has a method, and how that is known."""

    version: str
    source: str


FIRST = {
    (EngineKind.VLLM, Method.EAGLE3): First(
        "0.8.5", "vLLM's pull request 16937, opened on 21 April 2025, a week after 0.8.4; 0.7.3 is of February 2025"
    ),
}
"""Where it is known. What later releases have lost stands in the table of engines and drafters (docs/engines.md)."""


def _look(document: Document) -> Looked:
    asked, found = 0, dict[tuple[str, str, str], list[Row]]()
    words = dict[tuple[str, str, str], tuple[str, str]]()
    for row in document.rows:
        kind, version = _engine(row), row.settings.get(Name.ENGINE_VERSION)
        if kind is None or row.method is None or not isinstance(version, str):
            continue
        asked += 1
        said = _lacks(kind, row.method, version)
        if said:
            key = (kind, version, row.method)
            words[key] = said
            found.setdefault(key, []).append(row)
    seen = [Seen(tuple(rows), words[key][0], (words[key][1],)) for key, rows in found.items()]
    return Looked(asked, seen)


def _engine(row: Row) -> EngineKind | None:
    told = str(row.settings.get(Name.ENGINE, "")).lower().replace("_", "-")
    return next((kind for kind in EngineKind if kind.value == told), None)


def _lacks(kind: EngineKind, method: Method, version: str) -> tuple[str, str] | None:
    first = FIRST.get((kind, method))
    try:
        early = first is not None and Version(version.removeprefix("v")) < Version(first.version)
    except InvalidVersion:
        return None
    if first is not None and early:
        return f"{kind} {version} does not have {method}: {first.version} is the first that does", first.source
    here, ever = cell(kind, method, version), cell(kind, method)
    return (
        (f"{kind} {version} does not have {method}: {here.how}", here.source)
        if ever.versions and not here.supported
        else None
    )


RELEASE = Rule(
    "EngineRelease",
    "the engine's release has the method",
    "a table of first releases, each with its source, and our table of engines and drafters",
    "none; a version that is no number is believed",
    _look,
)
