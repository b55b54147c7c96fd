"""A claimed effect that is smaller than what the baseline does on its own from run to run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import REPEATS_TO_TELL
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

SPREADS = 2.0


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    speedup, repeats = evidence.speedup, evidence.baseline_repeats
    if speedup is None or speedup.value is None or speedup.interval is None or repeats.size < REPEATS_TO_TELL:
        return []
    claimed = not speedup.interval.low <= 1 <= speedup.interval.high
    spread = float(SPREADS * np.log(repeats).std(ddof=1))
    effect = abs(float(np.log(speedup.value)))
    if not claimed or spread <= effect:
        return []
    alike = evidence.greedy and evidence.level.concurrency is not None
    severity = Severity.DOUBT if alike else Severity.NOTE
    message = (
        f"the baseline's own speed varies by {spread:.0%} from repeat to repeat ({SPREADS:g} standard deviations), more"
        f" than the claimed effect of {effect:.0%}"
    )
    if severity is Severity.NOTE:
        message += "; repeats differ by design here (sampled texts, arrivals), alike for both arms"
    return [Seen(severity, message, value=spread, threshold=effect)]


CHECK: Check[CellEvidence] = Check(
    name="NoisyBaseline",
    severities=(Severity.DOUBT, Severity.NOTE),
    says="The baseline varies more from repeat to repeat than the speed-up that is claimed.",
    threshold=(
        f"{SPREADS:g} standard deviations of the log of its speed over repeats, above the log of the speed-up. A Note"
        " where repeats differ by design: sampled texts, arrivals of an open loop"
    ),
    argument=(
        "Two standard deviations hold nearly all runs of an unchanged machine: an effect inside them could be the"
        " machine alone, however narrow the interval. Said only where the interval excludes 1, from three repeats on."
        " Texts and arrivals that are other in each repeat are the same for both arms: pairing takes them off, and the"
        " interval holds what is left."
    ),
    remedy="Measure on a quiet machine with fixed clocks, with more repeats, interleaved.",
    look=_look,
)
