"""Where two answers to one question begin to differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.lossless import ComparedBy, FirstDifference
from specbench_client.analysis.lossless.words import KEY, Key, Units, kept_as, keys, read_words
from specbench_client.metrics.divergence import QUESTION, answers
from specbench_client.metrics.frame import any_told
from specbench_client.metrics.rows import Columns, Rows

PAIRS_MOST = 500
"""Pairs that are looked into, evenly over all that differ: a median needs no more, and memory stays small."""
_UNITS = {ComparedBy.TOKEN_IDS: "tokens", ComparedBy.TEXT: "characters"}
_WHAT = "Median over pairs of answers that differ of how many {unit} they share from their begin: {who}"

_OTHER = "_other"
Pair = tuple[Key, Key, str]
"""Two answers, and their prompt."""


def first_differences(
    arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows, records: Mapping[str, Iterable[pd.DataFrame]]
) -> tuple[ComparedBy, FirstDifference | None]:
    """Compare the words of answers whose digests differ. Both: tidy rows of one cell. `records`: by point."""
    if not _told(arm, baseline):
        return ComparedBy.DIGEST, None
    mine, base = answers(arm), answers(baseline)
    if not _told(mine, base):
        return ComparedBy.DIGEST, None
    first = base[(base["repeat"] == base["repeat"].min()).to_numpy(bool)]
    pairs = (_pairs(mine, base, ["repeat"]), _pairs(base, first, []))
    chosen = [_spread(each) for each in pairs]
    if not any(chosen):
        return ComparedBy.TEXT, None
    words = read_words(records, (key for each in chosen for one, other, _ in each for key in (one, other)))
    by = kept_as(words.values())
    if by is ComparedBy.DIGEST:
        return by, None
    units = {key: told.units(by) for key, told in words.items()}
    figures = [_figure(each, units, who, _UNITS[by]) for each, who in zip(chosen, _WHO, strict=True)]
    return by, FirstDifference(unit=_UNITS[by], arm=figures[0], control=figures[1])


_WHO = ("the arm's beside the baseline's of the same repeat", "the baseline's of a later repeat beside its first's")


def shared(one: Units, other: Units) -> int:
    """How many units two answers share from their begin. Where one is the other's begin, its length."""
    shorter = min(one.size, other.size)
    apart = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(apart[0]) if apart.size else shorter


def _pairs(mine: pd.DataFrame, base: pd.DataFrame, also: list[str]) -> list[Pair]:
    """Answers of both to one question in one pass that differ. `also`: what must be alike beside."""
    asked = [*QUESTION, "pass", *also]
    told = [*asked, "point", "conversation_id", "output_sha256"]
    merged = mine[told].merge(base[told], on=asked, suffixes=("", _OTHER))
    apart = merged[(merged["output_sha256"] != merged["output_sha256" + _OTHER]).to_numpy(bool)]
    others = apart[["point" + _OTHER, "conversation_id" + _OTHER, "turn"]].set_axis(KEY, axis=1)
    return list(zip(keys(apart), keys(others), apart["prompt_id"], strict=True))


def _spread(pairs: list[Pair]) -> list[Pair]:
    return pairs[:: -(-len(pairs) // PAIRS_MOST) or 1]


def _told(*sides: Columns) -> bool:
    """Whether any words were kept at all: without them records need not be read again."""
    return any(any_told(rows, "text_bytes") for rows in sides)


def _figure(pairs: list[Pair], units: Mapping[Key, Units | None], who: str, unit: str) -> Figure | None:
    both = [(units.get(one), units.get(other), prompt) for one, other, prompt in pairs]
    places = [(shared(one, other), prompt) for one, other, prompt in both if one is not None and other is not None]
    if not places:
        return None
    return Figure(
        value=float(np.median([place for place, _ in places])),
        unit=unit,
        definition=_WHAT.format(unit=unit, who=who),
        n=len({prompt for _, prompt in places}),
        source="client",
    )
