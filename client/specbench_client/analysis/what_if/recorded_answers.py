"""Reads the accepted drafts at each position of each answer from the records of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specbench_api.outcome.record import RecordPhase
from specbench_client.analysis.what_if.answers import (
    STEPPED_MIN,
    DraftedAnswer,
    PositionAcceptance,
    QuestionKey,
    Tokens,
    span_split,
    steps_cover_answer,
)
from specbench_client.load.conversations import is_filler
from specbench_client.metrics.pairing import with_pass_number

COLUMNS = (
    "prompt_id", "category", "conversation_id", "turn", "repeat", "phase", "intended_ns", "input_tokens",
    "output_tokens", "step_accepted", "error_class", "output_sha256", "output_text", "output_token_ids",
)  # fmt: skip
"""Columns that are read from the records."""
REQUEST_FAILED = "the request failed"
TOKENS_NOT_COUNTED = "the engine did not count its tokens"
STEPS_NOT_REPORTED = "the engine did not report the accepted drafts of each step"
STEPS_WITHOUT_DRAFTS = "some steps drafted nothing, and their positions are not recorded"
TOO_SHORT = "fewer than two output tokens"


@dataclass(frozen=True)
class RecordedAnswers:
    """Answers of one arm by key, and the number of answers left out by reason."""

    answers: Mapping[QuestionKey, DraftedAnswer]
    left_out: Mapping[str, int]


def measured_answers(records: pd.DataFrame) -> pd.DataFrame:
    """Return the measured answers, without warm-up and filler requests, each with its pass over the prompts.

    `records`: COLUMNS and the column `point`.
    """
    measured = (records["phase"] != RecordPhase.WARMUP.value) & ~records["prompt_id"].map(is_filler).astype(bool)
    return with_pass_number(records[measured.to_numpy(bool)].reset_index(drop=True))


def recorded_answers(rows: pd.DataFrame) -> RecordedAnswers:
    """Read the answers of measured rows; accepted drafts between steps come from `span_split`."""
    answers: dict[QuestionKey, DraftedAnswer] = {}
    left_out: Counter[str] = Counter()
    for row in rows.to_dict("records"):
        why = _unusable(row)
        if why:
            left_out[why] += 1
        else:
            answers[key_of(row)] = _drafted_answer(row)
    return RecordedAnswers(answers, dict(left_out))


def key_of(row: Mapping[Any, Any]) -> QuestionKey:
    """Return the key of a row's request; its last element combines pass and turn."""
    return str(row["prompt_id"]), int(row["repeat"]), (int(row["pass"]) << 16) + int(row["turn"])


def token_ids_of(row: Mapping[Any, Any]) -> Tokens | None:
    """Return the answer's token ids, shape (tokens,); None if the record has none."""
    return _int_array(row["output_token_ids"])


def _unusable(row: Mapping[Any, Any]) -> str | None:
    if not pd.isna(row["error_class"]):
        return REQUEST_FAILED
    if pd.isna(row["output_tokens"]) or pd.isna(row["input_tokens"]):
        return TOKENS_NOT_COUNTED
    if row["output_tokens"] < STEPPED_MIN:
        return TOO_SHORT
    accepted = _int_array(row["step_accepted"])
    if accepted is None:
        return STEPS_NOT_REPORTED
    return None if steps_cover_answer(accepted, int(row["output_tokens"])) else STEPS_WITHOUT_DRAFTS


def _drafted_answer(row: Mapping[Any, Any]) -> DraftedAnswer:
    accepted = _int_array(row["step_accepted"])
    acceptance = PositionAcceptance(span_split([] if accepted is None else accepted))
    ids = token_ids_of(row)
    known = ids is not None and ids.size == acceptance.accepted.size
    return DraftedAnswer(
        prompt_id=str(row["prompt_id"]),
        category=None if pd.isna(row["category"]) else str(row["category"]),
        repeat=int(row["repeat"]),
        prompt_tokens=int(row["input_tokens"]),
        acceptance=acceptance,
        ids=ids if known else None,
        sha256=None if pd.isna(row["output_sha256"]) else str(row["output_sha256"]),
    )


def _int_array(value: Any) -> Tokens | None:
    if value is None or isinstance(value, float):
        return None
    return np.asarray(value, dtype=np.int64)
