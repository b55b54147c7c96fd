"""Answers that are shorter than the baseline's: cut off silently, they look fast.

Greedy answers that part from the baseline's through rounding become longer as often as shorter; a cut only shortens.
So what counts is not that lengths differ, but that they differ in one direction. The prompt is the unit: a prompt that
comes back in every repeat is one witness, not several.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import special

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import Values, numbers
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

LENGTH_SHARE = 0.1
NET_SHARE = 0.1
SIGNIFICANCE = 0.01
UNANIMOUS_MIN = 3


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    if evidence.pairs is None or not evidence.greedy:
        return []
    signs = _signs(evidence.pairs)
    shorter, longer = int((signs < 0).sum()), int((signs > 0).sum())
    net = (shorter - longer) / signs.size if signs.size else 0.0
    if abs(net) < NET_SHARE or not _one_sided(shorter, longer, signs.size):
        return []
    tail = "the engine cuts answers silently" if net > 0 else "the baseline's are cut, or these run past their end"
    message = (
        f"of {signs.size} prompts {shorter} have an answer more than {LENGTH_SHARE:.0%} shorter than the paired"
        f" baseline's and {longer} a longer one{_finishes(evidence.pairs)}: {tail}"
    )
    return [Seen(Severity.INVALID, message, value=net, threshold=NET_SHARE)]


def _signs(pairs: Pairs) -> Values:
    """One sign a prompt: −1 where the arm's answers are shorter by more than the tolerance, +1 longer, else 0."""
    both = numbers(pairs.rows, "tokens" + ARM), numbers(pairs.rows, "tokens" + BASELINE)
    known = ~np.isnan(both[0]) & ~np.isnan(both[1])
    lengths = pd.DataFrame({"prompt": pairs.rows["prompt_id"], "mine": both[0], "theirs": both[1]})[known]
    sums = lengths.groupby("prompt").sum()
    mine, theirs = numbers(sums, "mine"), numbers(sums, "theirs")
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
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f" (finish_reason: {told})" if told else ""


CHECK: Check[CellEvidence] = Check(
    name="TruncatedOutput",
    severities=(Severity.INVALID,),
    says="At temperature 0, answers are systematically shorter (or longer) than the paired baseline's.",
    threshold=(
        f"prompts with an answer more than {LENGTH_SHARE:.0%} shorter outnumber those with a longer one by more than"
        f" {NET_SHARE:.0%} of all, by a two-sided sign test at {SIGNIFICANCE:g}; or nearly all of at least"
        f" {UNANIMOUS_MIN} prompts agree. Not looked for at other temperatures, where lengths differ by design"
    ),
    argument=(
        "Rounding makes greedy answers part in both directions alike, a cut in one only; the sign test tells them apart"
        " without knowing how much rounding there is."
    ),
    remedy="Read finish_reason; look for a smaller context length on this arm, or tokens past the end of the answer.",
    look=_look,
)
