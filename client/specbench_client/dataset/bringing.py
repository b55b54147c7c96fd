"""A prompts file brought to a length, row by row, with an account of every row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specbench_api.model import ApiModel
from specbench_client.dataset.length.fit import DoesNotFit, Fitted, fit
from specbench_client.dataset.length.parts import COLUMNS, Told, parts_of, whole_text
from specbench_client.dataset.length.ruler import Ruler
from specbench_client.dataset.length.speed_bench_way import pad_or_truncate
from specbench_client.dataset.percentiles import Spread, spread
from specbench_client.errors import BadInput
from specbench_client.workload.rows import Row

_SHOWN = 5


class LeftOut(ApiModel):
    """A row that is not in the result, and why."""

    id: str
    why: str


class LengthReport(ApiModel):
    """What `specbench dataset prepare --isl` did. Lengths are tokens of o200k_base, without any chat template."""

    schema_version: Literal["specbench.io/lengths/v1"] = "specbench.io/lengths/v1"
    target: int
    way: Literal["context", "speed-bench"]
    rows: int
    written: int
    exact: int
    """Rows of exactly `target` tokens; the others are shorter by what a cut character is worth."""
    cut: int
    filled: int
    tokens: Spread | None = None
    target_tokenizer: Spread | None = None
    """The same prompts in the target model's own tokenizer."""
    target_tokenizer_sha256: str | None = None
    left_out: list[LeftOut] = []


@dataclass(frozen=True, slots=True)
class Ask:
    """How long, and how. `whole`: SPEED-Bench's own way, instruction and all."""

    target: int
    told: Told
    whole: bool = False
    fewer: bool = False


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The target model's: counts the tokens of a text."""

    count: Callable[[str], int]
    sha256: str


def bring(
    rows: Sequence[Row], ask: Ask, ruler: Ruler, tokenizer: Tokenizer | None = None
) -> tuple[list[dict[str, Any]], LengthReport]:
    """Every row with a `prompt` of the length and its lengths as columns, and the report.

    Raises BadInput where a row cannot be brought to the length, unless fewer rows will do; then it is in `leftOut`.
    """
    done: list[tuple[dict[str, Any], Fitted]] = []
    left: list[LeftOut] = []
    fillers = _Fillers(rows, ask.told)
    for row in rows:
        try:
            fitted = _fitted(row, ask, ruler, fillers)
        except DoesNotFit as error:
            left.append(LeftOut(id=_id(row), why=str(error)))
            continue
        own = {"target_tokens": tokenizer.count(fitted.text)} if tokenizer else {}
        done.append((_written(row, fitted) | own, fitted))
    if left and (not ask.fewer or not done):
        raise BadInput(_refusal(left, len(rows)))
    return [row for row, _ in done], _report(done, left, ask, tokenizer)


def _fitted(row: Row, ask: Ask, ruler: Ruler, fillers: _Fillers) -> Fitted:
    if not ask.whole:
        return fit(parts_of(row.columns, ask.told), ask.target, ruler, fillers.of(row))
    before = whole_text(row.columns, ask.told)
    text = pad_or_truncate(before, ask.target, ruler)
    own, tokens = len(ruler.encode_ordinary(before)), len(ruler.encode_ordinary(text))
    return Fitted(text, tokens, max(0, own - ask.target), max(0, ask.target - own))


class _Fillers:
    """What fills up a short context: the other contexts of its category, once each, by id, from its own on.

    Real text of the same kind; and none twice, because repeated text is what n-gram drafters live on.
    """

    def __init__(self, rows: Sequence[Row], told: Told) -> None:
        self._by_category: dict[Any, list[tuple[str, str]]] = defaultdict(list)
        for row in rows:
            try:
                context = parts_of(row.columns, told).context
            except DoesNotFit:
                continue  # such a row is told of where it is brought to length
            self._by_category[row.columns.get("category")].append((_id(row), context))
        for contexts in self._by_category.values():
            contexts.sort()

    def of(self, row: Row) -> Iterator[str]:
        contexts = self._by_category[row.columns.get("category")]
        own = next((place for place, (name, _) in enumerate(contexts) if name == _id(row)), 0)
        used = {contexts[own][1]}
        for _, context in [*contexts[own + 1 :], *contexts[:own]]:
            if context not in used:
                used.add(context)
                yield context


def _id(row: Row) -> str:
    found = row.columns.get("id", row.columns.get("question_id"))
    return row.place.replace(" ", "-") if found is None else str(found)


def _written(row: Row, fitted: Fitted) -> dict[str, Any]:
    ours = ("id", "question_id", "category", "prompt", "turns", *COLUMNS)
    rest = {name: value for name, value in row.columns.items() if name not in ours and value is not None}
    category: Mapping[str, Any] = {} if row.columns.get("category") is None else {"category": row.columns["category"]}
    return {"id": _id(row), **category, "prompt": fitted.text, **rest, "o200k_tokens": fitted.tokens}


def _refusal(left: Sequence[LeftOut], rows: int) -> str:
    shown = [f"{one.id}: {one.why}" for one in left[:_SHOWN]]
    more = [f"and {len(left) - _SHOWN} more of {rows} rows"] if len(left) > _SHOWN else []
    return "\n".join([*shown, *more, "--allow-fewer leaves such rows out, for every arm alike"])


def _report(
    done: Sequence[tuple[Mapping[str, Any], Fitted]], left: list[LeftOut], ask: Ask, tokenizer: Tokenizer | None
) -> LengthReport:
    fitted = [one for _, one in done]
    return LengthReport(
        target=ask.target,
        way="speed-bench" if ask.whole else "context",
        rows=len(done) + len(left),
        written=len(done),
        exact=sum(one.tokens == ask.target for one in fitted),
        cut=sum(one.cut > 0 for one in fitted),
        filled=sum(one.added > 0 for one in fitted),
        tokens=spread([one.tokens for one in fitted]),
        target_tokenizer=spread([int(row["target_tokens"]) for row, _ in done]) if tokenizer else None,
        target_tokenizer_sha256=tokenizer.sha256 if tokenizer else None,
        left_out=left,
    )
