"""Answers that are shorter than the baseline's: answers that the engine cuts silently look fast.

Greedy answers that diverge from the baseline's through rounding become longer as often as shorter, but a cut only
shortens. So the check does not count differences in length, but differences in one direction. The prompt is the unit: a
prompt that is sent again in every repeat is one sample, not several.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs
from specbench_client.metrics.tidy_frame import Values, numbers, sums_by_text
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

LENGTH_SHARE = 0.1
NET_SHARE = 0.1
SIGNIFICANCE = 0.01
UNANIMOUS_MIN = 3


def _evaluate(evidence: CellEvidence) -> CheckResults:
    if evidence.pairs is None or not evidence.greedy:
        return []
    signs = _signs(evidence.pairs)
    shorter, longer = int((signs < 0).sum()), int((signs > 0).sum())
    net = (shorter - longer) / signs.size if signs.size else 0.0
    if abs(net) < NET_SHARE or not _one_sided(shorter, longer, signs.size):
        return []
    cause = (
        "the engine cuts answers silently" if net > 0 else "the baseline's are cut, or this arm's run past their end"
    )
    message = (
        f"{shorter} of {signs.size} prompts have an answer more than {LENGTH_SHARE:.0%} shorter than the paired"
        f" baseline's, and {longer} a longer one{_finishes(evidence.pairs)}: {cause}"
    )
    return [CheckResult(Severity.INVALID, message, value=net, threshold=NET_SHARE)]


def _signs(pairs: Pairs) -> Values:
    """One sign per prompt, shape (prompts,): −1 if its answers are shorter beyond the tolerance, +1 if longer."""
    sums = sums_by_text(
        pairs.rows, "prompt_id", lambda rows: [numbers(rows, "tokens" + side) for side in (ARM, BASELINE)]
    )
    mine, theirs = sums.to_numpy(np.float64).reshape(-1, 2).T
    shorter = mine < theirs * (1 - LENGTH_SHARE) - 1
    longer = theirs < mine * (1 - LENGTH_SHARE) - 1
    return np.asarray(longer, dtype=np.float64) - shorter


def _one_sided(shorter: int, longer: int, prompts: int) -> bool:
    more, fewer = max(shorter, longer), min(shorter, longer)
    if more == 0:
        return False
    unanimous = prompts >= UNANIMOUS_MIN and fewer == 0 and more >= (1 - NET_SHARE) * prompts
    two_sided = min(1.0, 2 * float(special.bdtr(min(more, fewer), more + fewer, 0.5)))
    return unanimous or two_sided < SIGNIFICANCE


def _finishes(pairs: Pairs) -> str:
    counts = pairs.rows["finish_reason" + ARM].dropna().value_counts()
    named = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f" (finish_reason: {named})" if named else ""


CHECK: Check[CellEvidence] = Check(
    name="OutputLengthsDiffer",
    severities=(Severity.INVALID,),
    description="At temperature 0, answers are systematically shorter (or longer) than the paired baseline's.",
    threshold=(
        f"prompts whose answer is more than {LENGTH_SHARE:.0%} shorter outnumber those whose answer is more than"
        f" {LENGTH_SHARE:.0%} longer, or the reverse, by at least {NET_SHARE:.0%} of all prompts; and a two-sided sign"
        f" test rejects chance at {SIGNIFICANCE:g}, or at least {1 - NET_SHARE:.0%} of {UNANIMOUS_MIN} or more prompts"
        " differ in one direction and none in the other. Not evaluated at other temperatures, where lengths differ by"
        " design"
    ),
    rationale=(
        "Rounding makes greedy answers longer as often as shorter; a cut only shortens them. The sign test separates"
        " the two without knowing how much rounding there is."
    ),
    remedy=(
        "Read finish_reason, and look for a smaller context length on this arm or for tokens past the end of the"
        " answer."
    ),
    evaluate=_evaluate,
)
