"""Reads a stored run's prompts and answers as token ids, for n-gram replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.what_if.answers import QuestionKey, Tokens
from specbench_client.analysis.what_if.ngram import AnswerLog, LoggedAnswer
from specbench_client.analysis.what_if.recorded_answers import REQUEST_FAILED, key_of, token_ids_of
from specbench_client.chat import ChatMessage
from specbench_client.errors import BadInput
from specbench_client.store.locations import read_object
from specbench_client.stored_runs.records import StoredRun
from specbench_client.workload.prompt_lengths import TokenEncoder
from specbench_client.workload.prompts import load_prompts
from specbench_client.workload.row_parsing import Prompt

LATER_TURN = "a later turn: its prompt contains earlier answers"
NO_TOKENS_NOR_TEXT = "neither token ids nor text in the record"
_KEEP_TEXT_HINT = "measure again with --keep-text (specbench run, specbench measure), and give --tokenizer"
_MESSAGE_SEPARATOR = "\n\n"


@dataclass(frozen=True)
class TextEncoding:
    """How a run's texts are converted to token ids. `prompts`: file of the prompts, if not at the path in the plan."""

    encoder: TokenEncoder | None = None
    prompts: Path | None = None


def read_ngram_log(run: StoredRun, arm: str | None, texts: TextEncoding) -> AnswerLog:
    """Return the first turns of an arm (by default the baseline) as token ids. Blocks.

    Raises BadInput if neither ids nor texts were recorded, or the prompts have changed since.
    """
    arm = _arm_name(run, arm)
    found = read_logged_answers(run, arm, texts)
    origin = "the engine's own"
    if texts.encoder is not None:
        origin = f"the engine's where it reported them, else of texts by {texts.encoder.description}"
    origin = f"{origin}; {found.alike:,} of {len(found.logged):,} answers have as many as the engine counted"
    return AnswerLog(f"{run.words}, arm {arm}", origin, list(found.logged.values()), found.left_out, run.simulated)


@dataclass(frozen=True)
class LoggedAnswers:
    """Answers by key.

    `alike`: number of answers with as many token ids as the engine counted, or one less, since the end token has no
    text.
    """

    logged: Mapping[QuestionKey, LoggedAnswer]
    left_out: Mapping[str, int]
    alike: int


def read_logged_answers(run: StoredRun, arm: str, texts: TextEncoding) -> LoggedAnswers:
    """Read the first turns of an arm. Raises BadInput if there are none."""
    rows = run.records(arm)
    if not len(rows):
        message = f"the arm {arm!r} has no measured point yet: wait for the run, or choose another arm"
        raise BadInput(f"{run.words}: {message}")
    logged, left_out, alike = dict[QuestionKey, LoggedAnswer](), Counter[str](), 0
    prompts: dict[str, Prompt] | None = None  # read only once an answer needs them
    for row in rows.to_dict("records"):
        why = _unusable_reason(row)
        if why:
            left_out[why] += 1
            continue
        output = _output_tokens(row, texts.encoder)
        prompts = _measured_prompts(run, arm, texts.prompts) if prompts is None else prompts
        prompt = _prompt_tokens(prompts[str(row["prompt_id"])], texts.encoder)
        alike += 0 <= row["output_tokens"] - output.size <= 1
        category = None if pd.isna(row["category"]) else str(row["category"])
        logged[key_of(row)] = LoggedAnswer(str(row["prompt_id"]), category, prompt, output, int(row["repeat"]))
    if not logged:
        reasons = "; ".join(f"{count} x {why}" for why, count in left_out.items())
        raise BadInput(f"{run.words}, arm {arm}: no answer can be replayed ({reasons}): {_KEEP_TEXT_HINT}")
    return LoggedAnswers(logged, dict(left_out), alike)


def _arm_name(run: StoredRun, requested: str | None) -> str:
    names = [each.name for each in run.plan.arms]
    if requested is not None and requested not in names:
        raise BadInput(f"--arm {requested}: the run has {', '.join(names)}")
    return requested or (BASELINE_NAME if BASELINE_NAME in names else names[0])


def _unusable_reason(row: Mapping[Any, Any]) -> str | None:
    if not pd.isna(row["error_class"]):
        return REQUEST_FAILED
    if row["turn"] > 0:
        return LATER_TURN
    return NO_TOKENS_NOR_TEXT if token_ids_of(row) is None and not isinstance(row["output_text"], str) else None


def _output_tokens(row: Mapping[Any, Any], encoder: TokenEncoder | None) -> Tokens:
    ids = token_ids_of(row)
    if ids is not None:
        return ids
    return _encode(row["output_text"], encoder)


def _prompt_tokens(prompt: Prompt, encoder: TokenEncoder | None) -> Tokens:
    messages: tuple[ChatMessage, ...] = prompt.turns[0]
    if messages[0].token_ids is not None:
        return np.array(messages[0].token_ids, dtype=np.int64)
    return _encode(_MESSAGE_SEPARATOR.join(each.content for each in messages), encoder)


def _encode(text: str, encoder: TokenEncoder | None) -> Tokens:
    if encoder is None:
        which = "the target's tokenizer.json or its folder, or o200k_base for an estimate"
        raise BadInput(f"the records contain texts, and drafts are looked up in tokens: add --tokenizer, {which}")
    return np.array(encoder.encode(text), dtype=np.int64)


def _measured_prompts(run: StoredRun, arm: str, file: Path | None) -> dict[str, Prompt]:
    """Return the prompts that were measured, by id. Raises BadInput if they are missing or have changed."""
    workload = run.plan.workload(run.workload)
    dataset = workload.dataset
    if file is not None:
        dataset = dataset.model_copy(update={"uri": str(file)})
    try:
        found = load_prompts(dataset, Path(), read_object, with_tools=workload.client_template is not None)
    except BadInput as error:
        raise BadInput(f"{error}; the run's prompts are needed: give their file with --prompts") from error
    if run.fingerprints(arm) - {found.fingerprint}:
        raise BadInput(f"{dataset.where}: these are not the prompts that were measured: give their file with --prompts")
    return {each.id: each for each in found.rows}
