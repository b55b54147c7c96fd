"""Acceptance that was measured beside no baseline: it says how much is accepted, and nothing of what a step costs."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

NOTHING_ACCEPTED = 1.0
_LENGTH = "acceptance_length_emitted_pooled"


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    if any(arm.is_baseline for arm in evidence.plan.arms):
        return []
    figures = [each.figures.get(_LENGTH) for each in evidence.summaries]
    lengths = [figure.value for figure in figures if figure is not None and figure.value is not None]
    longest = max(lengths, default=NOTHING_ACCEPTED)
    if longest <= NOTHING_ACCEPTED:
        return []
    message = (
        f"up to {longest:.2f} tokens a step, and no baseline beside them: that is no speed-up, because nothing here"
        " tells how much longer a step with drafts takes than one without"
    )
    return [Seen(Severity.NOTE, message, value=longest, threshold=NOTHING_ACCEPTED)]


CHECK: Check[RunEvidence] = Check(
    name="AcceptanceAlone",
    severities=(Severity.NOTE,),
    says="Drafts were accepted, and nothing was measured without them: acceptance stands alone.",
    threshold="any acceptance length above 1 in a run without a baseline: an endpoint, or baseline: Skip",
    argument=(
        "Decoding gains by the acceptance length over t_sd / t_ar, how much longer a step is than the baseline's. Trees"
        " of 21 drafts are published with 2.92 tokens a step against a chain's 2.25, and with 0.58 times the baseline's"
        " throughput at 64 streams against 1.31; the demo of the README accepts 96 % and is half as fast. The"
        " acceptance itself is right, so it is a note."
    ),
    remedy=(
        "Measure the same endpoint once more with drafting off and `specbench compare` the two, or have both arms"
        " launched (`specbench run`)."
    ),
    look=_look,
)
