"""Checks whether a launch of an engine is unlike the others of its arm."""

from __future__ import annotations

import numpy as np
import scipy

from specbench_api.outcome.layout import launch_key
from specbench_api.outcome.provenance import FactName
from specbench_client.documents.finding import Severity
from specbench_client.metrics.time_per_token import STREAM_TPS
from specbench_client.numpy_columns import Values
from specbench_client.trust.check_type import CheckResult, CheckResults, check, list_names, name_some
from specbench_client.trust.evidence import RunEvidence

NAMED = 6
LAUNCHES_MIN = 4
FALSE_ALARMS = 0.005
OFF = 1.05
IN_COMMON = 0.5


@check(
    name="LaunchesDiffer",
    severities=(Severity.INFO,),
    threshold=(
        f"one of at least {LAUNCHES_MIN} launches of an arm with valid points at the same loads: the mean over these"
        f" loads of the log of stream_tps differs from that of the others by a factor of more than {OFF:g}, and by more"
        f" than chance explains (Student's t of the one against the others, Bonferroni over all launches: a false alarm"
        f" in at most {FALSE_ALARMS:.1%} of the runs). The other arms' launches of the same repeat differ less than"
        f" {IN_COMMON:.0%} as much in the same direction. Only if each repeat has launches of its own"
    ),
    rationale=(
        "The interval includes that launches differ, but if one alone does, its cause can be found, and may not recur."
        " With two arms it must be 46 standard deviations of the others away from them if it is one of four launches,"
        " 12 of six, 8 of eight, but 936 of three. So one that is 20 % slow is found in 21 % of the runs with four"
        " repeats and in 99 % with six if the others have a CV of 1 %, in 6 % and 53 % at 2 %. If all arms are slow in"
        " a repeat, the machine was."
    ),
    remedy=(
        "Compare the launch's file with those of the arm's other launches, and look for other work on the node at that"
        " time. If you find the cause, correct it and measure the run again; if not, keep the launch and raise"
        " load.repeats, which narrows the interval."
    ),
)
def launches_differ(evidence: RunEvidence) -> CheckResults:
    """One launch of an arm is slower or faster than its other launches."""
    apart = _launches_apart(evidence) if evidence.plan.launches_repeats else {}
    repeats = [group.points[0].repeat for group in evidence.plan.groups]
    certain = 1 - FALSE_ALARMS / 2 / max(1, sum(map(len, apart.values())))
    results = []
    for (loads, arm), launches in apart.items():
        inflation = len(launches) / (len(launches) - 1)  # each launch is a part of the mean that it is apart from
        limit = float(scipy.special.stdtrit(len(launches) - 2, certain)) * np.sqrt(inflation)
        for group, own in launches.items():
            away = float(own.mean()) * inflation
            others = [each.mean() for other, each in launches.items() if other != group]
            beside = [
                each.mean()
                for (_, other_arm), those in apart.items()
                for other, each in those.items()
                if other_arm != arm and repeats[other] == repeats[group]
            ]
            is_apart = abs(away) > max(np.log(OFF), limit * np.std(others, ddof=1))
            if is_apart and np.mean(beside or [0.0]) / own.mean() < IN_COMMON:
                speeds = zip(np.exp(own * inflation), loads, strict=True)
                by_load = name_some([f"{factor:.2f} for {load}" for factor, load in speeds], NAMED)
                files = [
                    f"{launch_key(each.launch)} (node {each.value(FactName.NODE) or 'unknown'})"
                    for each in evidence.launches
                    if each.group == group
                ]
                message = (
                    f"in repeat {repeats[group] + 1} streams were {np.exp(away):.2f} times as fast as in the"
                    f" {len(others)} other launches of this arm"
                    f" ({by_load}); the interval includes it"
                    f"{f': see {list_names(files)}' if files else ''}"
                )
                results.append(CheckResult(Severity.INFO, message, value=np.exp(abs(away)), threshold=OFF, arm=arm))
    return results


def _launches_apart(evidence: RunEvidence) -> dict[tuple[tuple[str, ...], str], dict[int, Values]]:
    """Return the logs of stream_tps of launches minus their means, each of shape (loads,), by loads and arm, and group.

    The loads are those at which a launch has valid points. Only where enough launches of the arm have the same.
    """
    valid = {
        point.hash: point.value(STREAM_TPS.name)
        for point in evidence.summaries
        if all(finding.severity is not Severity.INVALID for finding in point.findings)
    }
    found: dict[tuple[tuple[str, ...], str], dict[int, Values]] = {}
    for group in evidence.plan.groups:
        speeds = {
            f"{point.workload} at {point.level.label}": speed
            for point in group.points
            if (speed := valid.get(point.hash) or 0.0) > 0
        }
        found.setdefault((tuple(speeds), group.arm), {})[group.index] = np.log(list(speeds.values()))
    return {
        (loads, arm): {group: each - np.mean(list(launches.values()), axis=0) for group, each in launches.items()}
        for (loads, arm), launches in found.items()
        if loads and len(launches) >= LAUNCHES_MIN
    }
