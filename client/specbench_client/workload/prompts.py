"""Loads the prompts of a workload: read, validate, select, and compute a fingerprint of what will be sent.

The selection is a pure function of the file and the declaration, so every client of a run, and every run with the same
declaration, sends the same prompts in the same order. The fingerprint reveals a file that changed under the same name.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from specbench_api.plan.canonical import canonical_json
from specbench_api.spec.answers import Answers, ExpectedAnswer
from specbench_api.spec.dataset import Dataset, Selection, Sessions, Source
from specbench_api.spec.workload import WAIT_SECONDS_MAX, SystemPrompt, Workload
from specbench_client.chat import ChatMessage
from specbench_client.documents.minimum_samples import MIN_PROMPTS, few_prompts
from specbench_client.documents.prompt_coverage import PromptCoverage
from specbench_client.errors import BadInput
from specbench_client.workload.locations import rows_of_selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.prompt_lengths import LengthsUnknown, LoadEncoding, cached_encoding, measure_lengths
from specbench_client.workload.row_outcomes import check_rows, coverage_of, mix_coverage, reject_faults
from specbench_client.workload.row_parsing import Prompt
from specbench_client.workload.row_shapes import unsent_text
from specbench_client.workload.selection import mix_prompts, select_subset
from specbench_client.workload.sources.random_words import random_text, session_prompts, sessions_coverage

__all__ = ["Prompts", "fingerprint", "load_prompts", "load_workload", "select_prompts"]

Turn = tuple[ChatMessage, ...]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prompts:
    """The prompts to send, in order. `fingerprint` is the SHA-256 of the canonical rows, in hexadecimal."""

    rows: tuple[Prompt, ...]
    fingerprint: str
    coverage: PromptCoverage | None = field(default=None, compare=False)
    """How many rows of the dataset were read, selected, left out and used."""

    @property
    def turns(self) -> int:
        """Requests of one pass over all prompts."""
        return sum(len(prompt.turns) for prompt in self.rows)


def load_prompts(
    dataset: Dataset,
    base_dir: Path,
    ruler: LoadEncoding = cached_encoding,
    *,
    with_tools: bool = False,
    expected: ExpectedAnswer | None = None,
) -> Prompts:
    """Load the prompts of a dataset. Relative paths start at `base_dir`. Blocks. Raises BadInput.

    `ruler` returns the encoding for `inputTokens`, or raises EncodingMissing. `with_tools`: whether tools and tool
    calls can be sent, which requires that the client applies the chat template. `expected`: the expected answers, if
    they are declared.
    """

    def load(selection: Selection) -> Prompts:
        if selection.sessions is not None:
            prompts = session_prompts(selection, selection.sessions)
            coverage = sessions_coverage(prompts, selection.sessions)
            return Prompts(tuple(prompts), fingerprint(prompts), coverage)
        faults = list[str]()
        rows = rows_of_selection(selection, base_dir, faults)
        return select_prompts(rows, selection, ruler, with_tools=with_tools, expected=expected, unreadable=faults)

    if dataset.source is not Source.MIX:
        return load(dataset)
    found = {member.name: load(member) for member in dataset.members or []}
    prompts = mix_prompts(dataset, {name: one.rows for name, one in found.items()})
    coverages = {name: one.coverage for name, one in found.items() if one.coverage is not None}
    return Prompts(tuple(prompts), fingerprint(prompts), mix_coverage(dataset, coverages, prompts))


def load_workload(workload: Workload, base_dir: Path, ruler: LoadEncoding = cached_encoding) -> Prompts:
    """Load the prompts of a workload as `load_prompts` does, each beginning with the workload's system prompt."""
    by_client = workload.client_template is not None
    answers = workload.answers
    expected = None if answers is None else answers.expected
    loaded = load_prompts(workload.dataset, base_dir, ruler, with_tools=by_client, expected=expected)
    if len(loaded.rows) < MIN_PROMPTS:
        warn_once(f"{few_prompts(workload.name, len(loaded.rows))} (TooFewPrompts): use more prompts")
    prompts = _with_waits(workload, loaded)
    if answers is not None:
        _reject_unjudged(prompts.rows, answers, workload.name)
    declared = workload.system_prompt
    if declared is None:
        return prompts
    text = declared.text
    if text is None:
        text = random_text(f"{workload.sampling.seed}/system", declared.tokens or 0)
    rows = tuple(_with_system_prompt(row, text, workload.name) for row in prompts.rows)
    share = _share_with(declared, workload.dataset.sessions)
    coverage = prompts.coverage and prompts.coverage.model_copy(update={"reusable_share": share})
    return replace(prompts, rows=rows, fingerprint=fingerprint(rows), coverage=coverage)


def _reject_unjudged(rows: Sequence[Prompt], answers: Answers, workload: str) -> None:
    """Raise BadInput for the first prompt to which no answer in the demanded form can be expected."""
    for row in rows:
        if answers.expected is not None and row.expected is None:
            problem, remedy = "has no expected answer", "use a dataset with answers"
        elif row.output_tokens is not None:
            problem, remedy = "prescribes the length of its answer", "use another dataset"
        elif answers.expected is None and row.turns[0][-1].token_ids is not None:
            problem, remedy = "is given as token_ids, which are sent to a route without tools", "give its text"
        elif answers.tools is not None and len(row.turns) > 1:
            problem, remedy = "has turns after the tool call, whose result is not known", "give prompts of one turn"
        else:
            continue
        raise BadInput(f"workload {workload!r}: the prompt {row.id!r} {problem}: {remedy}, or remove answers")


def _share_with(declared: SystemPrompt, sessions: Sessions | None) -> float | None:
    """Return the share of prompt tokens that a cache can reuse behind a system prompt; None if it is not known."""
    if sessions is None or declared.tokens is None:
        return None
    shared = sessions.shared_prefix_tokens + declared.tokens
    return sessions.model_copy(update={"shared_prefix_tokens": shared}).reusable_share


def _with_waits(workload: Workload, prompts: Prompts) -> Prompts:
    """Return the prompts without recorded waits if `thinkTime` replaces them. Raises BadInput for very long ones."""
    if not any(row.starts for row in prompts.rows):
        return prompts
    if workload.think_time is not None:
        rows = tuple(
            replace(row, starts=tuple(replace(one, wait_s=None) for one in row.starts)) for row in prompts.rows
        )
        return replace(prompts, rows=rows, fingerprint=fingerprint(rows))
    waits = ((one.wait_s or 0.0, row.id, at) for row in prompts.rows for at, one in enumerate(row.starts))
    longest, name, at = max(waits)
    if longest > WAIT_SECONDS_MAX:
        raise BadInput(
            f"workload {workload.name!r}: request {at} of the session {name!r} waits {longest:,.0f} s in the recording,"
            f" and at most {WAIT_SECONDS_MAX:,} s are waited: split the session there, or set thinkTime, which replaces"
            " recorded waits"
        )
    return prompts


def _with_system_prompt(prompt: Prompt, text: str, workload: str) -> Prompt:
    opened = [_with_opening(prompt, turn, text, workload) for turn in prompt.turns[: None if prompt.starts else 1]]
    return replace(prompt, turns=(*opened, *prompt.turns[len(opened) :]))


def _with_opening(prompt: Prompt, turn: Turn, text: str, workload: str) -> Turn:
    """Return the messages of a request that begins a history, with the system prompt before them."""
    first, *rest = turn
    if first.token_ids is not None:
        raise BadInput(
            f"workload {workload!r}: systemPrompt cannot be put before the prompt {prompt.id!r}, which is given as"
            " token_ids: give its text, or remove systemPrompt"
        )
    if first.role in ("system", "developer") and not first.parts:
        before = f"{text}\n\n"
        shared = len(before) + first.shared if first.shared else len(text)
        return (replace(first, content=f"{before}{first.content}", shared=shared), *rest)
    return (ChatMessage("system", text, tools=first.tools, shared=len(text)), replace(first, tools=""), *rest)


def select_prompts(
    rows: Sequence[PromptRow],
    dataset: Selection,
    ruler: LoadEncoding = cached_encoding,
    *,
    with_tools: bool = False,
    expected: ExpectedAnswer | None = None,
    unreadable: Sequence[str] = (),
) -> Prompts:
    """Convert, filter, validate and select rows as `Selection` declares. Raises BadInput.

    `unreadable`: as of `check_rows`.
    """
    found = check_rows(rows, dataset, with_tools=with_tools, expected=expected, unreadable=unreadable)
    reject_faults(found, dataset)
    if unsent := unsent_text(found.rows):
        warn_once(f"{dataset.where}: {unsent}")
    eligible = _of_suitable_length(found.prompts, dataset, ruler)
    used = select_subset(eligible, dataset)
    if not used:
        left_out = Counter(fault.reason for fault in (*found.excluded, *found.missing))
        reasons = "".join(f"; left out: {count} x {reason}" for reason, count in left_out.items())
        remedy = f"relax the dataset's filters{reasons}"
        raise BadInput(f"{dataset.where}: none of the {len(rows)} rows passes the filters: {remedy}")
    return Prompts(tuple(used), fingerprint(used), coverage_of(dataset, found, eligible, used))


@cache
def warn_once(message: str) -> None:
    """Log a warning; a run loads its prompts several times."""
    _log.warning("warning: %s", message)


def fingerprint(prompts: Sequence[Prompt]) -> str:
    """Return the SHA-256 over the prompts in order: their ids, categories, messages and expected answers."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(canonical_json(_canonical_prompt(prompt)).encode() + b"\n")
    return digest.hexdigest()


def _canonical_prompt(prompt: Prompt) -> dict[str, Any]:
    """Return the part of a prompt that comes from the dataset, without anything derived from it later."""
    limit = {} if prompt.output_tokens is None else {"output_tokens": prompt.output_tokens}
    answer = {} if prompt.expected is None else {"expected": prompt.expected}
    common = {"id": prompt.id, "category": prompt.category, **limit, **answer}
    if not prompt.starts:
        return {**common, "turns": [[_canonical_message(one) for one in turn] for turn in prompt.turns]}
    places: dict[ChatMessage, int] = {}  # each request repeats its history, which is hashed once
    turns = [[places.setdefault(one, len(places)) for one in turn] for turn in prompt.turns]
    starts = [[list(one.after), one.wait_s] for one in prompt.starts]
    return {**common, "messages": [_canonical_message(one) for one in places], "turns": turns, "starts": starts}


def _canonical_message(message: ChatMessage) -> dict[str, Any]:
    return {
        "role": message.role, "content": message.content, "token_ids": message.token_ids, **_other_fields(message)
    }  # fmt: skip


def _other_fields(message: ChatMessage) -> dict[str, str]:
    """Return the other fields that are not empty: prompts without them keep the fingerprint they always had."""
    fields = {"further": message.further, "tools": message.tools, "parts": message.parts}
    return {name: text for name, text in fields.items() if text}


def _of_suitable_length(prompts: list[Prompt], dataset: Selection, ruler: LoadEncoding) -> list[Prompt]:
    """Return the prompts whose length is within inputTokens."""
    bounds = dataset.input_tokens
    if bounds is None:
        return prompts
    lengths = measure_lengths(prompts, ruler)
    if lengths.tokens is None:
        raise LengthsUnknown(f"{dataset.where}: inputTokens cannot be applied: {lengths.reason}")
    return [prompt for prompt in prompts if bounds.holds(lengths.tokens[prompt.id])]
