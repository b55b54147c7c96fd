"""The prompts of a workload: read, checked, selected, and named by a fingerprint of what will really be sent.

The selection is a pure function of file and declaration, so that every client of a run, and every run of a declaration,
has the same prompts in the same order. The fingerprint shows when it has not: the file changed under the same name.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import Path

from specbench_api.plan.canonical import canonical_json
from specbench_api.spec.workload import Dataset, Source
from specbench_client.errors import BadInput
from specbench_client.store.scratch import scratch_folder
from specbench_client.workload.reading import BadRow, Prompt, read_prompt
from specbench_client.workload.rows import Row, read_rows

Fetch = Callable[[str], bytes]
"""The object at an s3:// URI."""
_SHOWN_PROBLEMS = 5


@dataclass(frozen=True)
class Prompts:
    """What will be sent, in this order. `fingerprint` is the SHA-256 over the canonical rows, in hex."""

    rows: tuple[Prompt, ...]
    fingerprint: str

    @property
    def turns(self) -> int:
        """Requests of one pass over all prompts."""
        return sum(len(prompt.turns) for prompt in self.rows)


def load_prompts(dataset: Dataset, base_dir: Path, fetch: Fetch | None = None) -> Prompts:
    """The prompts of a declaration. `base_dir`: where relative paths begin. Raises BadInput."""
    if dataset.uri.startswith("s3://"):
        if fetch is None:
            raise BadInput(f"{dataset.uri}: S3 is not at hand here: give a local file")
        with scratch_folder() as folder:
            path = folder / "prompts"
            path.write_bytes(fetch(dataset.uri))
            rows = _in_place(lambda: read_rows(path, dataset.source), str(path), dataset.uri)
    elif "://" in dataset.uri:
        raise BadInput(f"{dataset.uri}: prompts are read from a path or from s3://BUCKET/KEY: download the file first")
    else:
        rows = read_rows(base_dir / Path(dataset.uri).expanduser(), dataset.source)
    return select(rows, dataset)


def select(rows: Sequence[Row], dataset: Dataset) -> Prompts:
    """Filter, check and count; see `Dataset`. Pure. Raises BadInput."""
    prompts = _checked(_of_categories(_named(rows, dataset), dataset), dataset)
    if dataset.count is not None:
        prompts = _spread(prompts, dataset)
    return Prompts(tuple(prompts), fingerprint(prompts))


def fingerprint(prompts: Sequence[Prompt]) -> str:
    """SHA-256 over the rows as they are used: ids, categories and every message, in order."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(canonical_json(asdict(prompt)).encode() + b"\n")
    return digest.hexdigest()


def _in_place(read: Callable[[], list[Row]], path: str, uri: str) -> list[Row]:
    try:
        return read()
    except BadInput as error:
        raise BadInput(str(error).replace(path, uri)) from error


def _named(rows: Sequence[Row], dataset: Dataset) -> list[Row]:
    """Where no row has an id, each is told by its place; where one has, the others were meant to."""
    if dataset.source is Source.SPEC_BENCH or any(not {"id", "question_id"}.isdisjoint(row.columns) for row in rows):
        return list(rows)
    return [replace(row, columns={**row.columns, "id": row.place.replace(" ", "-")}) for row in rows]


def _of_categories(rows: Sequence[Row], dataset: Dataset) -> list[Row]:
    if dataset.categories is None:
        return list(rows)
    known = list(dict.fromkeys(str(row.columns["category"]) for row in rows if row.columns.get("category") is not None))
    unknown = [category for category in dataset.categories if category not in known]
    if unknown:
        there = ", ".join(known) if known else "none: its rows have no category"
        raise BadInput(f"{dataset.uri}: has no category {unknown[0]!r}; there are: {there}")
    return [row for row in rows if row.columns.get("category") in dataset.categories]


def _checked(rows: Sequence[Row], dataset: Dataset) -> list[Prompt]:
    prompts: list[Prompt] = []
    problems: list[str] = []
    places: dict[str, str] = {}
    for row in rows:
        try:
            prompt = read_prompt(row, dataset.source)
        except BadRow as error:
            problems.append(f"{row.place}: {error}")
            continue
        if prompt.id in places:
            problems.append(
                f"{row.place}: the id {prompt.id!r} is that of {places[prompt.id]} too: records are told by it"
            )
            continue
        places[prompt.id] = row.place
        prompts.append(prompt)
    if problems:
        more = len(problems) - _SHOWN_PROBLEMS
        shown = [f"{dataset.uri}, {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
        raise BadInput("\n".join([*shown, *([f"and {more} more of {len(rows)} rows"] if more > 0 else [])]))
    return prompts


def _spread(prompts: Sequence[Prompt], dataset: Dataset) -> list[Prompt]:
    """So many, taken in turn from each category, then put back into the file's order."""
    count = dataset.count or 0
    if count > len(prompts):
        remedy = "lower count; load.requests lets the prompts go round again"
        raise BadInput(f"{dataset.uri}: count asks for {count} prompts and there are {len(prompts)}: {remedy}")
    by_category: dict[str | None, list[int]] = defaultdict(list)
    for index, prompt in enumerate(prompts):
        by_category[prompt.category].append(index)
    in_turn = (index for index in chain.from_iterable(zip_longest(*by_category.values())) if index is not None)
    return [prompts[index] for index in sorted(islice(in_turn, count))]
