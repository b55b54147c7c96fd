"""A line a request: what the steps of each answer emitted, by the position at which they began.

Read from records as they are stored, because tidy rows keep no step by itself. Requests are in the order of their
output tokens, as in figure 5 of "Speculative Decoding: Performance or Illusion?" (arXiv 2601.11580); only positions at
which a step began are told (`oracle` spreads them over those between).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specbench_api.outcome.record import RecordPhase
from specbench_api.outcome.slices import AcceptedMap, TokenRange
from specbench_client.load.fillers import is_filler
from specbench_client.metrics.walk import Values, emitted_by_step

COLUMNS = (
    "prompt_id", "phase", "error_class", "steps", "output_tokens", "output_tokens_client", "step_accepted",
    "chunk_tokens",
)  # fmt: skip
"""All that is read of a record."""
REQUESTS_MAX = 400
"""Later ones are not read: a row of the map would be the mean of more than ten."""
ROWS_MAX, COLUMNS_MAX = 40, 40
DEFINITION = "Acceptance length, emitted, of the steps that began at these positions: tokens that they emitted / steps"


@dataclass(frozen=True)
class _Walked:
    """One answer: at which position each of its steps began, and the tokens that it emitted."""

    tokens: int
    position: Values
    emitted: Values


def accepted_map(parts: Iterable[pd.DataFrame], repeat: int) -> AcceptedMap | None:
    """The map of one point's steady requests, or None where no answer's steps can be placed.

    `parts`: its records with COLUMNS, cut anywhere; no more are asked for than are needed. `repeat`: the point's.
    """
    walked: list[_Walked] = []
    for answer in _answers(parts):
        walked.append(answer)
        if len(walked) == REQUESTS_MAX:
            break
    if not walked:
        return None
    walked.sort(key=lambda each: each.tokens)
    groups = [[walked[index] for index in part] for part in np.array_split(np.arange(len(walked)), _rows(len(walked)))]
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


def _rows(requests: int) -> int:
    return min(ROWS_MAX, requests)


def _answers(parts: Iterable[pd.DataFrame]) -> Iterator[_Walked]:
    """As they are asked for: a part may hold many times what is needed."""
    for part in parts:
        for begun in range(0, len(part), REQUESTS_MAX):
            for row in part[list(COLUMNS)].iloc[begun : begun + REQUESTS_MAX].to_dict("records"):
                answer = _walked(row)
                if answer is not None:
                    yield answer


def _walked(row: Mapping[Any, Any]) -> _Walked | None:
    if row["phase"] != RecordPhase.STEADY.value or not pd.isna(row["error_class"]) or is_filler(row["prompt_id"]):
        return None
    tokens = row["output_tokens_client"] if pd.isna(row["output_tokens"]) else row["output_tokens"]
    if pd.isna(tokens) or pd.isna(row["steps"]):
        return None
    emitted = emitted_by_step(_listed(row["step_accepted"]), _listed(row["chunk_tokens"]), row["steps"], tokens)
    if emitted is None or not emitted.size:
        return None
    return _Walked(int(tokens), np.cumsum(emitted) - emitted + 1, emitted)


def _listed(value: Any) -> Values | None:
    """None where the list, or any of its numbers, is missing."""
    if value is None or isinstance(value, float):
        return None
    found = pd.to_numeric(pd.Series(value), errors="coerce").to_numpy(np.float64)
    return None if np.isnan(found).any() else found


def _means(group: list[_Walked], width: int, columns: int) -> list[float | None]:
    place = np.concatenate([(each.position - 1) // width for each in group]).astype(np.int64)
    emitted = np.concatenate([each.emitted for each in group])
    steps = np.bincount(place, minlength=columns)
    sums = np.bincount(place, weights=emitted, minlength=columns)
    return [round(float(total / count), 3) if count else None for total, count in zip(sums, steps, strict=True)]
