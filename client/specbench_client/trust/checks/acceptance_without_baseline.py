"""Acceptance measured without a baseline: it does not show how much longer a step with drafts takes."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence

NOTHING_ACCEPTED = 1.0
_LENGTH = "acceptance_length_emitted_pooled"


def _evaluate(evidence: RunEvidence) -> CheckResults:
    if any(arm.is_baseline for arm in evidence.plan.arms):
        return []
    figures = [each.figures.get(_LENGTH) for each in evidence.summaries]
    lengths = [figure.value for figure in figures if figure is not None and figure.value is not None]
    longest = max(lengths, default=NOTHING_ACCEPTED)
    if longest <= NOTHING_ACCEPTED:
        return []
    message = (
        f"up to {longest:.2f} tokens per step were measured, but no baseline: this is not a speed-up, because the"
        " run does not show how much longer a step with drafts takes than one without"
    )
    return [CheckResult(Severity.INFO, message, value=longest, threshold=NOTHING_ACCEPTED)]


CHECK: Check[RunEvidence] = Check(
    name="AcceptanceWithoutBaseline",
    severities=(Severity.INFO,),
    description="Drafts were accepted, but nothing was measured without drafting.",
    threshold="any acceptance length above 1 in a run without a baseline (an external endpoint, or `baseline: Skip`)",
    rationale=(
        "The speed-up of decoding is the acceptance length divided by t_sd / t_ar, the ratio of the step times."
        " Published results for trees of 21 drafts have 2.92 tokens per step against a chain's 2.25, but 0.58 times"
        " the baseline's throughput at 64 streams against the chain's 1.31; examples/local-llama-cpp-draft-model.yaml"
        " accepts 96 % of its drafts and is half as fast. The acceptance itself is correct, so the severity is Info."
    ),
    remedy=(
        "Measure the same endpoint again with drafting off and use `specbench compare` on the two results, or let"
        " specbench launch both arms (`specbench run`)."
    ),
    evaluate=_evaluate,
)
