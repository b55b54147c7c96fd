"""Greedy answers that differ from the baseline's: speculation should change the speed and nothing else.

Some of the differences are rounding: verifying k + 1 tokens at once adds numbers in a different order than one token at
a time, and a near tie may then be resolved differently. The control is how often the baseline differs from itself
across its own repeats.
"""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

INFO_EXCESS = 0.02
WARNING_EXCESS = 0.2


def _evaluate(evidence: CellEvidence) -> CheckResults:
    found = evidence.divergence
    if found is None or not evidence.greedy:
        return []
    rate, control = found.rate, found.control
    if rate is None:
        return []
    excess = rate - (control or 0.0)
    if excess <= INFO_EXCESS:
        return []
    control_words = "none, because it was measured once" if control is None else f"{control:.0%}"
    message = (
        f"{rate:.0%} of the greedy answers differ from the baseline's; control (the baseline compared with itself"
        f" across repeats): {control_words}"
    )
    severity = Severity.WARNING if excess > WARNING_EXCESS else Severity.INFO
    return [CheckResult(severity, message, value=rate, threshold=(control or 0.0) + WARNING_EXCESS)]


CHECK: Check[CellEvidence] = Check(
    name="GreedyDivergence",
    severities=(Severity.WARNING, Severity.INFO),
    description=(
        "At temperature 0, answers differ from the paired baseline's more often than the baseline differs from itself."
    ),
    threshold=(
        f"Info if {INFO_EXCESS:.0%} more of the answers differ than in the control (the baseline against its other"
        f" repeats), Warning from {WARNING_EXCESS:.0%}. Not evaluated at other temperatures, where texts differ by"
        " design"
    ),
    rationale=(
        "About once in a thousand tokens, two tokens are so nearly tied that rounding decides. That changes a few"
        " percent of the answers, and up to a fifth of long ones. A larger excess over the control is not rounding."
    ),
    remedy="Check the task's accuracy with and without the drafter before using it, and report the engine's version.",
    evaluate=_evaluate,
)
