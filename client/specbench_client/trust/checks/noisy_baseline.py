"""A claimed effect that is smaller than the baseline's own variation from run to run."""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import MIN_REPEATS_TO_COMPARE
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

SPREADS = 2.0


def _evaluate(evidence: CellEvidence) -> CheckResults:
    speedup, repeats = evidence.speedup, evidence.baseline_repeats
    if speedup is None or speedup.value is None or repeats.size < MIN_REPEATS_TO_COMPARE:
        return []
    spread = float(SPREADS * np.log(repeats).std(ddof=1))
    effect = abs(float(np.log(speedup.value)))
    if not evidence.is_speedup_claimed or spread <= effect:
        return []
    alike = evidence.greedy and evidence.level.concurrency is not None
    severity = Severity.WARNING if alike else Severity.INFO
    message = (
        f"the baseline's own speed varies by {spread:.0%} between repeats ({SPREADS:g} standard deviations), more"
        f" than the claimed effect of {effect:.0%}"
    )
    if severity is Severity.INFO:
        message += "; here repeats differ by design (sampled texts, arrivals), equally for both arms"
    return [CheckResult(severity, message, value=spread, threshold=effect)]


CHECK: Check[CellEvidence] = Check(
    name="NoisyBaseline",
    severities=(Severity.WARNING, Severity.INFO),
    description="The baseline varies more between repeats than the arm differs from it.",
    threshold=(
        f"{SPREADS:g} standard deviations of the log of the baseline's speed over repeats are more than the log of"
        " the speed-up. Only from three repeats on, and if the interval of the speed-up excludes 1. Info if repeats"
        " differ by design: sampled texts, arrivals of an open loop"
    ),
    rationale=(
        "Two standard deviations contain nearly all runs of an unchanged machine, so the machine alone may cause a"
        " smaller effect, even if the interval is narrow. Texts and arrivals that change with each repeat are the same"
        " for both arms: pairing removes their effect."
    ),
    remedy="Measure on a quiet machine with fixed clocks, with more repeats, interleaved.",
    evaluate=_evaluate,
)
