"""Which of the rows that were asked for became prompts: the account that every result carries. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from specbench_api.outcome.coverage import CategoryCoverage, Coverage, Recorded
from specbench_api.spec.dataset import Selection
from specbench_client.workload.checking import Fault
from specbench_client.workload.reading import Prompt
from specbench_client.workload.sources.openai_logs import Logged
from specbench_client.workload.sources.source import Loader
from specbench_client.workload.word_order import word_order


@dataclass(frozen=True)
class Account:
    """What became of the rows of one file."""

    rows: int
    faults: Sequence[Fault]
    """Those that became no prompt."""
    asked: Sequence[Prompt]
    """Prompts that the filters ask for, before count or turns."""
    used: Sequence[Prompt]
    """Of them, those that are sent."""


def coverage_of(selection: Selection, loader: Loader, account: Account, recorded: Recorded | None = None) -> Coverage:
    """The account in words that a result carries."""
    asked, used = account.asked, account.used
    missing = [fault for fault in account.faults if fault.missing]
    excluded = Counter(fault.reason for fault in account.faults if not fault.missing)
    hub = loader.hub(selection.form) if loader.hub and selection.uri is None and selection.pvc is None else None
    return Coverage(
        source=str(selection.source),
        config=selection.form,
        revision=(selection.revision or hub.revision) if hub else None,
        licence=loader.licence,
        rows=account.rows,
        asked=len(asked) + len(missing),
        used=len(used),
        turns=sum(len(prompt.turns) for prompt in used),
        left_out=dict(Counter(fault.reason for fault in missing)),
        excluded=dict(excluded),
        by_category=_by_category(missing, asked, used),
        recorded=recorded,
        order=word_order(used),
    )


def recorded_of(logged: Mapping[str, Logged], used: Sequence[Prompt]) -> Recorded | None:
    """What a request log says of the requests that are used; None where there is no log."""
    mine = [logged[prompt.id] for prompt in used if prompt.id in logged]
    if not mine:
        return None
    times = [one.seconds for one in mine if one.seconds is not None]
    warmth = Counter("default" if one.temperature is None else f"{one.temperature:g}" for one in mine)
    return Recorded(
        input_tokens_median=_median([one.input_tokens for one in mine]),
        output_tokens_median=_median([one.output_tokens for one in mine]),
        max_tokens_median=_median([one.max_tokens for one in mine]),
        temperatures=dict(warmth.most_common()),
        seconds=max(times) - min(times) if times else None,
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _by_category(missing: Sequence[Fault], asked: Sequence[Prompt], used: Sequence[Prompt]) -> list[CategoryCoverage]:
    there = Counter(prompt.category for prompt in asked)
    sent: dict[str | None, list[Prompt]] = defaultdict(list)
    for prompt in used:
        sent[prompt.category].append(prompt)
    lost: dict[str | None, Counter[str]] = defaultdict(Counter)
    for fault in missing:
        lost[fault.category][fault.reason] += 1
    return [
        CategoryCoverage(
            category=name,
            asked=there[name] + lost[name].total(),
            used=len(sent[name]),
            turns=sum(len(prompt.turns) for prompt in sent[name]),
            left_out=dict(lost[name]),
            order=word_order(sent[name]),
        )
        for name in dict.fromkeys([*there, *lost])
    ]
