"""Greedy text that differs from the baseline's: speculation should change the speed and nothing else.

Some difference is rounding: verifying k + 1 tokens at once adds in another order than one at a time, and a near tie
then falls the other way. How often the baseline differs from itself across its own repeats is the control.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

NOTE_EXCESS = 0.02
DOUBT_EXCESS = 0.2


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    if not evidence.greedy or evidence.divergence is None:
        return []
    rate, control = evidence.divergence.rate, evidence.divergence.control
    if rate is None:
        return []
    excess = rate - (control or 0.0)
    if excess <= NOTE_EXCESS:
        return []
    against = "none, it was measured once" if control is None else f"{control:.0%}"
    message = (
        f"{rate:.0%} of the greedy answers differ from the baseline's; the control, the baseline against itself across"
        f" repeats: {against}"
    )
    severity = Severity.DOUBT if excess > DOUBT_EXCESS else Severity.NOTE
    return [Seen(severity, message, value=rate, threshold=(control or 0.0) + DOUBT_EXCESS)]


CHECK: Check[CellEvidence] = Check(
    name="GreedyDivergence",
    severities=(Severity.DOUBT, Severity.NOTE),
    says="At temperature 0, answers differ from the paired baseline's more often than the baseline's from themselves.",
    threshold=(
        f"a Note from {NOTE_EXCESS:.0%} of the answers above the control, a Doubt from {DOUBT_EXCESS:.0%}. Not looked"
        " for at other temperatures, where texts differ by design"
    ),
    argument=(
        "Near ties that rounding can turn are met about once in a thousand tokens: some answers in a hundred, up to a"
        " fifth of long ones. More than that above the control is no longer rounding."
    ),
    remedy="Check the task's accuracy with and without the drafter before using it; report the engine's version.",
    look=_look,
)
