"""What a run's records tell of a drafter at each position of each answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specbench_api.outcome.record import RecordPhase
from specbench_client.analysis.oracle.answers import Reach, Tokens
from specbench_client.analysis.oracle.spans import fits, span_split
from specbench_client.analysis.oracle.told import STEPPED_MIN, Key, Told
from specbench_client.load.fillers import is_filler
from specbench_client.metrics.pairing import with_pass

COLUMNS = (
    "prompt_id", "category", "conversation_id", "turn", "repeat", "phase", "intended_ns", "input_tokens",
    "output_tokens", "step_accepted", "error_class", "output_sha256", "output_text", "output_token_ids",
)  # fmt: skip
"""All that is read of a record."""
FAILED = "the request failed"
UNCOUNTED = "the engine did not count its tokens"
UNTOLD = "the engine did not tell the accepted drafts of each step"
GAPS = "steps without drafts in between, whose places nobody knows"
SHORT = "fewer than two output tokens"


@dataclass(frozen=True)
class Recorded:
    """Answers of one arm, by their key, and how many were left out for which reason."""

    told: Mapping[Key, Told]
    left_out: Mapping[str, int]


def measured(records: pd.DataFrame) -> pd.DataFrame:
    """Answers that were asked for: without warm-up and fillers, each with its pass over the prompts.

    `records`: with COLUMNS, and with the column `point`.
    """
    asked = (records["phase"] != RecordPhase.WARMUP.value) & ~records["prompt_id"].map(is_filler).astype(bool)
    return with_pass(records[asked.to_numpy(bool)].reset_index(drop=True))


def recorded(rows: pd.DataFrame) -> Recorded:
    """What is known, of measured rows. Steps are spread over the positions between them."""
    told: dict[Key, Told] = {}
    left_out: Counter[str] = Counter()
    for row in rows.to_dict("records"):
        why = _unusable(row)
        if why:
            left_out[why] += 1
        else:
            told[key_of(row)] = _told(row)
    return Recorded(told, dict(left_out))


def key_of(row: Mapping[Any, Any]) -> Key:
    """Which question of which repeat it answers; turns and passes are told apart in the last place."""
    return str(row["prompt_id"]), int(row["repeat"]), (int(row["pass"]) << 16) + int(row["turn"])


def ids_of(row: Mapping[Any, Any]) -> Tokens | None:
    """The answer's token ids, where the record has them."""
    return _listed(row["output_token_ids"])


def _unusable(row: Mapping[Any, Any]) -> str | None:
    if not pd.isna(row["error_class"]):
        return FAILED
    if pd.isna(row["output_tokens"]) or pd.isna(row["input_tokens"]):
        return UNCOUNTED
    if row["output_tokens"] < STEPPED_MIN:
        return SHORT
    accepted = _listed(row["step_accepted"])
    if accepted is None:
        return UNTOLD
    return None if fits(accepted, int(row["output_tokens"])) else GAPS


def _told(row: Mapping[Any, Any]) -> Told:
    accepted = _listed(row["step_accepted"])
    reach = Reach(span_split([] if accepted is None else accepted))
    ids = ids_of(row)
    known = ids is not None and ids.size == reach.accepted.size
    return Told(
        prompt_id=str(row["prompt_id"]),
        category=None if pd.isna(row["category"]) else str(row["category"]),
        repeat=int(row["repeat"]),
        prompt_tokens=int(row["input_tokens"]),
        reach=reach,
        ids=ids if known else None,
        sha256=None if pd.isna(row["output_sha256"]) else str(row["output_sha256"]),
    )


def _listed(value: Any) -> Tokens | None:
    if value is None or isinstance(value, float):
        return None
    return np.asarray(value, dtype=np.int64)
