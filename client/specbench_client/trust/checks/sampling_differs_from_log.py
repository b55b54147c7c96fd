"""Logged requests sent with a different temperature or token limit than in the log, which changes their answers."""

from __future__ import annotations

from collections.abc import Iterator

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.prompt_coverage import RequestLogStats
from specbench_api.spec.workload import Workload
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence

SHARE = 0.5


def _evaluate(evidence: RunEvidence) -> CheckResults:
    return [
        CheckResult(Severity.INFO, f"workload {name!r}: {difference}", value=value, threshold=SHARE, workload=name)
        for name, coverage in evidence.coverage.items()
        if coverage.recorded is not None
        for difference, value in _differences(evidence.plan.workload(name), coverage.recorded)
    ]


def _differences(workload: Workload, recorded: RequestLogStats) -> Iterator[tuple[str, float]]:
    """Yield each difference from the log, with the share of requests that it affects or its factor."""
    requests = sum(recorded.temperatures.values())
    ours = f"{workload.sampling.temperature:g}"
    others = requests - recorded.temperatures.get(ours, 0) - recorded.temperatures.get("default", 0)
    if requests and others / requests > SHARE:
        usual = max(recorded.temperatures, key=lambda value: recorded.temperatures[value])
        yield (
            f"{others} of {requests} logged requests have a temperature other than {ours}, most often {usual}",
            others / requests,
        )
    length, most = recorded.output_tokens_median, workload.output.max_tokens
    if length is not None and length > most:
        yield f"the log's median answer has {length:.0f} tokens, but output.maxTokens is {most}", length / most


CHECK: Check[RunEvidence] = Check(
    name="SamplingDiffersFromLog",
    severities=(Severity.INFO,),
    description=(
        "Logged requests are sent at a different temperature than in the log, or cut before their answers' usual end."
    ),
    threshold=(
        f"more than {SHARE:.0%} of the logged temperatures differ, or the median logged answer is longer than"
        " output.maxTokens"
    ),
    rationale=(
        "Acceptance falls with temperature, and differs between the beginning and the end of an answer: requests"
        " that are sampled or cut differently are different traffic."
    ),
    remedy="Set sampling.temperature and output.maxTokens as in the log, or split the log by temperature.",
    evaluate=_evaluate,
)
