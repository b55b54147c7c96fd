"""Acceptance map: one row per request, with the tokens that its steps emitted by the position at which they began.

It is computed from stored records, because tidy rows do not contain single steps. Requests are sorted by their number
of output tokens, as in figure 5 of "Speculative Decoding: Performance or Illusion?" (arXiv 2601.11580). Only positions
at which a step began have values (`oracle` also covers the positions in between).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specbench_api.outcome.breakdown import AcceptedMap, TokenRange
from specbench_api.outcome.record import RecordPhase
from specbench_client.load.conversations import is_filler
from specbench_client.metrics.record_lists import emitted_by_step
from specbench_client.metrics.tidy_frame import RecordColumns, Values

COLUMNS = (
    "prompt_id", "phase", "error_class", "steps", "output_tokens", "output_tokens_client", "step_accepted",
    "chunk_tokens",
)  # fmt: skip
"""Columns that are read from a record."""
REQUESTS_MAX = 400
"""Maximum number of requests read: with more, a row of the map would be the mean of more than ten."""
ROWS_MAX, COLUMNS_MAX = 40, 40
DEFINITION = "Acceptance length, emitted, of the steps that began at these positions: tokens that they emitted / steps"


@dataclass(frozen=True)
class _Walked:
    """One answer: the position at which each of its steps began, and the tokens that it emitted, shape (steps,)."""

    tokens: int
    position: Values
    emitted: Values


def build_acceptance_map(parts: Iterable[RecordColumns], repeat: int) -> AcceptedMap | None:
    """Return the map of one point's steady requests, or None if no answer's steps can be located.

    `parts` are its records with COLUMNS, read only as far as needed; `repeat` is the point's repeat.
    """
    walked: list[_Walked] = []
    for answer in _answers(parts):
        walked.append(answer)
        if len(walked) == REQUESTS_MAX:
            break
    if not walked:
        return None
    walked.sort(key=lambda each: each.tokens)
    groups = [
        [walked[index] for index in part] for part in np.array_split(np.arange(len(walked)), min(ROWS_MAX, len(walked)))
    ]
    longest = walked[-1].tokens - 1
    width = -(-longest // COLUMNS_MAX)
    return AcceptedMap(
        definition=DEFINITION,
        requests=len(walked),
        repeat=repeat,
        rows=[TokenRange(first=group[0].tokens, last=group[-1].tokens) for group in groups],
        columns=[TokenRange(first=at, last=min(at + width - 1, longest)) for at in range(1, longest + 1, width)],
        emitted=[_means(group, width, -(-longest // width)) for group in groups],
    )


def _answers(parts: Iterable[RecordColumns]) -> Iterator[_Walked]:
    """Yield the answers lazily, because a part may have many more rows than needed."""
    for part in parts:
        for values in zip(*(part[name] for name in COLUMNS), strict=True):
            answer = _walked(dict(zip(COLUMNS, values, strict=True)))
            if answer is not None:
                yield answer


def _walked(row: Mapping[str, Any]) -> _Walked | None:
    if row["phase"] != RecordPhase.STEADY.value or not _missing(row["error_class"]) or is_filler(row["prompt_id"]):
        return None
    tokens = row["output_tokens_client"] if _missing(row["output_tokens"]) else row["output_tokens"]
    if _missing(tokens) or _missing(row["steps"]):
        return None
    emitted = emitted_by_step(_to_array(row["step_accepted"]), _to_array(row["chunk_tokens"]), row["steps"], tokens)
    if emitted is None or not emitted.size:
        return None
    return _Walked(int(tokens), np.cumsum(emitted) - emitted + 1, emitted)


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def _to_array(value: Any) -> Values | None:
    """Convert a list to an array; None if the list, or any of its numbers, is missing."""
    if value is None or isinstance(value, float):
        return None
    found = np.asarray(value, dtype=np.float64)
    return None if np.isnan(found).any() else found


def _means(group: list[_Walked], width: int, columns: int) -> list[float | None]:
    column = np.concatenate([(each.position - 1) // width for each in group]).astype(np.int64)
    emitted = np.concatenate([each.emitted for each in group])
    steps = np.bincount(column, minlength=columns)
    sums = np.bincount(column, weights=emitted, minlength=columns)
    return [round(float(total / count), 3) if count else None for total, count in zip(sums, steps, strict=True)]
