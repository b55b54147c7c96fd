"""Adjusts the prompts of a file to a given number of tokens, and reports the result for every row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specbench_api.api_model import ApiModel
from specbench_api.errors import SpecbenchError
from specbench_client.dataset.inspection import Distribution, distribution
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.prompt_lengths import ReferenceTokenizer

BETWEEN = "\n\n"
"""Separates the context from each filler text."""
_MOST_TRIES = 24


@dataclass(frozen=True, slots=True)
class PromptParts:
    """A prompt as `before + context + after`; only `context` may be shortened or extended."""

    before: str
    context: str
    after: str


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """An adjusted prompt. `tokens`: length of the whole prompt; `cut` and `added`: tokens of the context."""

    text: str
    tokens: int
    cut: int
    added: int


class DoesNotFit(SpecbenchError):
    """The prompt cannot be adjusted to the length; the message gives the reason."""


def fit_prompt(parts: PromptParts, target: int, ruler: ReferenceTokenizer, filler: Iterable[str] = ()) -> FittedPrompt:
    """Return the prompt with at most `target` tokens, and as close to it as whole characters allow (usually exact).

    A prompt that is too long loses the end of its context. If it is too short, texts of `filler` are appended to the
    context and the last one is cut. Raises DoesNotFit if the part outside the context is too long, or the filler runs
    out.
    """
    own = _count(parts.before + parts.context + parts.after, ruler)
    if own == target:
        return FittedPrompt(parts.before + parts.context + parts.after, own, 0, 0)
    frame = _count(parts.before + parts.after, ruler)
    if frame > target:
        raise DoesNotFit(f"it has {frame:,} tokens without its context: shorten the instruction, or raise --isl")
    filled = parts.context if own > target else _filled(parts, target, ruler, iter(filler))
    text, tokens = _cut(PromptParts(parts.before, filled, parts.after), target, target - frame, ruler)
    return FittedPrompt(text, tokens, cut=max(0, own - tokens), added=max(0, tokens - own))


def _filled(parts: PromptParts, target: int, ruler: ReferenceTokenizer, filler: Iterator[str]) -> str:
    """Return the context with enough filler for the prompt's length; each filler text is counted once, separately."""
    context = parts.context
    while (tokens := _count(parts.before + context + parts.after, ruler)) < target:
        while tokens < target:
            text = next(filler, None)
            if text is None:
                return _all_used(parts, context, target, ruler)
            context += BETWEEN + text
            tokens += len(ruler.encode_ordinary(BETWEEN + text))
    return context


def _all_used(parts: PromptParts, context: str, target: int, ruler: ReferenceTokenizer) -> str:
    tokens = _count(parts.before + context + parts.after, ruler)
    if tokens < target:
        raise DoesNotFit(f"it has only {tokens:,} tokens with all available filler: give more or longer contexts")
    return context


def _cut(parts: PromptParts, target: int, room: int, ruler: ReferenceTokenizer) -> tuple[str, int]:
    """Return the prompt with the longest prefix of the context that gives at most `target` tokens, and its tokens.

    Tokens can merge at the cut, so the whole prompt is counted, and the cut is moved by the difference until it fits.
    """
    tokens = ruler.encode_ordinary(parts.context)
    keep, best, seen = min(room, len(tokens)), (parts.before + parts.after, 0), set[int]()
    for _ in range(_MOST_TRIES):
        text = parts.before + _text(tokens[:keep], ruler) + parts.after
        found = _count(text, ruler)
        if best[1] < found <= target:
            best = (text, found)
        seen.add(keep)
        keep = min(max(0, keep + target - found), len(tokens))
        if found == target or keep in seen:
            break
    return best if best[1] else (best[0], _count(best[0], ruler))


def _text(tokens: list[int], ruler: ReferenceTokenizer) -> str:
    """Decode the tokens, without an incomplete character at the end."""
    return ruler.decode_bytes(tokens).decode("utf-8", errors="ignore")


def _count(text: str, ruler: ReferenceTokenizer) -> int:
    return len(ruler.encode_ordinary(text))


_SHOWN_OMITTED = 5


class OmittedRow(ApiModel):
    """A row that is not in the result, with the reason."""

    id: str
    why: str


class LengthReport(ApiModel):
    """The result of `specbench dataset prepare --isl`. Lengths are o200k_base tokens without a chat template."""

    schema_version: Literal["specbench.io/lengths/v1"] = "specbench.io/lengths/v1"
    target: int
    rows: int
    written: int
    exact: int
    """Rows of exactly `target` tokens. The others are a few tokens shorter because no character is split."""
    cut: int
    filled: int
    tokens: Distribution | None = None
    target_tokenizer: Distribution | None = None
    """Lengths of the same prompts in the target model's own tokenizer."""
    target_tokenizer_sha256: str | None = None
    left_out: list[OmittedRow] = []


@dataclass(frozen=True, slots=True)
class LengthRequest:
    """The length, and where the context is. `fewer`: whether rows that cannot reach the length are left out."""

    target: int
    context_columns: ContextColumns
    fewer: bool = False


@dataclass(frozen=True, slots=True)
class TargetTokenizer:
    """The target model's tokenizer; `count` returns the number of tokens in a text."""

    count: Callable[[str], int]
    sha256: str


def adjust_lengths(
    rows: Sequence[PromptRow],
    request: LengthRequest,
    ruler: ReferenceTokenizer,
    tokenizer: TargetTokenizer | None = None,
) -> tuple[list[dict[str, Any]], LengthReport]:
    """Return every row with an adjusted `prompt` and its lengths as columns, and the report.

    Raises BadInput if a row cannot be adjusted, unless `request.fewer` is set; then the row is listed in `leftOut`.
    """
    done: list[tuple[dict[str, Any], FittedPrompt]] = []
    left: list[OmittedRow] = []
    fillers = _Fillers(rows, request.context_columns)
    for row in rows:
        try:
            parts = split_context(row.columns, request.context_columns)
            fitted = fit_prompt(parts, request.target, ruler, fillers.for_row(row))
        except DoesNotFit as error:
            left.append(OmittedRow(id=_id(row), why=str(error)))
            continue
        own = {"target_tokens": tokenizer.count(fitted.text)} if tokenizer else {}
        done.append((_written(row, fitted) | own, fitted))
    if left and (not request.fewer or not done):
        raise BadInput(_omitted_message(left, len(rows)))
    return [row for row, _ in done], _report(done, left, request, tokenizer)


class _Fillers:
    """Provides filler for short contexts: the other contexts of the category, once each, by id, after the row's own.

    This is real text of the same kind. No text is used twice, because repeated text favours n-gram drafters.
    """

    def __init__(self, rows: Sequence[PromptRow], context_columns: ContextColumns) -> None:
        self._by_category: dict[Any, list[tuple[str, str]]] = defaultdict(list)
        for row in rows:
            try:
                context = split_context(row.columns, context_columns).context
            except DoesNotFit:
                continue  # reported when the row's own length is adjusted
            self._by_category[row.columns.get("category")].append((_id(row), context))
        for contexts in self._by_category.values():
            contexts.sort()

    def for_row(self, row: PromptRow) -> Iterator[str]:
        contexts = self._by_category[row.columns.get("category")]
        own = next((place for place, (name, _) in enumerate(contexts) if name == _id(row)), 0)
        used = {contexts[own][1]}
        for _, context in [*contexts[own + 1 :], *contexts[:own]]:
            if context not in used:
                used.add(context)
                yield context


def _id(row: PromptRow) -> str:
    found = row.columns.get("id", row.columns.get("question_id"))
    return row.place.replace(" ", "-") if found is None else str(found)


def _written(row: PromptRow, fitted: FittedPrompt) -> dict[str, Any]:
    ours = ("id", "question_id", "category", "prompt", "turns", *COLUMNS)
    rest = {name: value for name, value in row.columns.items() if name not in ours and value is not None}
    category: Mapping[str, Any] = {} if row.columns.get("category") is None else {"category": row.columns["category"]}
    return {"id": _id(row), **category, "prompt": fitted.text, **rest, "o200k_tokens": fitted.tokens}


def _omitted_message(left: Sequence[OmittedRow], rows: int) -> str:
    shown = [f"{one.id}: {one.why}" for one in left[:_SHOWN_OMITTED]]
    more = [f"and {len(left) - _SHOWN_OMITTED} more of {rows} rows"] if len(left) > _SHOWN_OMITTED else []
    return "\n".join([*shown, *more, "Add --allow-fewer to leave these rows out, for every arm alike"])


def _report(
    done: Sequence[tuple[Mapping[str, Any], FittedPrompt]],
    left: list[OmittedRow],
    request: LengthRequest,
    tokenizer: TargetTokenizer | None,
) -> LengthReport:
    fitted = [one for _, one in done]
    return LengthReport(
        target=request.target,
        rows=len(done) + len(left),
        written=len(done),
        exact=sum(one.tokens == request.target for one in fitted),
        cut=sum(one.cut > 0 for one in fitted),
        filled=sum(one.added > 0 for one in fitted),
        tokens=distribution([one.tokens for one in fitted]),
        target_tokenizer=distribution([int(row["target_tokens"]) for row, _ in done]) if tokenizer else None,
        target_tokenizer_sha256=tokenizer.sha256 if tokenizer else None,
        left_out=left,
    )


TEMPLATE = "{context}\n\n{instruction}"
COLUMNS = ("context", "instruction")


@dataclass(frozen=True, slots=True)
class ContextColumns:
    """How to find a row's context. `marks`: texts before and after the context in the prompt; they are kept.

    Without marks, rows have the columns `context` and `instruction`, joined by `template`.
    """

    template: str = TEMPLATE
    marks: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if any(self.template.count(f"{{{name}}}") != 1 for name in COLUMNS):
            raise BadInput(f"--template {self.template!r}: it must contain {{context}} and {{instruction}} once each")
        if self.marks and not all(self.marks):
            raise BadInput("--marks: give two non-empty texts, such as --marks '<context>' '</context>'")


def split_context(columns: Mapping[str, Any], context_columns: ContextColumns) -> PromptParts:
    """Split a row into context and the rest. Raises DoesNotFit, with what the row needs, if that is not possible."""
    if context_columns.marks:
        return _between(_whole_text(columns), context_columns.marks)
    context, instruction = (_column_text(columns, name) for name in COLUMNS)
    before, _, after = context_columns.template.partition("{context}")
    before, after = (side.replace("{instruction}", instruction) for side in (before, after))
    return PromptParts(before, context, after)


def _whole_text(columns: Mapping[str, Any]) -> str:
    """Return the prompt as one text. Raises DoesNotFit for several turns, messages and token ids."""
    turns = columns.get("turns")
    if isinstance(columns.get("prompt"), str):
        return str(columns["prompt"])
    if isinstance(turns, list) and len(turns) == 1 and isinstance(turns[0], str):
        return turns[0]
    raise DoesNotFit("it needs a prompt or a single turn with the marks: several turns have no single length")


def _column_text(columns: Mapping[str, Any], name: str) -> str:
    value = columns.get(name)
    if not isinstance(value, str) or not value.strip():
        raise DoesNotFit(
            f"its column {name} is {'missing' if value is None else 'not a text'}: give context and instruction, "
            "or --marks BEGIN END around the context within the prompt"
        )
    return value


def _between(text: str, marks: tuple[str, str]) -> PromptParts:
    begin, end = text.find(marks[0]), text.rfind(marks[1])
    start = begin + len(marks[0])
    if begin < 0 or end < start:
        raise DoesNotFit(f"its prompt does not contain {marks[0]!r} followed by {marks[1]!r}: check --marks")
    return PromptParts(text[:start], text[start:end], text[end:])
