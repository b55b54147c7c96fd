"""Inspects a prompt file: its contents, its invalid rows, and properties that make a benchmark with it doubtful."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from specbench_api.api_model import ApiModel
from specbench_client.analysis.what_if.ngram import copied_share as copied_share_of_tokens
from specbench_client.chat import ChatMessage
from specbench_client.dataset.diversity import Vectors, mean_similarity
from specbench_client.dataset.prompt_entries import NO_CATEGORY, PromptEntry, entries_of
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_outcomes import RowOutcomes, in_file_order
from specbench_client.workload.row_parsing import PLACEHOLDER_REASON, Prompt


class Distribution(ApiModel):
    """Percentiles (linear between neighbours) and mean of a number over `n` prompts, in that number's unit."""

    n: int
    least: float
    p50: float
    p90: float
    p99: float
    most: float
    mean: float


def distribution(values: Sequence[float]) -> Distribution | None:
    """Return the distribution of the values; None if there are none."""
    if not values:
        return None
    p50, p90, p99 = (float(value) for value in np.percentile(values, [50, 90, 99]))
    least, most, mean = float(min(values)), float(max(values)), float(np.mean(values))
    return Distribution(n=len(values), least=least, p50=p50, p90=p90, p99=p99, most=most, mean=mean)


OUTPUT_COLUMNS = ("output", "outputs", "response", "reference")
"""Columns with a row's output, in order of precedence: a string, or a list with one string per turn."""

SHOWN_IDS = 20
"""Maximum number of ids or groups in a report. Counts are always complete."""


class TextLengths(ApiModel):
    """Lengths of prompts. A length that could not be measured is missing, with the reason in `reason`."""

    characters: Distribution | None = None
    o200k_tokens: Distribution | None = None
    target_tokens: Distribution | None = None
    reason: str | None = None


class CategoryReport(ApiModel):
    """The figures of one category. `similarity`: mean cosine over all pairs; missing for fewer than two prompts."""

    category: str
    prompts: int
    turns: int
    lengths: TextLengths
    similarity: float | None = None
    copied_share: Distribution | None = None


class DuplicateReport(ApiModel):
    """Groups of duplicates. `extra`: prompts beyond the first of each group. `groups`: ids of the first groups."""

    groups_in_all: int
    extra: int
    groups: list[list[str]]


class UnusableRows(ApiModel):
    """Rows that are not valid prompts, how many of them a run would reject, and the problems of the first ones."""

    rows: int
    rejected: int
    first: list[str]


class PlaceholderRows(ApiModel):
    """Rows whose text must be downloaded from its source: counts by category and source, and the first ids."""

    rows: int
    by_category: dict[str, int]
    by_source: dict[str, int]
    first: list[str]


class SessionReport(ApiModel):
    """Recorded sessions of agents: their requests, and the results of tools.

    `overlapping`: requests that may be in flight together with an earlier one. `waited_s`: sum of the recorded waits.
    `reusable_share`: share of the requests' characters, in whole messages, with which an earlier request begins too.
    """

    sessions: int
    requests: int
    overlapping: int
    tool_results: int
    waited_s: float
    reusable_share: float


class InspectionReport(ApiModel):
    """The result of `specbench dataset inspect`. Rows = prompts + placeholders + unusable."""

    schema_version: Literal["specbench.io/inspection/v1"] = "specbench.io/inspection/v1"
    file: str
    rows: int
    prompts: int
    turns: int
    multi_turn: int
    placeholders: PlaceholderRows
    unusable: UnusableRows
    duplicate_ids: list[str]
    exact_duplicates: DuplicateReport
    near_duplicates: DuplicateReport
    sessions: SessionReport | None = None
    embeddings: str | None = None
    overall: CategoryReport
    categories: list[CategoryReport]


@dataclass(frozen=True, slots=True)
class TokenCounters:
    """Token counters: o200k_base and the target's own tokenizer. None if unavailable, with the reason in `missing`."""

    o200k: Callable[[str], int] | None = None
    target: Callable[[str], int] | None = None
    missing: str | None = None


def inspect_prompts(
    file: str,
    found: RowOutcomes,
    counting: TokenCounters,
    similar: tuple[str, Vectors] | None = None,
    outputs: str | None = None,
) -> InspectionReport:
    """Build the report. `similar`: name and unit vectors of the embeddings. `outputs`: the column with the outputs."""
    entries = entries_of(found)
    texts = [entry.text for entry in entries]
    ids = [entry.id for entry in entries]
    placeholders = [fault.row for fault in found.missing if fault.reason == PLACEHOLDER_REASON]
    unusable = [
        *in_file_order(found.problems),
        *(f"{each.row.place}: {each.reason}" for each in found.missing if each.reason != PLACEHOLDER_REASON),
        *(f"{each.row.place}: left out: {each.reason}" for each in found.excluded),
    ]
    overall, categories = _category_reports(entries, counting, similar[1] if similar else None, outputs)
    return InspectionReport(
        file=file,
        rows=len(entries) + len(placeholders) + len(unusable),
        prompts=len(entries),
        turns=sum(len(entry.prompt.turns) for entry in entries),
        multi_turn=sum(len(entry.prompt.turns) > 1 for entry in entries),
        placeholders=_placeholders(placeholders),
        unusable=UnusableRows(
            rows=len(unusable), rejected=len(unusable) - len(found.excluded), first=unusable[:SHOWN_IDS]
        ),
        duplicate_ids=[name for name, count in Counter(ids).items() if count > 1][:SHOWN_IDS],
        exact_duplicates=_duplicates(exact_groups(texts), ids),
        near_duplicates=_duplicates(near_groups(texts), ids),
        sessions=_sessions([entry.prompt for entry in entries if entry.prompt.starts]),
        embeddings=similar[0] if similar else None,
        overall=overall,
        categories=categories,
    )


def _sessions(prompts: Sequence[Prompt]) -> SessionReport | None:
    """Describe recorded sessions; None if there are none."""
    if not prompts:
        return None
    whole = reusable = 0
    begun: dict[ChatMessage, Any] = {}
    """The messages with which requests begin; for each, those that follow it."""
    for turn in chain.from_iterable(prompt.turns for prompt in prompts):
        following, is_known = begun, True
        for message in turn:
            characters = len(message.content) + len(message.further) + len(message.tools)
            is_known = is_known and message in following
            following = following.setdefault(message, {})
            whole += characters
            reusable += characters if is_known else 0
    starts = [start for prompt in prompts for start in prompt.starts]
    return SessionReport(
        sessions=len(prompts),
        requests=len(starts),
        overlapping=sum(count > 1 for prompt in prompts for count in prompt.in_flight),
        tool_results=sum(one.role == "tool" for prompt in prompts for one in set(chain.from_iterable(prompt.turns))),
        waited_s=sum(start.wait_s or 0.0 for start in starts),
        reusable_share=reusable / max(whole, 1),
    )


def _category_reports(
    entries: Sequence[PromptEntry], counting: TokenCounters, vectors: Vectors | None, outputs: str | None
) -> tuple[CategoryReport, list[CategoryReport]]:
    """Return the figures of all entries, and of each category; each text is measured once."""
    characters = [len(entry.text) for entry in entries]
    o200k = [counting.o200k(entry.text) for entry in entries] if counting.o200k else None
    target = [counting.target(entry.text) for entry in entries] if counting.target else None
    pairs = [(entry, output_of(entry.columns, outputs)) for entry in entries]
    copied = [None if output is None else copied_share(entry.text, output) for entry, output in pairs]
    places: dict[str, list[int]] = defaultdict(list)
    for place, entry in enumerate(entries):
        places[entry.category or NO_CATEGORY].append(place)

    def report(name: str, places: Sequence[int]) -> CategoryReport:
        return CategoryReport(
            category=name,
            prompts=len(places),
            turns=sum(len(entries[place].prompt.turns) for place in places),
            lengths=TextLengths(
                characters=_distribution_at(characters, places),
                o200k_tokens=_distribution_at(o200k, places),
                target_tokens=_distribution_at(target, places),
                reason=counting.missing,
            ),
            similarity=None if vectors is None else mean_similarity(vectors[list(places)]),
            copied_share=_distribution_at(copied, places),
        )

    return report("all", range(len(entries))), [report(name, places[name]) for name in sorted(places)]


def output_of(columns: Mapping[str, Any], column: str | None = None) -> str | None:
    """Return the row's output as one string; None if it has none."""
    value = next((columns[name] for name in ([column] if column else OUTPUT_COLUMNS) if columns.get(name)), None)
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return "\n\n".join(value)
    return value if isinstance(value, str) else None


def _distribution_at(values: Sequence[float | None] | None, places: Sequence[int]) -> Distribution | None:
    return None if values is None else distribution([value for place in places if (value := values[place]) is not None])


def _placeholders(rows: Sequence[PromptRow]) -> PlaceholderRows:
    columns = [row.published or row.columns for row in rows]
    names = [each.get("question_id", each.get("id", row.place)) for each, row in zip(columns, rows, strict=True)]
    return PlaceholderRows(
        rows=len(rows),
        by_category=_counted(columns, "category"),
        by_source=_counted(columns, "source"),
        first=[str(name) for name in names[:SHOWN_IDS]],
    )


def _counted(rows: Sequence[Mapping[str, Any]], column: str) -> dict[str, int]:
    return dict(Counter(str(row[column]) for row in rows if row.get(column) is not None).most_common())


def _duplicates(groups: Sequence[Sequence[int]], ids: Sequence[str]) -> DuplicateReport:
    return DuplicateReport(
        groups_in_all=len(groups),
        extra=sum(len(group) - 1 for group in groups),
        groups=[[ids[place] for place in group[:SHOWN_IDS]] for group in groups[:SHOWN_IDS]],
    )


_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


def copied_share(prompt: str, output: str) -> float | None:
    """Return the share of the output's word 4-grams that occur in the prompt; None for fewer than four words."""
    numbers: dict[str, int] = {}
    prompt_words, output_words = (
        np.array(
            [numbers.setdefault(word, len(numbers)) for word in _WORD_OR_MARK.findall(text.casefold())], dtype=np.int64
        )
        for text in (prompt, output)
    )
    return copied_share_of_tokens(prompt_words, output_words)


# Duplicate prompts are equal after normalisation, or nearly equal: their sets of word 5-shingles have a Jaccard
# similarity of at least 0.8. Candidate pairs are proposed by MinHash (Broder 1997) in 32 bands of 4 rows and then
# verified on the shingles, so there are no false positives. The probability of missing a pair at 0.8 is (1 - 0.8⁴)³²,
# about one in ten million. A group is represented by one of its prompts when further prompts are compared with it.

SHINGLE_WORDS = 5
LEAST_JACCARD = 0.8
_BANDS, _ROWS = 32, 4
_SEED = 20260822
_MOST_COMPARED = 50
"""Maximum number of prompts of a bucket to compare with: in a large bucket all prompts are similar anyway."""
_WORD = re.compile(r"\w+")


def exact_groups(texts: Sequence[str]) -> list[list[int]]:
    """Return groups of two or more indices of texts that differ only in case, character width or white space."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        found[" ".join(unicodedata.normalize("NFKC", text).casefold().split())].append(place)
    return [places for places in found.values() if len(places) > 1]


def near_groups(texts: Sequence[str]) -> list[list[int]]:
    """Return groups of two or more indices of near-duplicate texts, including exact duplicates."""
    shingles = [_shingles(text) for text in texts]
    heads = list(range(len(texts)))
    for bucket in _buckets(shingles):
        compared: list[int] = []
        for place in bucket:
            head = _head(heads, place)
            if any(_merge_if_similar(heads, shingles, head, other) for other in compared):
                continue
            if len(compared) < _MOST_COMPARED:
                compared.append(head)
    found: dict[int, list[int]] = defaultdict(list)
    for place in range(len(texts)):
        found[_head(heads, place)].append(place)
    return [places for places in found.values() if len(places) > 1]


def _merge_if_similar(heads: list[int], shingles: Sequence[frozenset[int]], place: int, other: int) -> bool:
    """Merge the groups of two texts if they are similar and return whether they are in one group now."""
    first, second = sorted((_head(heads, place), _head(heads, other)))
    if first == second:
        return True
    if jaccard(shingles[first], shingles[second]) < LEAST_JACCARD:
        return False
    heads[second] = first
    return True


def jaccard(first: frozenset[int], second: frozenset[int]) -> float:
    """Return the Jaccard similarity, |intersection| / |union|; 0 for two empty sets."""
    union = len(first | second)
    return len(first & second) / union if union else 0.0


def _head(heads: list[int], place: int) -> int:
    while heads[place] != place:
        heads[place] = heads[heads[place]]
        place = heads[place]
    return place


def _shingles(text: str) -> frozenset[int]:
    """Return the hashes of all runs of five words, or of the whole text if it has fewer words."""
    words = _WORD.findall(text.casefold())
    runs = range(max(1, len(words) - SHINGLE_WORDS + 1)) if words else range(0)
    return frozenset(
        int.from_bytes(hashlib.blake2b(" ".join(words[start : start + SHINGLE_WORDS]).encode(), digest_size=4).digest())
        for start in runs
    )


def _buckets(shingles: Sequence[frozenset[int]]) -> list[list[int]]:
    """Return, for each band, groups of indices whose signatures agree in it. A text without words is in no group."""
    generator = np.random.default_rng(_SEED)
    # Factors need all 64 bits: with 32 they would not overflow, and the smallest shingle would win every hash.
    factors = generator.integers(0, 2**64, size=_BANDS * _ROWS, dtype=np.uint64) | np.uint64(1)
    shifts = generator.integers(0, 2**64, size=_BANDS * _ROWS, dtype=np.uint64)
    buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for place, hashes in enumerate(shingles):
        if hashes:
            signature = _signature(hashes, factors, shifts)
            for band in range(_BANDS):
                buckets[band, signature[band * _ROWS : (band + 1) * _ROWS].tobytes()].append(place)
    return [bucket for bucket in buckets.values() if len(bucket) > 1]


def _signature(
    shingles: frozenset[int], factors: npt.NDArray[np.uint64], shifts: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Return the minimum of each of 128 hashes: multiply, add, keep the upper 32 bits (Dietzfelbinger 1996)."""
    values = np.fromiter(shingles, dtype=np.uint64, count=len(shingles))
    least = np.full(factors.shape, np.iinfo(np.uint64).max, dtype=np.uint64)
    for start in range(0, len(values), 4096):
        hashed = (values[start : start + 4096, None] * factors + shifts) >> np.uint64(32)
        least = np.minimum(least, hashed.min(axis=0))
    return least
