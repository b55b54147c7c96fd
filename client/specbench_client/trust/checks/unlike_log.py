"""Requests of a log, sent at another temperature or with another limit than they were: other answers than its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specbench_api.outcome.coverage import Recorded
from specbench_api.outcome.finding import Severity
from specbench_api.spec.workload import Workload
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

SHARE = 0.5


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    return [
        Seen(Severity.NOTE, f"workload {name!r}: {difference}", value=value, threshold=SHARE, workload=name)
        for name, coverage in evidence.coverage.items()
        if coverage.recorded is not None
        for difference, value in _differences(evidence.plan.workload(name), coverage.recorded)
    ]


def _differences(workload: Workload, recorded: Recorded) -> Iterator[tuple[str, float]]:
    """What is unlike the log, and in how large a share of its requests, or by how much."""
    requests = sum(recorded.temperatures.values())
    ours = f"{workload.sampling.temperature:g}"
    others = requests - recorded.temperatures.get(ours, 0) - recorded.temperatures.get("default", 0)
    if requests and others / requests > SHARE:
        usual = max(recorded.temperatures, key=lambda value: recorded.temperatures[value])
        yield (
            f"{others} of {requests} logged requests had a temperature other than {ours}, most {usual}",
            others / requests,
        )
    length, most = recorded.output_tokens_median, workload.output.max_tokens
    if length is not None and length > most:
        yield f"the log's median answer has {length:.0f} tokens, and output.maxTokens is {most}", length / most


CHECK: Check[RunEvidence] = Check(
    name="UnlikeLog",
    severities=(Severity.NOTE,),
    says="Logged requests are sent at another temperature than they had, or cut before their answers' usual end.",
    threshold=f"more than {SHARE:.0%} of the logged temperatures are others, or the median logged answer is longer than"
    " output.maxTokens",
    argument=(
        "Acceptance falls with temperature, and differs between the beginning of an answer and its end: traffic that is"
        " sampled or cut otherwise is other traffic."
    ),
    remedy="Set sampling.temperature and output.maxTokens as the log has them, or split it by temperature.",
    look=_look,
)
