"""Reads recorded answers from files: prompts with their outputs, and engines' traces of a drafter's steps.

A trace states how many tokens a step emits at each position of an answer, for one or more drafters. Its format is that
of "Performance or Illusion?": `prompt_token_ids`, `generated_token_ids`, and `acc_NAME: {"acc_len": […]}` with one
value per output position, the accepted draft tokens + 1; position 0 belongs to the prefill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specbench_client.analysis.what_if.answers import (
    DraftedAnswer,
    PositionAcceptance,
    Tokens,
    join_answers,
)
from specbench_client.analysis.what_if.ngram import NGRAM, PUBLISHED_LOOKUP, AnswerLog, LoggedAnswer, replayed_answer
from specbench_client.analysis.what_if.oracle import OracleSubject
from specbench_client.analysis.what_if.policies import draft_cost
from specbench_client.dataset.inspection import OUTPUT_COLUMNS, output_of
from specbench_client.dataset.prompt_entries import MESSAGE_SEPARATOR, read_prompt_rows
from specbench_client.documents.what_if import CostModel
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.prompt_lengths import TokenEncoder

PROMPT_IDS = ("prompt_token_ids", "input_token_ids")

OUTPUT_IDS = ("output_token_ids", "generated_token_ids")

FILE_TOKENIZER = "the file's own"

NO_PROMPT, NO_OUTPUT = "no prompt", "no output"

_BOUND = 2**31
"""Exclusive upper bound of token ids and counts; a larger number is certainly something else."""


def read_log(file: Path, encoder: TokenEncoder | None = None, outputs: str | None = None) -> AnswerLog:
    """Read every row that has a prompt and an output; count the others. `outputs`: the column with the output texts.

    Raises BadInput if the file cannot be read, a row is invalid, or there are texts but no tokenizer.
    """
    rows, _ = read_prompt_rows(file)
    answers: list[LoggedAnswer] = []
    left_out: Counter[str] = Counter()
    for row in rows:
        found = _logged(row, f"{file}, {row.place}", encoder, outputs)
        if isinstance(found, LoggedAnswer):
            answers.append(found)
        else:
            left_out[found] += 1
    if not answers:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in left_out.items())
        raise BadInput(f"{file}: no row has a prompt and an output ({reasons}): {_REQUIRED_COLUMNS}")
    by_ids = all(first_of(row.columns, OUTPUT_IDS) for row in rows)
    return AnswerLog(
        str(file), FILE_TOKENIZER if by_ids or encoder is None else encoder.description, answers, dict(left_out)
    )


_REQUIRED_COLUMNS = (
    f"give {PROMPT_IDS[0]} and {OUTPUT_IDS[0]}, or prompt (or messages) and one of {', '.join(OUTPUT_COLUMNS)}"
    " with --tokenizer"
)


def _logged(row: PromptRow, where: str, encoder: TokenEncoder | None, outputs: str | None) -> LoggedAnswer | str:
    """Return the row's answer, or the reason why it has none."""
    columns = row.columns
    prompt = _prompt(columns, where, encoder)
    output = _ids(columns, OUTPUT_IDS, where, output_of(columns, outputs), encoder)
    if prompt is None:
        return NO_PROMPT
    if output is None:
        return NO_OUTPUT
    return LoggedAnswer(id_of(columns, row.place), category_of(columns), prompt, output)


def _prompt(columns: Mapping[str, Any], where: str, encoder: TokenEncoder | None) -> Tokens | None:
    text = columns.get("prompt")
    messages = columns.get("messages")
    if text is None and isinstance(messages, list):
        contents = [each.get("content") for each in messages if isinstance(each, Mapping)]
        text = MESSAGE_SEPARATOR.join(each for each in contents if isinstance(each, str))
    return _ids(columns, PROMPT_IDS, where, text if isinstance(text, str) else None, encoder)


def _ids(
    columns: Mapping[str, Any], names: tuple[str, ...], where: str, text: str | None, encoder: TokenEncoder | None
) -> Tokens | None:
    """Return the row's token ids, or else those of its text; None if it has neither."""
    name = first_of(columns, names)
    if name:
        return whole_numbers(columns, name, where)
    if not text:
        return None
    if encoder is None:
        remedy = f"add --tokenizer with the target's tokenizer.json, or give {PROMPT_IDS[0]} and {OUTPUT_IDS[0]}"
        raise BadInput(f"{where}: has texts but no token ids, which n-gram lookup needs: {remedy}")
    return np.array(encoder.encode(text), dtype=np.int64)


def whole_numbers(columns: Mapping[str, Any], name: str, where: str, least: int = 0) -> Tokens:
    """Return a column that is a list of whole numbers of `least` or more. Raises BadInput."""
    value = columns[name]
    wrong = f"{where}: {name} must be a list of whole numbers of {least} or more, such as [{least}, {least + 1}]"
    if not isinstance(value, list) or any(type(each) is not int or not least <= each < _BOUND for each in value):
        raise BadInput(wrong)
    return np.array(value, dtype=np.int64)


def first_of(columns: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """Return the first of these columns that has a value in the row."""
    return next((name for name in names if columns.get(name) is not None), None)


def category_of(columns: Mapping[str, Any]) -> str | None:
    """Return the row's category; None if it has no non-empty string."""
    value = columns.get("category")
    return value if isinstance(value, str) and value else None


def id_of(columns: Mapping[str, Any], place: str) -> str:
    """Return the row's id, or else its line or row number."""
    name = first_of(columns, ("id", "question_id"))
    return str(columns[name]) if name else place


_MAX_DRAFT_LENGTH = 2**31

_PREFIX, _LENGTHS = "acc_", "acc_len"


@dataclass(frozen=True)
class Traces:
    """Answers by drafter, in the order of the rows."""

    source: str
    drafters: Mapping[str, Sequence[DraftedAnswer]]
    logged: Sequence[LoggedAnswer | None]
    """The rows' own token ids; None for a row without them."""

    def answers(self, name: str) -> Sequence[DraftedAnswer]:
        """Return a drafter's answers; those of n-gram drafting with the proposed draft lengths, which traces lack.

        The lengths come from a replay. If some answer cannot be replayed, the drafter is assumed to draft at every
        step.
        """
        traced = self.drafters[name]
        own = [
            logged
            for logged, each in zip(self.logged, traced, strict=True)
            if logged and logged.output.size == each.tokens
        ]
        if name != NGRAM or len(own) != len(traced):
            return traced
        return [
            _with_proposals(each, replayed_answer(logged, PUBLISHED_LOOKUP))
            for each, logged in zip(traced, own, strict=True)
        ]


def _with_proposals(traced: DraftedAnswer, replayed: DraftedAnswer) -> DraftedAnswer:
    """Set the proposed lengths from the replay, at least as long as what the engine accepted."""
    acceptance = traced.acceptance
    proposed = np.maximum(replayed.acceptance.drafts(_MAX_DRAFT_LENGTH), acceptance.accepted)
    return replace(traced, acceptance=replace(acceptance, proposed=proposed))


def read_traces(file: Path) -> Traces:
    """Read every row of a trace file. Raises BadInput if a row is not a trace."""
    rows, _ = read_prompt_rows(file)
    names = drafters_in(rows)
    if not names:
        example = f'"{_PREFIX}NAME": {{"{_LENGTHS}": [1, 3, …]}}'
        raise BadInput(
            f"{file}: is not a trace, because no row has {example}: for texts or token ids, use"
            " `specbench analyze ngram`"
        )
    places = [(row, f"{file}, {row.place}") for row in rows]
    drafters = {name: [_row_answers(row, where, name) for row, where in places] for name in names}
    return Traces(str(file), drafters, [_own_tokens(row, where) for row, where in places])


def _own_tokens(row: PromptRow, where: str) -> LoggedAnswer | None:
    ids = first_of(row.columns, OUTPUT_IDS)
    if ids is None:
        return None
    output = whole_numbers(row.columns, ids, where)
    return LoggedAnswer(id_of(row.columns, row.place), category_of(row.columns), _trace_prompt(row, where), output)


def drafters_in(rows: Sequence[PromptRow]) -> list[str]:
    """Return the drafters in the first row, in its order; empty if the file is not a trace."""
    first = rows[0].columns if rows else {}
    return [
        name.removeprefix(_PREFIX)
        for name, value in first.items()
        if name.startswith(_PREFIX) and isinstance(value, Mapping) and _LENGTHS in value
    ]


def _row_answers(row: PromptRow, where: str, name: str) -> DraftedAnswer:
    """Parse one drafter's answer in a row. Raises BadInput."""
    trace: Any = row.columns.get(f"{_PREFIX}{name}")
    if not isinstance(trace, Mapping) or trace.get(_LENGTHS) is None:
        raise BadInput(
            f"{where}: has no {_PREFIX}{name}.{_LENGTHS}, which the first row has: every row needs the same drafters"
        )
    emitted = whole_numbers(trace, _LENGTHS, f"{where}, {_PREFIX}{name}", least=1)
    size = int(_trace_prompt(row, where).size)
    return DraftedAnswer(
        id_of(row.columns, row.place), category_of(row.columns), 0, size, PositionAcceptance(emitted - 1)
    )


def _trace_prompt(row: PromptRow, where: str) -> Tokens:
    name = first_of(row.columns, PROMPT_IDS)
    if name is None:
        raise BadInput(f"{where}: has no {PROMPT_IDS[0]}, which give the length of the context: add it to every row")
    return np.asarray(whole_numbers(row.columns, name, where))


def trace_subject(traces: Traces, arm: str | None, cost: CostModel | None) -> OracleSubject:
    """Build an oracle's input from `arm`, by default the first drafter but n-gram. Raises BadInput."""
    names = list(traces.drafters)
    name = arm or next((name for name in names if name != NGRAM), names[0])
    if name not in names:
        raise BadInput(f"--arm {name}: no such drafter in the file: give one of {', '.join(names)}")
    return OracleSubject(traces.source, name, join_answers(traces.answers(name)), draft_cost(cost, name))
