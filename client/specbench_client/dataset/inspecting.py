"""A prompts file looked at whole: what is in it, what is wrong with it, and what makes a benchmark of it doubtful."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specbench_api.model import ApiModel
from specbench_api.spec.workload import Dataset
from specbench_client.dataset.diversity.similarity import mean_similarity
from specbench_client.dataset.diversity.vectors import Vectors
from specbench_client.dataset.entries import Entry
from specbench_client.dataset.inspection.duplicates import exact_groups, near_groups
from specbench_client.dataset.inspection.overlap import bleu_4, copied_share
from specbench_client.dataset.inspection.scripts import script_of
from specbench_client.dataset.percentiles import Spread, spread
from specbench_client.errors import BadInput
from specbench_client.workload.checking import convert
from specbench_client.workload.prompts import select
from specbench_client.workload.reading import PLACEHOLDER
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.table import LOADERS

NO_CATEGORY = "(no category)"
OUTPUTS = ("output", "outputs", "response", "reference")
"""Columns that hold a row's output, the first that is there: a text, or a list with one a turn."""
SHOWN = 20
"""How many ids or groups a report names; counts are always whole."""


class Lengths(ApiModel):
    """How long prompts are; what could not be counted is missing, and `reason` says why."""

    characters: Spread | None = None
    o200k_tokens: Spread | None = None
    target_tokens: Spread | None = None
    reason: str | None = None


class CategoryReport(ApiModel):
    """One category. `similarity`: mean cosine over all pairs; missing for fewer than two prompts."""

    category: str
    prompts: int
    turns: int
    lengths: Lengths
    similarity: float | None = None
    copied_share: Spread | None = None
    bleu4: Spread | None = None


class Duplicates(ApiModel):
    """Groups of prompts that are the same; `extra` counts what is too many. `groups` names the first of them by ids."""

    groups_in_all: int
    extra: int
    groups: list[list[str]]


class Unusable(ApiModel):
    """Rows that are no prompts: how many, and the first of them with what is wrong."""

    rows: int
    first: list[str]


class Placeholders(ApiModel):
    """Rows whose text must be fetched from its source: how many, of which categories and sources, and the first ids."""

    rows: int
    by_category: dict[str, int]
    by_source: dict[str, int]
    first: list[str]


class InspectionReport(ApiModel):
    """What `specbench dataset inspect` saw. Rows = prompts + placeholders + unusable."""

    schema_version: Literal["specbench.io/inspection/v1"] = "specbench.io/inspection/v1"
    file: str
    rows: int
    prompts: int
    turns: int
    multi_turn: int
    placeholders: Placeholders
    unusable: Unusable
    duplicate_ids: list[str]
    exact_duplicates: Duplicates
    near_duplicates: Duplicates
    scripts: dict[str, int]
    embeddings: str | None = None
    overall: CategoryReport
    categories: list[CategoryReport]


@dataclass(frozen=True, slots=True)
class Counting:
    """What counts tokens: o200k_base, and the target's own tokenizer; None with the reason in `missing`."""

    o200k: Callable[[str], int] | None = None
    target: Callable[[str], int] | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """The rows of a file: prompts, placeholders, and what is no prompt, each with its place and fault."""

    entries: list[Entry]
    placeholders: list[Row]
    faults: list[str]


def read_leniently(rows: Sequence[Row], declared: Dataset) -> Read:
    """Every row by itself, so that one that is broken does not hide the others."""
    found = Read([], [], [])
    for row in rows:
        if _is_placeholder(row.columns):
            found.placeholders.append(row)
            continue
        left_out = [fault for fault in convert([row], declared, LOADERS[declared.source]).faults if not fault.missing]
        if left_out:
            found.faults.append(f"{declared.where}, {row.place}: left out: {left_out[0].reason}")
            continue
        try:
            prompts = select([row], declared, with_tools=True).rows
        except BadInput as error:
            found.faults.append(str(error))
            continue
        found.entries.extend(Entry(prompt, row.columns) for prompt in prompts)
    return found


def inspect(
    file: str, read: Read, counting: Counting, similar: tuple[str, Vectors] | None = None, outputs: str | None = None
) -> InspectionReport:
    """The report. `similar`: whose embeddings, and one unit vector an entry. `outputs`: the column with the outputs."""
    entries = read.entries
    texts = [entry.text for entry in entries]
    ids = [entry.id for entry in entries]
    look = _Look(entries, counting, similar[1] if similar else None, outputs)
    places: dict[str, list[int]] = defaultdict(list)
    for place, entry in enumerate(entries):
        places[entry.category or NO_CATEGORY].append(place)
    return InspectionReport(
        file=file,
        rows=len(entries) + len(read.placeholders) + len(read.faults),
        prompts=len(entries),
        turns=sum(len(entry.prompt.turns) for entry in entries),
        multi_turn=sum(len(entry.prompt.turns) > 1 for entry in entries),
        placeholders=_placeholders(read.placeholders),
        unusable=Unusable(rows=len(read.faults), first=read.faults[:SHOWN]),
        duplicate_ids=[name for name, count in Counter(ids).items() if count > 1][:SHOWN],
        exact_duplicates=_duplicates(exact_groups(texts), ids),
        near_duplicates=_duplicates(near_groups(texts), ids),
        scripts=dict(Counter(map(script_of, texts)).most_common()),
        embeddings=similar[0] if similar else None,
        overall=look.category("all", range(len(entries))),
        categories=[look.category(name, places[name]) for name in sorted(places)],
    )


class _Look:
    """The figures of some of the entries; each text is counted once."""

    def __init__(
        self, entries: Sequence[Entry], counting: Counting, vectors: Vectors | None, outputs: str | None
    ) -> None:
        self._entries = entries
        self._vectors = vectors
        self._characters = [len(entry.text) for entry in entries]
        self._o200k = [counting.o200k(entry.text) for entry in entries] if counting.o200k else None
        self._target = [counting.target(entry.text) for entry in entries] if counting.target else None
        self._missing = counting.missing
        said = [output_of(entry.columns, outputs) for entry in entries]
        pairs = list(zip(entries, said, strict=True))
        self._copied = [None if output is None else copied_share(entry.text, output) for entry, output in pairs]
        self._bleu = [None if output is None else bleu_4(entry.text, output) for entry, output in pairs]

    def category(self, name: str, places: Sequence[int]) -> CategoryReport:
        """The figures of the entries at these places."""
        return CategoryReport(
            category=name,
            prompts=len(places),
            turns=sum(len(self._entries[place].prompt.turns) for place in places),
            lengths=Lengths(
                characters=_spread(self._characters, places),
                o200k_tokens=_spread(self._o200k, places),
                target_tokens=_spread(self._target, places),
                reason=self._missing,
            ),
            similarity=None if self._vectors is None else mean_similarity(self._vectors[list(places)]),
            copied_share=_spread(self._copied, places),
            bleu4=_spread(self._bleu, places),
        )


def output_of(columns: Mapping[str, Any], column: str | None = None) -> str | None:
    """The row's output as one text; None where the row has none."""
    value = next((columns[name] for name in ([column] if column else OUTPUTS) if columns.get(name)), None)
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return "\n\n".join(value)
    return value if isinstance(value, str) else None


def _spread(values: Sequence[float | None] | None, places: Sequence[int]) -> Spread | None:
    return None if values is None else spread([value for place in places if (value := values[place]) is not None])


def _is_placeholder(columns: Mapping[str, Any]) -> bool:
    held = [columns.get("prompt"), *(columns["turns"] if isinstance(columns.get("turns"), list) else [])]
    if isinstance(columns.get("messages"), list):
        held += [message.get("content") for message in columns["messages"] if isinstance(message, dict)]
    return any(isinstance(text, str) and PLACEHOLDER in text for text in held)


def _placeholders(rows: Sequence[Row]) -> Placeholders:
    return Placeholders(
        rows=len(rows),
        by_category=_counted(rows, "category"),
        by_source=_counted(rows, "source"),
        first=[str(row.columns.get("question_id", row.columns.get("id", row.place))) for row in rows[:SHOWN]],
    )


def _counted(rows: Sequence[Row], column: str) -> dict[str, int]:
    return dict(Counter(str(row.columns[column]) for row in rows if row.columns.get(column) is not None).most_common())


def _duplicates(groups: Sequence[Sequence[int]], ids: Sequence[str]) -> Duplicates:
    return Duplicates(
        groups_in_all=len(groups),
        extra=sum(len(group) - 1 for group in groups),
        groups=[[ids[place] for place in group[:SHOWN]] for group in groups[:SHOWN]],
    )
