"""Acceptance rate, acceptance length and draft length are bound to one another."""

from __future__ import annotations

from itertools import pairwise

from specbench_client.analysis.audit.columns import Name
from specbench_client.analysis.audit.document import Document, Row
from specbench_client.analysis.audit.numbers import Told, exactly
from specbench_client.analysis.audit.rule import Looked, Rule, Seen

TOLERANCE = 0.05
ONE = exactly(1.0)


def identity(rate: Told, drafts: Told) -> Told:
    """1 + AR × k: exact where AR is accepted / drafted and every step drafts k."""
    return ONE + rate * drafts


def independent(alpha: Told, drafts: Told) -> Told:
    """(1 − α^(k+1)) / (1 − α) = 1 + α + … + α^k: where each position is accepted alike and independently.

    `alpha`: a share; what its rounding has beyond 1 is left out.
    """
    value, low, high = (_series(min(bound, 1.0), drafts.value) for bound in (alpha.value, alpha.low, alpha.high))
    return Told(value, low, high)


def _series(alpha: float, drafts: float) -> float:
    return drafts + 1.0 if alpha == 1 else float((1 - alpha ** (drafts + 1)) / (1 - alpha))


def is_share(told: Told) -> bool:
    """Whether it can be a share at all; one that cannot is named as such, and no other law is asked of it."""
    return told.low <= 1 and told.high >= 0


def bound_of(row: Row) -> tuple[Told, str] | None:
    """Acceptance length with its bonus token: as the row tells it, else the most that its rate and k allow."""
    told, rate, drafts = row.get(Name.ACCEPTANCE_LENGTH), row.get(Name.ACCEPTANCE_RATE), row.drafts
    if told is not None:
        return told, f"acceptance length {told}"
    if row.is_baseline:
        return ONE, "1 token a step"
    if drafts is None or drafts.value == 0:
        return None
    if rate is not None:
        most = identity(rate, drafts)
        return most, f"1 + {rate} × {drafts} = {most}"
    most = ONE + drafts
    return most, f"k + 1 = {most}"


def _shares(document: Document) -> Looked:
    asked, seen = 0, []
    for row in document.rows:
        for name in (Name.ACCEPTANCE_RATE, Name.ALPHA):
            share = row.get(name)
            if share is not None:
                asked += 1
                if not is_share(share):
                    seen.append(Seen((row,), f"{row.label}: {name} {share} is no share", (f"0 ≤ {share} ≤ 1 fails",)))
        length, drafts = row.get(Name.ACCEPTANCE_LENGTH), row.drafts
        if length is not None and drafts is not None:
            asked += 1
            if length.low > drafts.value + 1 or length.high < 1:
                sum_ = f"1 ≤ {length} ≤ {drafts} + 1 fails"
                seen.append(Seen((row,), f"{row.label}: no step emits {length} tokens with k = {drafts}", (sum_,)))
    return Looked(asked, seen)


def _lengths(document: Document) -> Looked:
    asked, seen = 0, []
    for row in document.rows:
        for name in (Name.ACCEPTANCE_LENGTH, Name.ACCEPTED_LENGTH):
            length, drafts = row.get(name), row.drafts
            if length is None or drafts is None or drafts.value == 0:
                continue
            for readings, fewer in _readings(row, drafts):
                asked += 1
                most = readings[-1][1] if fewer else None
                seen += [] if most and not length.above(most, TOLERANCE) else _against(row, length, readings)
    return Looked(asked, seen)


def _readings(row: Row, drafts: Told) -> list[tuple[list[tuple[str, Told]], bool]]:
    """Formulas and their values by acceptance column; and whether less than the last, the identity, is possible too."""
    rate, alpha = row.get(Name.ACCEPTANCE_RATE), row.get(Name.ALPHA)
    found = []
    for share in (alpha, rate):
        if share is None or not is_share(share):
            continue
        told = [(f"(1 − {share}^{drafts + ONE}) / (1 − {share})", independent(share, drafts))]
        told += [(f"1 + {share} × {drafts}", identity(share, drafts))] if share is rate else []
        found.append((told, share is rate and row.uneven))
    return found


def _against(row: Row, length: Told, readings: list[tuple[str, Told]]) -> list[Seen]:
    """A finding where no reading gives the length, with its bonus token or without it."""
    fits = [value for _, value in readings for each in (value, value - ONE) if not length.apart(each, TOLERANCE)]
    if fits:
        return []
    sums = tuple(f"{formula} = {value}, without the bonus token {value - ONE}" for formula, value in readings)
    return [Seen((row,), f"{row.label}: acceptance length {length} is not what its acceptance gives", sums)]


def _falls(document: Document) -> Looked:
    asked, seen = 0, []
    for sweep in document.sweeps(Name.DRAFT_LENGTH):
        for name, rises in ((Name.ACCEPTANCE_RATE, True), (Name.ACCEPTANCE_LENGTH, False)):
            told = [(row, value) for row in sweep if (value := row.get(name)) is not None and not row.uneven]
            for (fewer, first), (more, second) in pairwise(told):
                asked += 1
                wrong = second.above(first, TOLERANCE) if rises else first.above(second, TOLERANCE)
                if wrong:
                    verb = "rises" if rises else "falls"
                    words = (
                        f"{name} {verb} with the draft length: {first} at k={fewer.drafts}, {second} at k={more.drafts}"
                    )
                    law = "mean of P(≥1) … P(≥k), which never rise" if rises else "1 + ΣP(≥i), which never falls"
                    seen.append(Seen((fewer, more), words, (f"{name} = {law}",)))
    return Looked(asked, seen)


SHARES = Rule(
    "PossibleAcceptance",
    "0 ≤ acceptance rate ≤ 1, and 1 ≤ acceptance length ≤ k + 1",
    "a step emits the accepted drafts and one token of the target's own",
    "none",
    _shares,
)
LENGTHS = Rule(
    "AcceptanceLength",
    "acceptance length = 1 + rate × k, or (1 − α^(k+1)) / (1 − α) where positions are alike and independent",
    "the first is an identity where every step drafts k tokens; either is taken, with the bonus token or without."
    " A column `alpha` is the chance of one position, so only the second is. Drafters that look up (n-gram, suffix)"
    " draft in some steps only: less than 1 + rate × k is let pass there",
    f"{TOLERANCE:.0%}",
    _lengths,
)
FALLS = Rule(
    "AcceptanceByDraftLength",
    "with more draft tokens the acceptance rate does not rise and the acceptance length does not fall",
    "P(≥ i accepted) never rises with i; the rate is its mean over i ≤ k, the length 1 + its sum. Not asked of drafters"
    " that look up",
    f"{TOLERANCE:.0%}",
    _falls,
)
