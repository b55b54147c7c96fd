"""A stored run's prompts and answers as token ids, for what is replayed over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.oracle.answers import Tokens
from specbench_client.analysis.oracle.records import FAILED, ids_of, key_of
from specbench_client.analysis.oracle.told import Key
from specbench_client.analysis.replay.report import Log, Logged
from specbench_client.chat import Message
from specbench_client.drive.answered import Answered
from specbench_client.errors import BadInput
from specbench_client.store.locate import read_object
from specbench_client.workload.encoder import Encoder
from specbench_client.workload.prompts import load_prompts
from specbench_client.workload.reading import Prompt

LATER = "a later turn: its prompt holds earlier answers"
NEITHER = "neither token ids nor text in the record"
_KEEP = "measure again with --keep-text (specbench run, specbench measure), and give --tokenizer"
_JOINT = "\n\n"


@dataclass(frozen=True)
class Texts:
    """How a run's texts become token ids. `prompts`: their file, where the plan's path leads nowhere."""

    encoder: Encoder | None = None
    prompts: Path | None = None


def run_log(run: Answered, arm: str | None, texts: Texts) -> Log:
    """First turns of an arm, by default the baseline's, as token ids. Blocks.

    Raises BadInput where neither ids nor texts were kept, or the prompts are others now.
    """
    arm = _arm(run, arm)
    found = logged_of(run, arm, texts)
    whose = "the engine's own"
    if texts.encoder is not None:
        whose = f"the engine's where it told them, else of texts by {texts.encoder.told}"
    told = f"{whose}; {found.alike:,} of {len(found.logged):,} answers have as many as the engine counted"
    return Log(f"{run.words}, arm {arm}", told, list(found.logged.values()), found.left_out, run.simulated)


@dataclass(frozen=True)
class LoggedAnswers:
    """By key. `alike`: how many have as many token ids as the engine counted, or one less: the end has no text."""

    logged: Mapping[Key, Logged]
    left_out: Mapping[str, int]
    alike: int


def logged_of(run: Answered, arm: str, texts: Texts) -> LoggedAnswers:
    """First turns of an arm. Raises BadInput where there are none."""
    rows = run.records(arm)
    if not len(rows):
        raise BadInput(f"{run.words}: the arm {arm!r} has no measured point yet")
    logged, left_out, alike = dict[Key, Logged](), Counter[str](), 0
    asked: dict[str, Prompt] | None = None
    for row in rows.to_dict("records"):
        why = _unusable(row)
        if why:
            left_out[why] += 1
            continue
        output = _output(row, texts.encoder)
        asked = _prompts(run, arm, texts.prompts) if asked is None else asked
        prompt = _prompt(asked[str(row["prompt_id"])], texts.encoder)
        alike += 0 <= row["output_tokens"] - output.size <= 1
        category = None if pd.isna(row["category"]) else str(row["category"])
        logged[key_of(row)] = Logged(str(row["prompt_id"]), category, prompt, output, int(row["repeat"]))
    if not logged:
        reasons = "; ".join(f"{count} x {why}" for why, count in left_out.items())
        raise BadInput(f"{run.words}, arm {arm}: no answer can be replayed ({reasons}): {_KEEP}")
    return LoggedAnswers(logged, dict(left_out), alike)


def _arm(run: Answered, wanted: str | None) -> str:
    names = [each.name for each in run.plan.arms]
    if wanted is not None and wanted not in names:
        raise BadInput(f"--arm {wanted}: the run has {', '.join(names)}")
    return wanted or (BASELINE_NAME if BASELINE_NAME in names else names[0])


def _unusable(row: Mapping[Any, Any]) -> str | None:
    if not pd.isna(row["error_class"]):
        return FAILED
    if row["turn"] > 0:
        return LATER
    return NEITHER if ids_of(row) is None and not isinstance(row["output_text"], str) else None


def _output(row: Mapping[Any, Any], encoder: Encoder | None) -> Tokens:
    ids = ids_of(row)
    if ids is not None:
        return ids
    return _encoded(row["output_text"], encoder)


def _prompt(prompt: Prompt, encoder: Encoder | None) -> Tokens:
    messages: tuple[Message, ...] = prompt.turns[0]
    if messages[0].token_ids is not None:
        return np.array(messages[0].token_ids, dtype=np.int64)
    return _encoded(_JOINT.join(each.content for each in messages), encoder)


def _encoded(text: str, encoder: Encoder | None) -> Tokens:
    if encoder is None:
        where = "the target's tokenizer.json or its folder, or o200k_base for an estimate"
        raise BadInput(f"the records hold texts, and drafts are looked up in tokens: add --tokenizer, {where}")
    return np.array(encoder.encode(text), dtype=np.int64)


def _prompts(run: Answered, arm: str, file: Path | None) -> dict[str, Prompt]:
    """The very prompts that were measured. Raises BadInput where they are gone, or others."""
    workload = run.plan.workload(run.workload)
    dataset = workload.dataset
    if file is not None:
        dataset = dataset.model_copy(update={"uri": str(file)})
    try:
        found = load_prompts(dataset, Path(), read_object, with_tools=workload.client_template is not None)
    except BadInput as error:
        raise BadInput(f"{error}; the run's prompts are needed too: give their file with --prompts") from error
    if run.fingerprints(arm) - {found.fingerprint}:
        raise BadInput(f"{dataset.where}: these are not the prompts that were measured: give their file with --prompts")
    return {each.id: each for each in found.rows}
