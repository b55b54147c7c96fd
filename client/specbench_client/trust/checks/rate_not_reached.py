"""Fewer conversations a second than asked: the numbers belong to another load."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

LACKING = 0.05
ERRORS = 3.0


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    reached, asked, cv = evidence.watch.reached_rate, evidence.point.level.rate, evidence.arrival_cv
    if reached is None or asked is None or cv is None:
        return []
    expected = None if evidence.steady_s is None else asked * evidence.steady_s
    chance = ERRORS * cv / math.sqrt(expected) if expected else 0.0
    least = asked * (1 - max(LACKING, chance))
    if reached >= least:
        return []
    message = f"{reached:.3g} conversations a second were begun in the steady state, {asked:g} were asked for"
    return [Seen(Severity.INVALID, message, value=reached, threshold=least)]


CHECK: Check[PointEvidence] = Check(
    name="RateNotReached",
    severities=(Severity.INVALID,),
    says="In an open loop, fewer conversations a second began in the steady state than were asked for.",
    threshold=(
        f"{LACKING:.0%} fewer than the rate, and by more than {ERRORS:g} standard errors of the arrival process"
        " (CV / √conversations). Not looked for in traces, whose rate is their own from moment to moment"
    ),
    argument=(
        "An open loop waits for nobody, so only a client that cannot keep up, or that ran out of sockets, begins fewer."
        " Near the engine's limit 5 % of the rate is a multiple of it in waiting time."
    ),
    remedy="Give the client more CPU or more workers, or lower the rate; ask for more conversations a point.",
    look=_look,
)
