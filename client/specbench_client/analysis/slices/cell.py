"""All slices of a cell, and why those are missing that are."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench_api.outcome.slices import LengthClass, Slice, Slices
from specbench_client.analysis.estimates.figures import Sample
from specbench_client.analysis.slices.places import Steps
from specbench_client.analysis.slices.requests import by_turn, in_class, length_classes, slice_of, spread_by_request
from specbench_client.analysis.slices.steps import Class, by_place, ranges
from specbench_client.metrics.frame import numbers, steady
from specbench_client.metrics.rows import Columns, Rows
from specbench_client.metrics.walk import ANSWER, CONTEXTS, POSITIONS, THOUGHT

_POSITIONS, _CONTEXTS = ranges(POSITIONS), ranges(CONTEXTS)
_PARTS = [Class(THOUGHT, "thought"), Class(ANSWER, "answer")]

NO_DRAFTS = "nothing tells the steps of a drafter: the arm has none, or its engine keeps them to itself"
UNPLACED = (
    "the engine tells how many steps an answer had and not where each of them stood: it lists no steps, or only those"
    " with drafts, and its chunks are not one a step"
)
NO_PROMPT_TOKENS = "the engine does not tell the tokens of a prompt"
NO_THOUGHTS = (
    "no answer has thoughts that the engine marks as such, with chunks that tell their tokens: start it with its"
    " reasoning parser"
)
NO_TOKENS = "neither engine nor client counts the tokens of an answer"
ONE_LENGTH = "all answers, or three in four and more, have one length, which may be the limit of output.maxTokens"
NO_TURNS = "every request is the first turn of its conversation"


def slices_of(rows: pd.DataFrame | Rows, seed: int | None, drafts: int) -> Slices:
    """Slice the tidy rows of a cell, over all its repeats.

    `seed`: of the intervals; without one there are none. `drafts`: most draft tokens a step, 0 where it is not known.
    """
    sample = Sample(steady(rows), seed)
    places = Steps(sample.rows)
    has_thoughts = places.thoughts
    classes, how = length_classes(sample.rows)
    found = Slices(
        acceptance_by_request=spread_by_request(sample),
        by_position=by_place(sample, places, "position", _POSITIONS, drafts),
        by_context=by_place(sample, places, "context", _CONTEXTS, drafts),
        by_length=[_of_length(sample, places, each, drafts) for each in classes],
        length_classes=how if classes else "",
        by_turn=by_turn(sample, drafts),
        by_part=by_place(sample, places, "part", _PARTS, drafts) if has_thoughts else [],
        placed_share=places.share,
    )
    return found.model_copy(update={"missing": _missing(found, sample.rows)})


def _of_length(sample: Sample, places: Steps, each: Class, drafts: int) -> LengthClass:
    mine = in_class(sample.rows, each)
    steps: list[Slice] = by_place(sample, places.among(mine), "position", _POSITIONS, drafts)
    return LengthClass(whole=slice_of(sample, mine, each, drafts), by_position=steps)


def _missing(found: Slices, rows: Columns) -> dict[str, str]:
    unplaced = NO_DRAFTS if found.placed_share is None else UNPLACED
    no_tokens = bool(np.isnan(numbers(rows, "tokens")).all())
    reasons = {
        "acceptance_by_request": "" if found.acceptance_by_request else NO_DRAFTS,
        "by_position": "" if found.by_position else unplaced,
        "by_context": "" if found.by_context else NO_PROMPT_TOKENS if found.by_position else unplaced,
        "by_length": "" if found.by_length else NO_TOKENS if no_tokens else ONE_LENGTH,
        "by_turn": "" if found.by_turn else NO_TURNS,
        "by_part": "" if found.by_part else NO_THOUGHTS if found.by_position else unplaced,
    }
    return {name: reason for name, reason in reasons.items() if reason}
