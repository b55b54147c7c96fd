"""Computes the prompt coverage of a dataset or a mix: how many rows were selected, left out and used. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from specbench_api.spec.dataset import Dataset, Member, Selection
from specbench_client.documents.prompt_coverage import CategoryCoverage, MemberCoverage, PromptCoverage, RequestLogStats
from specbench_client.workload.random_text_detection import word_order
from specbench_client.workload.row_parsing import Prompt
from specbench_client.workload.row_validation import RowFault
from specbench_client.workload.sources.loader import SourceLoader
from specbench_client.workload.sources.openai_logs import LoggedRequest


@dataclass(frozen=True)
class CoverageAccount:
    """The outcome of the rows of one file."""

    rows: int
    faults: Sequence[RowFault]
    """Rows that did not become a prompt."""
    eligible: Sequence[Prompt]
    """Prompts that pass the filters, before `count` or `turns` is applied."""
    used: Sequence[Prompt]
    """Prompts that are sent."""


def coverage_of(
    selection: Selection, loader: SourceLoader, account: CoverageAccount, recorded: RequestLogStats | None = None
) -> PromptCoverage:
    """Build the PromptCoverage that is stored with the results."""
    eligible, used = account.eligible, account.used
    missing = [fault for fault in account.faults if fault.missing]
    excluded = Counter(fault.reason for fault in account.faults if not fault.missing)
    hub = loader.hub(selection.form) if loader.hub and selection.uri is None and selection.pvc is None else None
    return PromptCoverage(
        source=str(selection.source),
        config=selection.form,
        revision=(selection.revision or hub.revision) if hub else None,
        licence=loader.licence,
        rows=account.rows,
        requested=len(eligible) + len(missing),
        used=len(used),
        turns=sum(len(prompt.turns) for prompt in used),
        unusable=dict(Counter(fault.reason for fault in missing)),
        excluded=dict(excluded),
        by_category=_by_category(missing, eligible, used),
        recorded=recorded,
        order=word_order(used),
    )


def recorded_parameters(logged: Mapping[str, LoggedRequest], used: Sequence[Prompt]) -> RequestLogStats | None:
    """Summarise the logged parameters of the requests that are used; None without a request log."""
    mine = [logged[prompt.id] for prompt in used if prompt.id in logged]
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
        unusable=_summed([one.unusable for one in parts]),
        excluded=_summed([one.excluded for one in parts]),
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


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for reason, count in each.items():
            total[reason] = total.get(reason, 0) + count
    return total
