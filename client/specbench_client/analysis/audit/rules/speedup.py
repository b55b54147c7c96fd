"""Rules on speed-ups: each column has one basis (TPOT, whole request, throughput), bounded by tokens per step."""

from __future__ import annotations

from specbench_client.analysis.audit.columns import REQUEST_SPEEDUPS, SPEEDUPS, Quantity
from specbench_client.analysis.audit.document import AuditDocument, AuditRow
from specbench_client.analysis.audit.printed_numbers import PrintedNumber, exactly
from specbench_client.analysis.audit.rules.acceptance import speedup_bound
from specbench_client.analysis.audit.rules.rule import AuditRule, RuleOutcome, RuleViolation

TOLERANCE = 0.05
BASIS = 0.03


def tpot_ratio(document: AuditDocument, row: AuditRow) -> tuple[PrintedNumber, str] | None:
    """Return the baseline's TPOT over the row's TPOT, with its formula."""
    baseline = document.baseline_of(row)
    base, mine = baseline.get(Quantity.TPOT) if baseline else None, row.get(Quantity.TPOT)
    if row.is_baseline or base is None or mine is None:
        return None
    return base / mine, f"TPOT ratio of {row.label}: {base} / {mine} = {base / mine}"


def _bounded(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for row in document.rows:
        bound = None if row.is_baseline else speedup_bound(row)
        for name in SPEEDUPS:
            stated = row.get(name)
            if stated is None or bound is None:
                continue
            comparisons += 1
            if stated.exceeds(bound[0], TOLERANCE):
                words = f"{row.label}: {name} {stated} is more than the {bound[0]} tokens that a step can emit"
                violations.append(RuleViolation((row,), words, (bound[1], f"{stated} > {bound[0]}")))
    return RuleOutcome(comparisons, violations)


def _own(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for row in document.rows:
        for name in SPEEDUPS:
            stated = row.get(name) if row.is_baseline else None
            if stated is not None:
                comparisons += 1
                if stated.differs(exactly(1.0), 0.0):
                    violations.append(
                        RuleViolation((row,), f"{row.label}: the baseline's own {name} is {stated}", (f"{stated} ≠ 1",))
                    )
    return RuleOutcome(comparisons, violations)


def _above_tpot(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for row in document.rows:
        ratio, baseline = tpot_ratio(document, row), document.baseline_of(row)
        if ratio is None or baseline is None:
            continue
        first = (baseline.get(Quantity.TTFT), row.get(Quantity.TTFT))
        ttft = first[0] / first[1] if first[0] and first[1] else None
        if ttft is None and row.concurrency != 1:
            continue  # under load faster answers free slots earlier, so drafting may shorten TTFT
        for name in REQUEST_SPEEDUPS:
            stated = row.get(name)
            if stated is None:
                continue
            comparisons += 1
            most = max([ratio[0], ttft or exactly(1.0)], key=lambda each: each.value)
            if stated.exceeds(most, TOLERANCE):
                sums = (
                    ratio[1],
                    f"TTFT ratio {ttft}" if ttft else "TTFT ratio not stated, taken as 1",
                    f"{stated} > {most}",
                )
                words = f"{row.label}: {name} {stated} is above both its TPOT ratio and its TTFT ratio"
                violations.append(RuleViolation((row,), words, sums))
    return RuleOutcome(comparisons, violations)


def _basis(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for rows in document.tables.values():
        for name in REQUEST_SPEEDUPS:
            known = [
                (row, stated, ratio[0])
                for row in rows
                if (stated := row.get(name)) and (ratio := tpot_ratio(document, row))
            ]
            alike = [each for each in known if not each[1].differs(each[2], 0.0)]
            below = [each for each in known if each[2].exceeds(each[1], BASIS)]
            comparisons += len(known) if len(known) > 1 else 0
            if alike and below:
                violations += _mixed(name, alike, below)
    return RuleOutcome(comparisons, violations)


def _mixed(
    name: Quantity,
    alike: list[tuple[AuditRow, PrintedNumber, PrintedNumber]],
    below: list[tuple[AuditRow, PrintedNumber, PrintedNumber]],
) -> list[RuleViolation]:
    """Return the finding where rows equal the TPOT ratio, and others imply a prefill share that rules this out.

    The prefill share is the least, and the speed-ups expected with it are the largest, that the printed digits allow.
    """
    row, stated, ratio = min(below, key=lambda each: _least_share(each[1], each[2]))
    share = _least_share(stated, ratio)
    if share <= 0:
        return []
    wrong = [(each, value, pace, 1 / (share + (1 - share) / pace.high)) for each, value, pace in alike]
    if not any(value.low > expected * (1 + BASIS) for _, value, _, expected in wrong):
        return []
    off = [each for each in wrong if each[1].low > each[3]]
    equal = ", ".join(each.label for each, *_ in off)
    others = ", ".join(each.label for each, *_ in below)
    message = f"the column {name} has two bases: it is the TPOT ratio for {equal}, and less than it for {others}"
    sums = [f"{each.label}: {value} = TPOT ratio {pace}" for each, value, pace, _ in off]
    sums += [f"{each.label}: {value} against TPOT ratio {pace}" for each, value, pace in below]
    sums.append(
        f"{row.label} as whole requests: prefill share f from 1/{stated} = f + (1 − f)/{ratio}: f ≥ {share:.1%}"
    )
    sums += [
        f"with that f, {each.label} would be at most {expected:.2f} and not {value}" for each, value, _, expected in off
    ]
    return [RuleViolation((*(each[0] for each in off), *(each[0] for each in below)), message, tuple(sums))]


def _least_share(whole: PrintedNumber, pace: PrintedNumber) -> float:
    """Return the least prefill share f that both numbers' rounding allows."""
    return min(_share(one, other) for one in (whole.low, whole.high) if one > 0 for other in (pace.low, pace.high))


def _share(whole: float, pace: float) -> float:
    """Return the prefill share f of the baseline's time, from 1/whole = f + (1 − f)/pace (Amdahl's law)."""
    return (1 / whole - 1 / pace) / (1 - 1 / pace) if pace != 1 else 0.0


BOUNDED = AuditRule(
    "SpeedupAboveTokens",
    "a speed-up is at most the acceptance length: speed-up = AL × t_ar / t_sd, and t_sd ≥ t_ar",
    "a step that also verifies drafts is not shorter than one that does not. Without an acceptance length, the largest"
    " possible one is used: 1 + rate × k, else k + 1",
    f"{TOLERANCE:.0%}",
    _bounded,
)
OWN = AuditRule("BaselineOfItself", "the baseline's own speed-up is 1", "it is divided by itself", "none", _own)
ABOVE_TPOT = AuditRule(
    "SpeedupAboveParts",
    "a whole request's speed-up is at most the larger of its TTFT ratio and its TPOT ratio",
    "E2E = TTFT + (tokens − 1) × TPOT. Without TTFT, checked only at concurrency 1, where drafting does not speed up"
    " prefill",
    f"{TOLERANCE:.0%}",
    _above_tpot,
)
MIXED = AuditRule(
    "SpeedupBasis",
    "one column of speed-ups has one basis",
    "whole requests gain less than tokens do: 1/s_e2e = f + (1 − f)/s_tpot with one prefill share f. Rows that equal"
    " the TPOT ratio to the last digit, next to rows that are below it by an f that rules this out, have two bases",
    f"{BASIS:.0%}",
    _basis,
)
