"""Answers' words, read again from the records where a run kept them. Only what is asked for is held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_api.outcome.lossless import ComparedBy
from specbench_client.metrics.digests import names

Key = tuple[str, int, int]
"""Point, conversation (as tidy rows know it) and turn: one answer."""
KEY = ["point", "conversation_id", "turn"]
Units = NDArray[np.int64]


@dataclass(frozen=True)
class Words:
    """One answer: its token ids, its text, or neither."""

    ids: tuple[int, ...] | None
    text: str | None

    def units(self, by: ComparedBy) -> Units | None:
        """Its tokens or its characters as numbers; None where it was not kept so."""
        if by is ComparedBy.TOKEN_IDS:
            return None if self.ids is None else np.array(self.ids, dtype=np.int64)
        if by is ComparedBy.TEXT and self.text is not None:
            return np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.int64)
        return None

    def opening(self, by: ComparedBy) -> str | None:
        """Its first token, or its first word; empty for an empty answer."""
        if by is ComparedBy.TOKEN_IDS:
            return None if self.ids is None else "".join(map(str, self.ids[:1]))
        if by is ComparedBy.TEXT and self.text is not None:
            return next(iter(self.text.split(maxsplit=1)), "")
        return None


def keyed(rows: pd.DataFrame) -> pd.DataFrame:
    """Tidy rows with their key in a column `key`."""
    return rows.assign(key=pd.Series(keys(rows), index=rows.index, dtype=object))


def keys(rows: pd.DataFrame) -> list[Key]:
    """Each row's key. A tuple a row: of few rows."""
    columns = (rows[name] for name in KEY)
    return [(str(point), int(talk), int(turn)) for point, talk, turn in zip(*columns, strict=True)]


def read_words(records: Mapping[str, Iterable[pd.DataFrame]], wanted: Iterable[Key]) -> dict[Key, Words]:
    """The words of these answers, as far as they were kept. Reads each point's records once more."""
    asked = set(wanted)
    found: dict[Key, Words] = {}
    for point in sorted({key[0] for key in asked}):
        for part in records[point]:
            found |= _of_part(part, point, asked)
    return found


def kept_as(words: Iterable[Words]) -> ComparedBy:
    """The finest form that all of them have."""
    all_of_them = list(words)
    for by in (ComparedBy.TOKEN_IDS, ComparedBy.TEXT):
        if all_of_them and all(each.units(by) is not None for each in all_of_them):
            return by
    return ComparedBy.DIGEST


def _of_part(part: pd.DataFrame, point: str, asked: set[Key]) -> dict[Key, Words]:
    given = part.reindex(columns=["turn", "phase", "output_token_ids", "output_text"])
    talks = names(str(talk) for talk in part["conversation_id"])
    found = {}
    for talk, (turn, phase, ids, text) in zip(talks, given.itertuples(index=False), strict=True):
        key = (point, int(talk), int(turn))
        if key in asked and phase != "warmup":
            found[key] = Words(_ids(ids), text if isinstance(text, str) else None)
    return found


def _ids(value: object) -> tuple[int, ...] | None:
    return tuple(int(each) for each in value) if isinstance(value, list | tuple | np.ndarray) else None
