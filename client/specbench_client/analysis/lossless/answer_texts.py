"""Texts of answers, read again from the records if the run stored them. Only requested texts are kept in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from specbench_client.documents.lossless import ComparedBy
from specbench_client.documents.record import RecordPhase
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import PointRecords, text_hashes

AnswerKey = tuple[str, int, int]
"""Identifies one answer: point, conversation (as hashed in tidy rows) and turn."""
TextUnits = NDArray[np.int64]


@dataclass(frozen=True)
class AnswerText:
    """One answer's token ids, its text, or neither."""

    ids: tuple[int, ...] | None
    text: str | None

    def units(self, by: ComparedBy) -> TextUnits | None:
        """Return its tokens or characters as numbers, shape (units,); None if they were not stored."""
        if by is ComparedBy.TOKEN_IDS:
            return None if self.ids is None else np.array(self.ids, dtype=np.int64)
        if by is ComparedBy.TEXT and self.text is not None:
            return np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.int64)
        return None

    def opening(self, by: ComparedBy) -> str | None:
        """Return its first token or its first word; empty for an empty answer."""
        if by is ComparedBy.TOKEN_IDS:
            return None if self.ids is None else "".join(map(str, self.ids[:1]))
        if by is ComparedBy.TEXT and self.text is not None:
            return next(iter(self.text.split(maxsplit=1)), "")
        return None


def answer_keys(rows: Table) -> list[AnswerKey]:
    """Return each row's key; for few rows, because each key is a tuple."""
    columns = rows.codes("point").by_row, rows.array("conversation_id"), rows.array("turn")
    return [(str(point), int(conversation), int(turn)) for point, conversation, turn in zip(*columns, strict=True)]


def read_answer_texts(records: PointRecords, keys: Iterable[AnswerKey]) -> dict[AnswerKey, AnswerText]:
    """Return the texts of these answers, as far as they were stored. Reads each point's records again."""
    requested = set(keys)
    found: dict[AnswerKey, AnswerText] = {}
    for point in sorted({key[0] for key in requested}):
        for part in records[point]:
            found |= _of_part(part, point, requested)
    return found


def stored_form(texts: Iterable[AnswerText]) -> ComparedBy:
    """Return the most detailed form that all of the answers have."""
    answers = list(texts)
    for by in (ComparedBy.TOKEN_IDS, ComparedBy.TEXT):
        if answers and all(each.units(by) is not None for each in answers):
            return by
    return ComparedBy.DIGEST


def shared_prefix(one: TextUnits, other: TextUnits) -> int:
    """Return how many leading units two answers share; if one is a prefix of the other, its length."""
    shorter = min(one.size, other.size)
    apart = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(apart[0]) if apart.size else shorter


def _of_part(part: pa.Table, point: str, requested: set[AnswerKey]) -> dict[AnswerKey, AnswerText]:
    conversations = text_hashes(part["conversation_id"].to_pylist())
    columns = (part[name].to_pylist() for name in ("turn", "phase"))
    found = {}
    for row, (conversation, turn, phase) in enumerate(zip(conversations, *columns, strict=True)):
        key = (point, int(conversation), turn)
        if key in requested and phase != RecordPhase.WARMUP:
            ids, text = (part[name][row].as_py() for name in ("output_token_ids", "output_text"))
            found[key] = AnswerText(None if ids is None else tuple(ids), text)
    return found
