"""Rules on acceptance rate, acceptance length and draft length, which determine one another."""

from __future__ import annotations

from itertools import pairwise

from specbench_client.analysis.audit.columns import Quantity
from specbench_client.analysis.audit.document import AuditDocument, AuditRow
from specbench_client.analysis.audit.printed_numbers import PrintedNumber, exactly
from specbench_client.analysis.audit.rules.rule import AuditRule, RuleOutcome, RuleViolation

TOLERANCE = 0.05


def tokens_per_step(alpha: float, drafts: float) -> float:
    """Return (1 − alpha^(drafts+1)) / (1 − alpha), its limit at 1."""
    return drafts + 1.0 if alpha == 1 else float((1 - alpha ** (drafts + 1)) / (1 - alpha))


ONE = exactly(1.0)


def identity_length(rate: PrintedNumber, drafts: PrintedNumber) -> PrintedNumber:
    """Return 1 + AR × k: exact where AR is accepted / drafted tokens and every step drafts k."""
    return ONE + rate * drafts


def independent_length(alpha: PrintedNumber, drafts: PrintedNumber) -> PrintedNumber:
    """Return (1 − α^(k+1)) / (1 − α) = 1 + α + … + α^k: all positions are accepted independently with α.

    `alpha`: a share; bounds above 1, which come from rounding, are cut at 1.
    """
    value, low, high = (
        tokens_per_step(min(bound, 1.0), drafts.value) for bound in (alpha.value, alpha.low, alpha.high)
    )
    return PrintedNumber(value, low, high)


def is_share(number: PrintedNumber) -> bool:
    """Return whether it can be a share at all; other rules skip numbers that cannot."""
    return number.low <= 1 and number.high >= 0


def speedup_bound(row: AuditRow) -> tuple[PrintedNumber, str] | None:
    """Return the acceptance length with its bonus token as printed, else the most that rate and k allow."""
    length, rate, drafts = row.get(Quantity.ACCEPTANCE_LENGTH), row.get(Quantity.ACCEPTANCE_RATE), row.drafts
    if length is not None:
        return length, f"acceptance length {length}"
    if row.is_baseline:
        return ONE, "1 token per step"
    if drafts is None or drafts.value == 0:
        return None
    if rate is not None:
        most = identity_length(rate, drafts)
        return most, f"1 + {rate} × {drafts} = {most}"
    most = ONE + drafts
    return most, f"k + 1 = {most}"


def _shares(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for row in document.rows:
        for name in (Quantity.ACCEPTANCE_RATE, Quantity.ALPHA):
            share = row.get(name)
            if share is not None:
                comparisons += 1
                if not is_share(share):
                    violations.append(
                        RuleViolation(
                            (row,), f"{row.label}: {name} {share} is not a share", (f"0 ≤ {share} ≤ 1 fails",)
                        )
                    )
        length, drafts = row.get(Quantity.ACCEPTANCE_LENGTH), row.drafts
        if length is not None and drafts is not None:
            comparisons += 1
            if length.low > drafts.value + 1 or length.high < 1:
                sum_ = f"1 ≤ {length} ≤ {drafts} + 1 fails"
                violations.append(
                    RuleViolation((row,), f"{row.label}: no step can emit {length} tokens with k = {drafts}", (sum_,))
                )
    return RuleOutcome(comparisons, violations)


def _lengths(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for row in document.rows:
        for name in (Quantity.ACCEPTANCE_LENGTH, Quantity.ACCEPTED_LENGTH):
            length, drafts = row.get(name), row.drafts
            if length is None or drafts is None or drafts.value == 0:
                continue
            for readings, fewer in _readings(row, drafts):
                comparisons += 1
                most = readings[-1][1] if fewer else None
                violations += [] if most and not length.exceeds(most, TOLERANCE) else _against(row, length, readings)
    return RuleOutcome(comparisons, violations)


def _readings(row: AuditRow, drafts: PrintedNumber) -> list[tuple[list[tuple[str, PrintedNumber]], bool]]:
    """Return the formulas and values of each acceptance column, and whether less than the identity is possible too."""
    rate, alpha = row.get(Quantity.ACCEPTANCE_RATE), row.get(Quantity.ALPHA)
    found = []
    for share in (alpha, rate):
        if share is None or not is_share(share):
            continue
        formulas = [(f"(1 − {share}^{drafts + ONE}) / (1 − {share})", independent_length(share, drafts))]
        formulas += [(f"1 + {share} × {drafts}", identity_length(share, drafts))] if share is rate else []
        found.append((formulas, share is rate and row.drafts_irregularly))
    return found


def _against(row: AuditRow, length: PrintedNumber, readings: list[tuple[str, PrintedNumber]]) -> list[RuleViolation]:
    """Return a finding if no formula gives the length, neither with the bonus token nor without it."""
    fits = [value for _, value in readings for each in (value, value - ONE) if not length.differs(each, TOLERANCE)]
    if fits:
        return []
    sums = tuple(f"{formula} = {value}, without the bonus token {value - ONE}" for formula, value in readings)
    return [RuleViolation((row,), f"{row.label}: acceptance length {length} does not follow from its acceptance", sums)]


def _falls(document: AuditDocument) -> RuleOutcome:
    comparisons, violations = 0, []
    for sweep in document.sweeps(Quantity.DRAFT_LENGTH):
        for name, rises in ((Quantity.ACCEPTANCE_RATE, True), (Quantity.ACCEPTANCE_LENGTH, False)):
            known = [
                (row, value) for row in sweep if (value := row.get(name)) is not None and not row.drafts_irregularly
            ]
            for (fewer, first), (more, second) in pairwise(known):
                comparisons += 1
                wrong = second.exceeds(first, TOLERANCE) if rises else first.exceeds(second, TOLERANCE)
                if wrong:
                    verb = "rises" if rises else "falls"
                    words = (
                        f"{name} {verb} with the draft length: {first} at k={fewer.drafts}, {second} at k={more.drafts}"
                    )
                    law = "mean of P(≥1) … P(≥k), which never rise" if rises else "1 + ΣP(≥i), which never falls"
                    violations.append(RuleViolation((fewer, more), words, (f"{name} = {law}",)))
    return RuleOutcome(comparisons, violations)


SHARES = AuditRule(
    "PossibleAcceptance",
    "0 ≤ acceptance rate ≤ 1, and 1 ≤ acceptance length ≤ k + 1",
    "a step emits the accepted drafts and one token of the target",
    "none",
    _shares,
)
LENGTHS = AuditRule(
    "AcceptanceLength",
    "acceptance length = 1 + rate × k, or (1 − α^(k+1)) / (1 − α) where all positions are accepted alike",
    "the first is an identity where every step drafts k tokens; either is accepted, with the bonus token or without."
    " A column `alpha` is the rate of one position, so only the second applies to it. Drafters that look up (n-gram,"
    " suffix) draft in some steps only, so less than 1 + rate × k is accepted for them",
    f"{TOLERANCE:.0%}",
    _lengths,
)
FALLS = AuditRule(
    "AcceptanceByDraftLength",
    "with more draft tokens the acceptance rate does not rise and the acceptance length does not fall",
    "P(≥ i accepted) never rises with i; the rate is its mean over i ≤ k, the length 1 + its sum. Drafters that look up"
    " are not checked",
    f"{TOLERANCE:.0%}",
    _falls,
)
