"""What becomes of the rows of a file: their prompts, their faults, and how many were selected, left out and used. Pure.

A row that the filters select has one of three outcomes:

- it becomes a prompt;
- it has no text that can be sent (a placeholder, a log line with tools): the file is rejected with the number and names
  of all such rows, unless `dataset.allowMissing` is set;
- it is invalid: the file is rejected, and the error shows the first few invalid rows.

Runs and `specbench dataset` read files by these functions, so an inspection finds what a run would.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from statistics import median

from specbench_api.spec.answers import ExpectedAnswer
from specbench_api.spec.dataset import Dataset, Member, Selection, Source
from specbench_client.documents.prompt_coverage import CategoryCoverage, MemberCoverage, PromptCoverage, RequestLogStats
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.random_text_detection import word_order
from specbench_client.workload.row_parsing import (
    EXPECTED,
    PLACEHOLDER_REASON,
    BadRow,
    Prompt,
    RowExcluded,
    RowWithoutText,
    parse_prompt,
)
from specbench_client.workload.selection import declared_filters, filtered_places
from specbench_client.workload.source_detection import shape_hint
from specbench_client.workload.sources.loader import Columns
from specbench_client.workload.sources.registry import LOADERS
from specbench_client.workload.sources.request_logs import LoggedRequest, time_of

_SHOWN_PROBLEMS = 5
_NUMBER = re.compile(r"\d+")
OWN_ANSWER = "answer"
"""Published column with the expected answer, where neither the workload nor the source names another one."""
TOOLS = "tools: they need chatTemplate.appliedBy: Client, because each engine's chat route renders them differently"
_OUTSIDE = "length outside inputTokens"


@dataclass(frozen=True)
class RowFault:
    """A row that cannot be used, with the reason. Its columns are ours if it could be converted."""

    row: PromptRow
    reason: str

    @property
    def category(self) -> str | None:
        value = self.row.columns.get("category")
        return None if value is None else str(value)


@dataclass
class RowOutcomes:
    """The outcomes of the rows of a file."""

    read: int = 0
    """Rows, without invalid ones."""
    passing: int = 0
    """Rows that pass the filters, and invalid ones, of which that is not known."""
    excluded: list[RowFault] = field(default_factory=list)
    """Rows that the source's own rule leaves out."""
    selected: list[PromptRow] = field(default_factory=list)
    """Rows in our columns that pass the filters."""
    prompts: list[Prompt] = field(default_factory=list)
    rows: list[PromptRow] = field(default_factory=list)
    """The row of each prompt."""
    missing: list[RowFault] = field(default_factory=list)
    """Rows without text that pass the filters."""
    problems: list[str] = field(default_factory=list)
    """What is wrong with each invalid row, with its place."""
    repeated: list[str] = field(default_factory=list)
    """What is wrong with each prompt whose id another prompt has."""


def check_rows(
    rows: Sequence[PromptRow],
    selection: Selection,
    *,
    with_tools: bool,
    expected: ExpectedAnswer | None = None,
    unreadable: Sequence[str] = (),
) -> RowOutcomes:
    """Convert, filter and parse rows, each with its expected answer if one is declared.

    `with_tools`: whether tools and tool calls can be sent. `unreadable`: what is wrong with rows that cannot be read,
    each with its place. Raises BadInput for a filter's value that no row has, unless rows are invalid.
    """
    loader, found, converted = LOADERS[selection.source], RowOutcomes(problems=[*unreadable]), list[PromptRow]()
    for row in _in_time_order(loader.assemble(rows)):
        try:
            parts = loader.split(row) if loader.split else [row]
            columns = [_with_answer(loader.convert(part, selection), part, expected) for part in parts]
            converted += [PromptRow(row.place, each, row.columns) for each in columns]
        except RowExcluded as reason:
            found.excluded.append(RowFault(row, str(reason)))
        except RowWithoutText as reason:
            found.missing.append(RowFault(row, str(reason)))
        except BadRow as error:
            found.problems.append(f"{row.place}: {error}")
    found.read = len(converted) + len(found.excluded) + len(found.missing)
    try:
        found.selected = [converted[place] for place in filtered_places([row.columns for row in converted], selection)]
    except BadInput:
        if not found.problems:  # an invalid row may have the value
            raise
    filters = declared_filters(selection)

    def passes(fault: RowFault) -> bool:  # its columns are still the publisher's
        return all(each.keeps(fault.row.columns) for each in filters)

    found.missing = list(filter(passes, found.missing))
    found.passing = len(found.selected) + len(found.missing) + sum(map(passes, found.excluded)) + len(found.problems)
    _parse_selected(found, selection, with_tools=with_tools, expected=expected)
    return found


def _in_time_order(rows: Sequence[PromptRow]) -> Sequence[PromptRow]:
    """Return the rows in the order of their timestamps, if all have one: as a trace, the same file is replayed so."""
    times = [time_of(row.columns.get("timestamp")) for row in rows]
    if None in times:
        return rows
    return [row for _, row in sorted(zip(times, rows, strict=True), key=itemgetter(0))]


def _with_answer(columns: Columns, published: PromptRow, expected: ExpectedAnswer | None) -> Columns:
    if expected is None:
        return columns
    if expected.field is not None:
        return {**columns, EXPECTED: published.columns.get(expected.field)}
    return {EXPECTED: published.columns.get(OWN_ANSWER), **columns}


def _parse_selected(
    found: RowOutcomes, selection: Selection, *, with_tools: bool, expected: ExpectedAnswer | None
) -> None:
    """Parse the selected rows into prompts."""
    places: dict[str, str] = {}
    for row in found.selected:
        try:
            prompt = parse_prompt(row, expected)
        except RowWithoutText as reason:
            found.missing.append(RowFault(row, str(reason)))
            continue
        except BadRow as error:
            found.problems.append(f"{row.place}: {error}")
            continue
        if prompt.with_tools and not with_tools:
            found.missing.append(RowFault(row, TOOLS))
            continue
        if prompt.id in places:
            used_by = f"the id {prompt.id!r} is already used by {places[prompt.id]}"
            remedy = "ids must be unique: correct them, or remove the column, so that rows are named by their number"
            found.repeated.append(f"{row.place}: {used_by}: {remedy}")
        places.setdefault(prompt.id, row.place)
        limit = row.columns["output_length"] if selection.source is Source.MOONCAKE else None
        found.prompts.append(prompt if limit is None else replace(prompt, output_tokens=limit))
        found.rows.append(row)


def first_problems(where: str, problems: Sequence[str], rows: int) -> list[str]:
    """Return one line for each of the first problems of rows, and one that counts the others of these `rows`."""
    more = len(problems) - _SHOWN_PROBLEMS
    shown = [f"{where}, {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
    return [*shown, *([f"and {more} more of {rows} rows"] if more > 0 else [])]


def in_file_order(problems: Iterable[str]) -> list[str]:
    """Return problems, each beginning with its place such as `line 3`, in the order of their rows."""
    return sorted(problems, key=lambda problem: int(_NUMBER.findall(problem)[0]))


def reject_faults(found: RowOutcomes, selection: Selection) -> None:
    """Raise BadInput with the first problems, and with the rows without text unless `allowMissing` is set."""
    problems = in_file_order([*found.problems, *found.repeated])
    lines = first_problems(selection.where, problems, found.passing)
    if problems and found.selected and (hint := shape_hint(selection.source, found.selected[0].columns)):
        lines.append(hint)
    if found.missing and not selection.allow_missing:
        lines.append(_missing_message(found, selection))
    if lines:
        raise BadInput("\n".join(lines))


def _missing_message(found: RowOutcomes, selection: Selection) -> str:
    """Return the error text: number and names of the rows without text, counts by category and source, and a remedy."""
    faults = found.missing
    more = len(faults) - _SHOWN_PROBLEMS
    shown = ", ".join(_name(fault) for fault in faults[:_SHOWN_PROBLEMS]) + (f" and {more} more" if more > 0 else "")
    lines = [f"{selection.where}: {len(faults)} of {found.passing} rows cannot be sent as text: {shown}"]
    lines += [f"  {count} x {reason}" for reason, count in Counter(fault.reason for fault in faults).most_common()]
    for label, values in (
        ("by category", [fault.category for fault in faults]),
        ("by source", [fault.row.columns.get("origin") for fault in faults]),
    ):
        counts = Counter(str(value) for value in values if value is not None).most_common(_SHOWN_PROBLEMS)
        lines += [f"  {label}: " + ", ".join(f"{value} {count}" for value, count in counts)] if counts else []
    return "\n".join([*lines, f"  {_remedy(faults, selection, are_all=len(faults) == found.passing)}"])


def _remedy(faults: Sequence[RowFault], selection: Selection, *, are_all: bool) -> str:
    skip = "set dataset.allowMissing: true to skip them; results then list what was skipped"
    if are_all:
        skip = "use a file with prompts of text"
    if all(fault.reason != PLACEHOLDER_REASON for fault in faults):
        tools = any(fault.reason == TOOLS for fault in faults)
        return f"set chatTemplate.appliedBy: Client to send those with tools; or {skip}" if tools else skip
    config = f" --config {selection.form}" if selection.source is Source.SPEED_BENCH else ""
    return f"run `specbench dataset prepare speed-bench{config}` to download the texts; or {skip}"


def _name(fault: RowFault) -> str:
    key = fault.row.columns.get("id", fault.row.columns.get("question_id"))
    named = None if key == fault.row.place.replace(" ", "-") else key
    labels = [str(value) for value in (named, fault.category) if value is not None]
    return f"{fault.row.place} ({', '.join(labels)})" if labels else fault.row.place


def coverage_of(
    selection: Selection, found: RowOutcomes, eligible: Sequence[Prompt], used: Sequence[Prompt]
) -> PromptCoverage:
    """Build the PromptCoverage that is stored with the results.

    `eligible`: prompts of a suitable length, before `count` is applied. `used`: prompts that are sent.
    """
    loader, outside = LOADERS[selection.source], len(found.prompts) - len(eligible)
    hub = loader.hub if selection.uri is None and selection.pvc is None else None
    return PromptCoverage(
        source=str(selection.source),
        config=selection.form,
        revision=(selection.revision or hub.revision) if hub else None,
        licence=loader.licence,
        rows=found.read,
        requested=len(eligible) + len(found.missing),
        used=len(used),
        turns=sum(len(prompt.turns) for prompt in used),
        unusable=dict(Counter(fault.reason for fault in found.missing)),
        excluded=dict(Counter(fault.reason for fault in found.excluded)) | ({_OUTSIDE: outside} if outside else {}),
        by_category=_by_category(found.missing, eligible, used),
        recorded=_recorded_parameters(found, used),
        order=word_order(used),
    )


def _recorded_parameters(found: RowOutcomes, used: Sequence[Prompt]) -> RequestLogStats | None:
    """Summarise the logged parameters of the requests that are used; None without a request log."""
    sent = {prompt.id for prompt in used}
    logged = [
        row.columns.get("logged") for prompt, row in zip(found.prompts, found.rows, strict=True) if prompt.id in sent
    ]
    mine = [each for each in logged if isinstance(each, LoggedRequest)]
    if not mine:
        return None
    times = [one.seconds for one in mine if one.seconds is not None]
    temperatures = Counter("default" if one.temperature is None else f"{one.temperature:g}" for one in mine)
    return RequestLogStats(
        input_tokens_median=_median([one.input_tokens for one in mine]),
        output_tokens_median=_median([one.output_tokens for one in mine]),
        max_tokens_median=_median([one.max_tokens for one in mine]),
        temperatures=dict(temperatures.most_common()),
        seconds=max(times) - min(times) if times else None,
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _by_category(
    missing: Sequence[RowFault], eligible: Sequence[Prompt], used: Sequence[Prompt]
) -> list[CategoryCoverage]:
    selected = Counter(prompt.category for prompt in eligible)
    sent: dict[str | None, list[Prompt]] = defaultdict(list)
    for prompt in used:
        sent[prompt.category].append(prompt)
    lost: dict[str | None, Counter[str]] = defaultdict(Counter)
    for fault in missing:
        lost[fault.category][fault.reason] += 1
    return [
        CategoryCoverage(
            category=name,
            requested=selected[name] + lost[name].total(),
            used=len(sent[name]),
            turns=sum(len(prompt.turns) for prompt in sent[name]),
            unusable=dict(lost[name]),
            order=word_order(sent[name]),
        )
        for name in dict.fromkeys([*selected, *lost])
    ]


def mix_coverage(dataset: Dataset, coverages: Mapping[str, PromptCoverage], used: Sequence[Prompt]) -> PromptCoverage:
    """Return the coverage of the mix, summed over its members."""
    members = dataset.members or []
    total_weight = sum(member.weight for member in members)
    parts = [coverages[member.name] for member in members]
    return PromptCoverage(
        source=str(dataset.source),
        licence="; ".join(dict.fromkeys(one.licence for one in parts if one.licence)),
        rows=sum(one.rows for one in parts),
        requested=sum(one.requested for one in parts),
        used=len(used),
        turns=sum(len(prompt.turns) for prompt in used),
        unusable=dict(sum((Counter(one.unusable) for one in parts), Counter())),
        excluded=dict(sum((Counter(one.excluded) for one in parts), Counter())),
        by_category=[_member_category(member.name, coverages[member.name], used) for member in members],
        members={member.name: _member_coverage(member, total_weight) for member in members},
        order=word_order(used),
    )


def _member_coverage(member: Member, total_weight: int) -> MemberCoverage:
    expected = member.output_tokens
    return MemberCoverage(
        source=str(member.source),
        share=member.weight / total_weight,
        output_tokens_min=expected.min if expected else None,
        output_tokens_max=expected.max if expected else None,
    )


def _member_category(name: str, found: PromptCoverage, used: Sequence[Prompt]) -> CategoryCoverage:
    mine = [prompt for prompt in used if prompt.category == name]
    turns = sum(len(prompt.turns) for prompt in mine)
    return CategoryCoverage(
        category=name,
        requested=found.requested,
        used=len(mine),
        turns=turns,
        unusable=found.unusable,
        order=word_order(mine),
    )
