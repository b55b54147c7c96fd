"""A speed-up has a basis (time per token, whole request, throughput), and no basis lets it exceed what a step emits."""

from __future__ import annotations

from specbench_client.analysis.audit.columns import Name
from specbench_client.analysis.audit.document import Document, Row
from specbench_client.analysis.audit.numbers import Told, exactly
from specbench_client.analysis.audit.rule import Looked, Rule, Seen
from specbench_client.analysis.audit.rules.acceptance import bound_of

TOLERANCE = 0.05
BASIS = 0.03
SPEEDUPS = (Name.SPEEDUP, Name.E2E_SPEEDUP, Name.TPOT_SPEEDUP, Name.THROUGHPUT_SPEEDUP)
WHOLE = (Name.SPEEDUP, Name.E2E_SPEEDUP)
"""Columns that may be of whole requests."""


def tpot_ratio(document: Document, row: Row) -> tuple[Told, str] | None:
    """The baseline's time per token over the row's."""
    baseline = document.baseline_of(row)
    base, mine = baseline.get(Name.TPOT) if baseline else None, row.get(Name.TPOT)
    if row.is_baseline or base is None or mine is None:
        return None
    return base / mine, f"TPOT ratio of {row.label}: {base} / {mine} = {base / mine}"


def _bounded(document: Document) -> Looked:
    asked, seen = 0, []
    for row in document.rows:
        bound = None if row.is_baseline else bound_of(row)
        for name in SPEEDUPS:
            told = row.get(name)
            if told is None or bound is None:
                continue
            asked += 1
            if told.above(bound[0], TOLERANCE):
                words = f"{row.label}: {name} {told} is more than the {bound[0]} tokens that a step emits"
                seen.append(Seen((row,), words, (bound[1], f"{told} > {bound[0]}")))
    return Looked(asked, seen)


def _own(document: Document) -> Looked:
    asked, seen = 0, []
    for row in document.rows:
        for name in SPEEDUPS:
            told = row.get(name) if row.is_baseline else None
            if told is not None:
                asked += 1
                if told.apart(exactly(1.0), 0.0):
                    seen.append(Seen((row,), f"{row.label}: the baseline's own {name} is {told}", (f"{told} ≠ 1",)))
    return Looked(asked, seen)


def _above_tpot(document: Document) -> Looked:
    asked, seen = 0, []
    for row in document.rows:
        ratio, baseline = tpot_ratio(document, row), document.baseline_of(row)
        if ratio is None or baseline is None:
            continue
        first = (baseline.get(Name.TTFT), row.get(Name.TTFT))
        ttft = first[0] / first[1] if first[0] and first[1] else None
        if ttft is None and row.concurrency != 1:
            continue  # under load the first token may wait for slots, which faster answers free
        for name in WHOLE:
            told = row.get(name)
            if told is None:
                continue
            asked += 1
            most = max([ratio[0], ttft or exactly(1.0)], key=lambda each: each.value)
            if told.above(most, TOLERANCE):
                sums = (
                    ratio[1],
                    f"TTFT ratio {ttft}" if ttft else "TTFT ratio not told, taken as 1",
                    f"{told} > {most}",
                )
                words = f"{row.label}: {name} {told} is above both its time per token's and its first token's"
                seen.append(Seen((row,), words, sums))
    return Looked(asked, seen)


def _basis(document: Document) -> Looked:
    asked, seen = 0, []
    for rows in document.tables.values():
        for name in WHOLE:
            known = [
                (row, told, ratio[0])
                for row in rows
                if (told := row.get(name)) and (ratio := tpot_ratio(document, row))
            ]
            alike = [each for each in known if not each[1].apart(each[2], 0.0)]
            below = [each for each in known if each[2].above(each[1], BASIS)]
            asked += len(known) if len(known) > 1 else 0
            if alike and below:
                seen += _mixed(name, alike, below)
    return Looked(asked, seen)


def _mixed(name: Name, alike: list[tuple[Row, Told, Told]], below: list[tuple[Row, Told, Told]]) -> list[Seen]:
    """Rows that equal the TPOT ratio to the last digit, while others imply a prefill share that forbids it."""
    row, told, ratio = min(below, key=lambda each: _share(each[1].value, each[2].value))
    share = _share(told.value, ratio.value)
    wrong = [(each, value, pace, 1 / (share + (1 - share) / pace.value)) for each, value, pace in alike]
    if not any(value.low > expected * (1 + BASIS) for _, value, _, expected in wrong):
        return []
    off = [each for each in wrong if each[1].low > each[3]]
    equal = ", ".join(each.label for each, *_ in off)
    others = ", ".join(each.label for each, *_ in below)
    message = f"the column {name} has two bases: it is the TPOT ratio for {equal}, and less than it for {others}"
    sums = [f"{each.label}: {value} = TPOT ratio {pace}" for each, value, pace, _ in off]
    sums += [f"{each.label}: {value} against TPOT ratio {pace}" for each, value, pace in below]
    sums.append(f"{row.label} as whole requests: prefill share f from 1/{told} = f + (1 − f)/{ratio}: f = {share:.1%}")
    sums += [f"with that f, {each.label} would be {expected:.2f} and not {value}" for each, value, _, expected in off]
    return [Seen((*(each[0] for each in off), *(each[0] for each in below)), message, tuple(sums))]


def _share(whole: float, pace: float) -> float:
    """Prefill's share f of the baseline's time, from 1/whole = f + (1 − f)/pace (Amdahl)."""
    return (1 / whole - 1 / pace) / (1 - 1 / pace) if pace != 1 else 0.0


BOUNDED = Rule(
    "SpeedupAboveTokens",
    "a speed-up is at most the acceptance length: speed-up = AL × t_ar / t_sd, and t_sd ≥ t_ar",
    "a step that also verifies drafts is not shorter than one that does not. Where no acceptance length is told, the"
    " most that it can be: 1 + rate × k, else k + 1",
    f"{TOLERANCE:.0%}",
    _bounded,
)
OWN = Rule("BaselineOfItself", "the baseline's own speed-up is 1", "it is divided by itself", "none", _own)
ABOVE_TPOT = Rule(
    "SpeedupAboveParts",
    "a whole request's speed-up is at most the larger of its TTFT ratio and its TPOT ratio",
    "E2E = TTFT + (tokens − 1) × TPOT. Where no TTFT is told, asked at concurrency 1 alone, where drafting does not"
    " make prefill faster",
    f"{TOLERANCE:.0%}",
    _above_tpot,
)
MIXED = Rule(
    "SpeedupBasis",
    "one column of speed-ups has one basis",
    "whole requests gain less than tokens do: 1/s_e2e = f + (1 − f)/s_tpot with one prefill share f. Rows that equal"
    " the TPOT ratio to the last digit beside rows that lie below it by an f that forbids this are of two bases",
    f"{BASIS:.0%}",
    _basis,
)
