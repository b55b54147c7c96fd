"""Findings for people: one entry for each check, however many points it reported, with what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from specbench_api.plan.plan import Plan
from specbench_client.analysis.estimates.point_rows import (
    SPOILED_FROM_OUTSIDE,
    prompts_of_another_round,
    why_no_rounds_are_added,
)
from specbench_client.documents.finding import Finding, Severity, doubting_checks
from specbench_client.documents.summary import RunSummary
from specbench_client.measure_flags import MEASURED_WORKLOAD, with_flag_names
from specbench_client.store.run_uids import uid_created_ms
from specbench_client.trust.check_type import list_names
from specbench_client.trust.checks.acceptance import acceptance_without_baseline
from specbench_client.trust.checks.comparison import missing_points
from specbench_client.trust.checks.engine import simulated
from specbench_client.trust.checks.prompts import prompts_sent_again
from specbench_client.trust.registry import CHECK_BY_NAME, rank

SHOWN = 4
_KEPT = "Stored points are reused. To measure again,"
AGAIN_HERE = f"{_KEPT} repeat the same command with `--new`."
AGAIN_ON_A_CLUSTER = f"{_KEPT} create the SpecBenchRun under another name, or delete it and create it again."
AGAIN_WITH_RETRIES = (
    "Delete the SpecBenchRun and create it again with `results.adopt: {}` and `retries: {}`, which measures only the"
    " repeats again that this spoiled."
)
AGAIN_ELSEWHERE = "To measure again, repeat the benchmark that wrote the files, and import all of them."
AGAIN_AT_AN_ENDPOINT = "To measure again, repeat the same command; earlier results are kept."


@dataclass(frozen=True)
class FindingGroup:
    """All findings of one check with one severity."""

    check: str
    severity: Severity
    location: str
    """Where the worst one is: arm, workload and load, as far as it names them; else empty."""
    messages: tuple[str, ...]
    """Each after its location, the worst first."""
    hidden: int
    remedy: str
    """Empty if the group of another severity before it has it."""
    points: int
    """Number of points with such a finding; 0 if it concerns cells or the whole run."""

    @property
    def more(self) -> str:
        """In how many more points it was found, or how many messages follow the first one; empty for none."""
        if self.points > 1:
            return f" (and in {self.points - 1} more point{'s' if self.points > 2 else ''})"
        others = len(self.messages) - 1 + self.hidden
        return f" (and {others} more)" if others else ""

    @property
    def text(self) -> str:
        """The check with its first message."""
        return f"{self.severity} {self.check}{', ' if self.location else ': '}{self.messages[0]}{self.more}"


def measure_again(plan: Plan) -> str:
    """How to measure again, which depends on where and how this run was measured."""
    if not uid_created_ms(plan.uid):
        return AGAIN_ON_A_CLUSTER
    if plan.engine.is_imported:
        return AGAIN_ELSEWHERE
    return AGAIN_AT_AN_ENDPOINT if _is_of_measure(plan) else AGAIN_HERE


def _retry(plan: Plan) -> str:
    """How to measure only the repeats again that something outside of the servers spoiled, if this run can do so."""
    if plan.engine.is_imported or why_no_rounds_are_added(plan):
        return measure_again(plan)
    if not uid_created_ms(plan.uid):
        return AGAIN_WITH_RETRIES.format(plan.uid, plan.added_rounds + 1)
    return "Repeat the same command with `--retry-invalid`, which measures only the repeats again that this spoiled."


def failure_lines(summary: RunSummary) -> list[str]:
    """Return why engines failed, one line for each cause."""
    arms: dict[str, list[str]] = {}
    for arm, cause in summary.failures.items():
        arms.setdefault(cause, []).append(arm)
    return [f"{list_names(names)} failed: {cause}" for cause, names in arms.items()]


def continue_run(plan: Plan) -> str:
    """How to measure only the missing points."""
    if not uid_created_ms(plan.uid) or plan.engine.is_imported:
        return measure_again(plan)
    return "Repeat the command that measured it: only the missing points are measured."


def points_are(plan: Plan, count: int) -> str:
    """Return `2 of 12 points are`, to be followed by what they are; a run with a stop rule may need fewer."""
    most = "" if plan.stop is None else "at most "
    return f"{count} of {most}{len(plan.points)} points {'is' if count == 1 else 'are'}"


def unfinished_run(plan: Plan, measured: int) -> tuple[str, str]:
    """Return the state of a run of which not every point is measured, in a sentence, and what to do next."""
    count = f"{points_are(plan, measured)} measured."
    if uid_created_ms(plan.uid):
        return f"Interrupted: {count}", continue_run(plan)
    command = f"`kubectl get sbr {plan.name} --namespace {plan.namespace}`"
    return f"Not finished: {count}", f"{command} shows whether the run is in progress."


def _is_of_measure(plan: Plan) -> bool:
    """Return whether the run was measured with the flags of `specbench measure`, not with fields of a spec."""
    of_flags = [workload.name for workload in plan.workloads] == [MEASURED_WORKLOAD]
    return bool(uid_created_ms(plan.uid)) and plan.engine.is_external and not plan.engine.is_imported and of_flags


def group_findings(plan: Plan, findings: Sequence[Finding]) -> list[FindingGroup]:
    """Group by severity and check, the worst first; findings that only follow from others come after them.

    Settings are named as the user typed them: flags of `specbench measure`, or fields of the spec.
    """
    ranked = sorted(findings, key=lambda finding: (*rank(finding), -_excess(finding)))
    groups = [
        _group(plan, list(each)) for _, each in groupby(ranked, key=lambda finding: (finding.severity, finding.check))
    ]
    explained = [group.check for group in groups]
    return [
        replace(group, remedy="" if group.check in explained[:number] else group.remedy)
        for number, group in enumerate(groups)
    ]


def _excess(finding: Finding) -> float:
    """Return how far the finding is beyond its threshold, relative to it; 0 if it has no numbers."""
    if finding.value is None or finding.threshold is None:
        return 0.0
    return abs(finding.value - finding.threshold) / (abs(finding.threshold) or 1.0)


def _group(plan: Plan, findings: list[Finding]) -> FindingGroup:
    first = findings[0]
    texts = [
        ": ".join(filter(None, (_location(plan, finding), with_settings(plan, finding.message))))
        for finding in findings
    ]
    messages = list(dict.fromkeys(texts))
    return FindingGroup(
        first.check,
        first.severity,
        _location(plan, first),
        tuple(messages[:SHOWN]),
        max(0, len(messages) - SHOWN),
        remedy_of(plan, first.check),
        len({finding.point for finding in findings if finding.point}),
    )


def remedy_of(plan: Plan, check: str) -> str:
    """Return what to do about findings of a check; empty for a check that this version does not have."""
    known = CHECK_BY_NAME.get(check)
    remedy = known.remedy_for(imported=plan.engine.is_imported, soak=plan.soaks) if known else ""
    return with_settings(plan, remedy)


def with_settings(plan: Plan, text: str) -> str:
    """Return the text with settings named as the user typed them."""
    return with_flag_names(text) if _is_of_measure(plan) else text


def _location(plan: Plan, finding: Finding) -> str:
    """Return `arm workload at load`, without the parts that the finding does not name, and without an only workload."""
    workload = finding.workload if len(plan.workloads) > 1 else None
    parts = [finding.arm, workload, f"at {finding.load}" if finding.load else None]
    return " ".join(part for part in parts if part)


def next_step(plan: Plan, summary: RunSummary, where: str) -> str:
    """The one thing to do now: correct what the headline doubts, else use the results.

    `where`: the arguments of a command that reads them.
    """
    if not summary.trustworthy:
        if summary.failures:
            return f"Correct why {list_names(list(summary.failures))} failed, as stated above. {continue_run(plan)}"
        doubts = [each for each in sorted(summary.findings, key=rank) if each.severity.is_doubt]
        worst = next(iter(doubting_checks(doubts)), missing_points.name)
        if worst == missing_points.name:
            return continue_run(plan)  # How to measure everything again would contradict it.
        found = [each for each in doubts if each.check == worst]
        again = _retry(plan) if any(_is_replaceable(plan, summary, each) for each in found) else measure_again(plan)
        if worst != prompts_sent_again.name or again != measure_again(plan):
            return f"Correct what {worst} reports. {again}"
        how = "give more prompts, restart the servers if an earlier run sent these, or set promptCache: Disabled"
        how = with_settings(plan, how)
        if plan.stop is None and any(each.point for each in found):
            needed = prompts_of_another_round(plan)
            how = f"restart the servers, or give {'' if math.isinf(needed) else f'{needed:g} '}other prompts"
        return f"Correct what {worst} reports: {how}. {again}"
    if summary.simulated:
        return simulated.remedy
    decide = f"`specbench decide {where}` recommends an arm for latency targets, prices and constraints of your own."
    return decide if plan.has_baseline else remedy_of(plan, acceptance_without_baseline.name)


def _is_replaceable(plan: Plan, summary: RunSummary, doubt: Finding) -> bool:
    """Return whether another round may replace that of a point that something outside of the servers spoiled.

    After an interruption, prompts of a single point were sent again: then it needs new ones.
    """
    sent_again = {each.point for each in summary.findings if each.check == prompts_sent_again.name}
    coverage = summary.coverage.get(doubt.workload or "")
    is_interrupted = doubt.check == prompts_sent_again.name and doubt.point is not None
    is_spoiled = is_interrupted or (doubt.check in SPOILED_FROM_OUTSIDE and doubt.severity is Severity.INVALID)
    has_prompts = coverage is not None and prompts_of_another_round(plan) <= coverage.used
    return is_spoiled and (doubt.point not in sent_again or has_prompts)
