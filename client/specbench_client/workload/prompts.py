"""The prompts of a workload: read, checked, selected, and named by a fingerprint of what will really be sent.

The selection is a pure function of file and declaration, so that every client of a run, and every run of a declaration,
has the same prompts in the same order. The fingerprint shows when it has not: the file changed under the same name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specbench_api.outcome.coverage import Coverage
from specbench_api.plan.canonical import canonical_json
from specbench_api.spec.dataset import Dataset, Selection, Source
from specbench_client.chat import Message
from specbench_client.errors import BadInput
from specbench_client.workload.checking import Checked, Converted, Fault, check, convert
from specbench_client.workload.coverage import Account, coverage_of, recorded_of
from specbench_client.workload.filters import filters_of, kept
from specbench_client.workload.lengths import Ruler, cached_encoding, measure_lengths
from specbench_client.workload.mix import mixed, mixed_coverage
from specbench_client.workload.places import Fetch, rows_of
from specbench_client.workload.random_words import random_coverage, random_prompts
from specbench_client.workload.reading import Prompt
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.table import LOADERS
from specbench_client.workload.subset import subset

__all__ = ["Fetch", "Prompts", "fingerprint", "load_prompts", "select"]

_OUTSIDE = "not as long as inputTokens asks"


@dataclass(frozen=True)
class Prompts:
    """What will be sent, in this order. `fingerprint` is the SHA-256 over the canonical rows, in hex."""

    rows: tuple[Prompt, ...]
    fingerprint: str
    coverage: Coverage | None = field(default=None, compare=False)
    """Which of the rows that were asked for they are."""

    @property
    def turns(self) -> int:
        """Requests of one pass over all prompts."""
        return sum(len(prompt.turns) for prompt in self.rows)


def load_prompts(
    dataset: Dataset,
    base_dir: Path,
    fetch: Fetch | None = None,
    ruler: Ruler = cached_encoding,
    *,
    with_tools: bool = False,
) -> Prompts:
    """The prompts of a declaration. `base_dir`: where relative paths begin. Blocks. Raises BadInput.

    `ruler` gives the encoding of `inputTokens`, or raises EncodingMissing. `with_tools`: whether tools and calls of
    them can be sent, which they can where the client applies the chat template.
    """

    def load(selection: Selection) -> Prompts:
        if selection.source is Source.RANDOM:
            prompts = random_prompts(selection)
            return Prompts(tuple(prompts), fingerprint(prompts), random_coverage(selection))
        return select(rows_of(selection, base_dir, fetch), selection, ruler, with_tools=with_tools)

    if dataset.source is not Source.MIX:
        return load(dataset)
    found = {member.name: load(member) for member in dataset.members or []}
    prompts = mixed(dataset, {name: one.rows for name, one in found.items()})
    coverages = {name: one.coverage for name, one in found.items() if one.coverage is not None}
    return Prompts(tuple(prompts), fingerprint(prompts), mixed_coverage(dataset, coverages, prompts))


def select(
    rows: Sequence[Row], dataset: Selection, ruler: Ruler = cached_encoding, *, with_tools: bool = False
) -> Prompts:
    """Convert, filter, check and count; see `Selection`. Pure. Raises BadInput."""
    loader = LOADERS[dataset.source]
    converted = convert(_identified(rows) if not loader.ids else rows, dataset, loader)
    wanted = kept([row.columns for row in converted.rows], dataset)
    asking = [converted.rows[place] for place in wanted]
    checked = check(_of_these_filters(converted, dataset), asking, dataset, with_tools=with_tools)
    asked, outside = _of_length(checked, dataset, ruler)
    used = subset(asked, dataset)
    if not used:
        raise BadInput(f"{dataset.where}: no prompt is left of {len(rows)} rows: loosen the filters of the dataset")
    excluded = [fault for fault in converted.faults if not fault.missing]
    account = Account(len(converted.rows) + len(converted.faults), [*excluded, *checked.faults, *outside], asked, used)
    coverage = coverage_of(dataset, loader, account, recorded_of(checked.logged, used))
    return Prompts(tuple(used), fingerprint(used), coverage)


def fingerprint(prompts: Sequence[Prompt]) -> str:
    """SHA-256 over the rows as they are used: ids, categories and every message, in order."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(canonical_json(_plain(prompt)).encode() + b"\n")
    return digest.hexdigest()


def _plain(prompt: Prompt) -> dict[str, Any]:
    """What of it is the data set's: not what was made of it since."""
    turns = [
        [{"role": one.role, "content": one.content, "token_ids": one.token_ids, **_of_tools(one)} for one in turn]
        for turn in prompt.turns
    ]
    return {"id": prompt.id, "category": prompt.category, "turns": turns}


def _of_tools(message: Message) -> dict[str, str]:
    """Named only where they are there, so that other prompts keep their fingerprint."""
    told = {"further": message.further, "tools": message.tools}
    return {name: text for name, text in told.items() if text}


def _identified(rows: Sequence[Row]) -> list[Row]:
    """Where no row has an id, each is told by its place; where one has, the others were meant to."""
    if any(not {"id", "question_id"}.isdisjoint(row.columns) for row in rows):
        return list(rows)
    return [replace(row, columns={**row.columns, "id": row.place.replace(" ", "-")}) for row in rows]


def _of_these_filters(converted: Converted, dataset: Selection) -> Converted:
    """A row without text counts only where it was asked for; its columns are still its publisher's."""
    filters = filters_of(dataset)
    faults = [fault for fault in converted.faults if all(each.keeps(fault.row.columns) for each in filters)]
    return replace(converted, faults=faults)


def _of_length(checked: Checked, dataset: Selection, ruler: Ruler) -> tuple[list[Prompt], list[Fault]]:
    """Prompts within inputTokens, and a fault for each of the others."""
    bounds = dataset.input_tokens
    if bounds is None:
        return checked.prompts, []
    lengths = measure_lengths(checked.prompts, ruler)
    if lengths.tokens is None:
        raise BadInput(f"{dataset.where}: inputTokens cannot be counted: {lengths.reason}")
    within = [prompt for prompt in checked.prompts if bounds.holds(lengths.tokens[prompt.id])]
    beyond = len(checked.prompts) - len(within)
    return within, [Fault(Row("", {}), None, _OUTSIDE, missing=False) for _ in range(beyond)]
