"""Rules on the step time, which is TPOT × acceptance length and does not fall with more drafts."""

from __future__ import annotations

from specbench_client.analysis.audit.columns import Quantity
from specbench_client.analysis.audit.document import AuditDocument, AuditRow
from specbench_client.analysis.audit.printed_numbers import PrintedNumber
from specbench_client.analysis.audit.rules.acceptance import ONE, identity_length, independent_length, is_share
from specbench_client.analysis.audit.rules.rule import AuditRule, RuleOutcome, RuleViolation

TOLERANCE = 0.05
STATED = 0.10
READINGS = ("identity", "independent")
"""How an acceptance rate becomes a length. Where the table has the acceptance length, both readings are that length."""

_Step = tuple[PrintedNumber, str]
_Pair = tuple[_Step, _Step]


def implied_step_times(row: AuditRow) -> dict[str, tuple[PrintedNumber, str]]:
    """Return the step time by reading of the acceptance, each with its formula; empty if columns are missing."""
    tpot, drafts, rate = row.get(Quantity.TPOT), row.drafts, row.get(Quantity.ACCEPTANCE_RATE)
    stated = row.get(Quantity.ACCEPTANCE_LENGTH)
    if tpot is None:
        return {}
    if row.is_baseline:
        return dict.fromkeys(READINGS, (tpot, f"{tpot} ms × 1"))
    if stated is not None:
        return dict.fromkeys(READINGS, (tpot * stated, f"{tpot} ms × {stated}"))
    if drafts is None or rate is None or row.drafts_irregularly or not is_share(rate):
        return {}
    lengths = (identity_length(rate, drafts), independent_length(rate, drafts))
    sums = (f"(1 + {rate} × {drafts})", f"(1 − {rate}^{drafts + ONE}) / (1 − {rate})")
    found = [(tpot * length, f"{tpot} ms × {sum_}") for length, sum_ in zip(lengths, sums, strict=True)]
    return dict(zip(READINGS, found, strict=True))


def _check(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for sweep in document.sweeps(Quantity.DRAFT_LENGTH):
        baseline = document.baseline_of(sweep[0])
        timed = [(row, implied_step_times(row)) for row in ([baseline] if baseline else []) + sweep]
        known = [(row, steps) for row, steps in timed if steps]
        for index, (fewer, first) in enumerate(known):
            falls = []
            for more, second in known[index + 1 :]:
                comparisons += 1
                pairs = [(first[reading], second[reading]) for reading in READINGS]
                if all(before[0].exceeds(after[0], TOLERANCE) for before, after in pairs):
                    falls.append((more, pairs))
            violations += [_fall(fewer, *min(falls, key=lambda fall: fall[1][0][1][0].value))] if falls else []
    return RuleOutcome(comparisons, violations)


def _fall(fewer: AuditRow, more: AuditRow, pairs: list[_Pair]) -> RuleViolation:
    """Return the finding for the largest fall of a row; its smaller falls add nothing."""
    (first, _), (second, _) = pairs[0]
    message = (
        f"{_named(fewer)} implies a step of {first.value:.0f} ms, longer than the {second.value:.0f} ms of"
        f" {_named(more)}, which drafts more"
    )
    sums = [
        f"{_named(row)}: {sum_} = {step} ms"
        for pair in pairs
        for row, (step, sum_) in zip((fewer, more), pair, strict=True)
    ]
    return RuleViolation((fewer, more), message, tuple(dict.fromkeys(sums)))


def _named(row: AuditRow) -> str:
    return "the baseline" if row.is_baseline else f"k={row.drafts}"


def _stated(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for row in document.rows:
        step, tpot, length = row.get(Quantity.STEP), row.get(Quantity.TPOT), row.get(Quantity.ACCEPTANCE_LENGTH)
        if step and tpot and length:
            comparisons += 1
            expected = tpot * length
            if step.differs(expected, STATED):
                words = f"{row.label}: a step time of {step} ms is not TPOT × acceptance length"
                violations.append(RuleViolation((row,), words, (f"{tpot} ms × {length} = {expected} ms",)))
    return RuleOutcome(comparisons, violations)


STATED_STEP = AuditRule(
    "StepTime",
    "step time = TPOT × acceptance length",
    "a step emits that many tokens. Under load a request also waits for the prefill of others, which TPOT includes and"
    " a step time may not",
    f"{STATED:.0%}",
    _stated,
)
STEP_TIME = AuditRule(
    "StepTimeByDraftLength",
    "implied step time = TPOT × acceptance length does not fall as k grows, and is not below the baseline's",
    "a step drafts k tokens and verifies k + 1, and more of them never take less time. Without an acceptance length, a"
    " fall is reported only if both 1 + rate × k and (1 − α^(k+1)) / (1 − α) give one. Drafters that look up are not"
    " checked: their rate does not cover steps without drafts",
    f"{TOLERANCE:.0%}",
    _check,
)
