"""Checks whether the engines of all arms are alike, real, and did not restart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from pydantic import JsonValue

from specbench_api.outcome.provenance import FACTS, FactComparability, FactName, LaunchRecord
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import RESEARCH_RUNTIME, EngineKind
from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.recognition import server_address
from specbench_client.dialects.registry import dialect_of
from specbench_client.documents.finding import Severity
from specbench_client.documents.summary import ArmEnvironment, PointSummary
from specbench_client.trust.check_type import CheckResult, CheckResults, check, list_names, name_some
from specbench_client.trust.evidence import PointEvidence, RunEvidence


@check(
    name="EngineRestarted",
    severities=(Severity.INVALID,),
    threshold="any",
    rationale=(
        "Counters only increase while an engine process lives. Several processes behind one address answer in turn, so"
        " counters are read until the process of the earlier ones answers; one that has restarted does not come back."
    ),
    remedy="Find out why the engine restarted (memory limit, probes), and measure again.",
)
def engine_restarted(evidence: PointEvidence) -> CheckResults:
    """A counter of the engine decreased within the point, or its process started later than the one before."""
    if evidence.counters is None or not evidence.counters.restarted:
        return []
    message = (
        "the engine restarted within the point and lost its warm-up and its caches: a counter decreased, or its process"
        " started later than the one before"
    )
    return [CheckResult(Severity.INVALID, message)]


LOST_FROM = 0.10
_LENGTHS = ("input_tokens_mean", "output_tokens_mean")


@check(
    name="KvCacheReduced",
    severities=(Severity.INFO,),
    threshold=f"{LOST_FROM:.0%} of the baseline's KV cache in tokens; both are medians over an arm's launches",
    rationale=(
        "Where the cache is full, an engine runs correspondingly fewer requests at a time, and the throughput of a"
        " memory-bound engine falls by up to as much: a tenth is all that EAGLE-3 is published to gain in some"
        " settings at 128 streams (1.10). The threshold also separates drafters: an EAGLE head takes less than a tenth;"
        " a 0.6B draft model next to an 8B target makes the cache per token 1.77 times as large, which loses 44 %. A"
        " cache that is not full costs nothing, so the severity is Info."
    ),
    remedy=(
        "Measure your service's load too (of load.concurrency or load.rate, whichever this run has), with long"
        " prompts: the speed-up there includes the loss."
    ),
)
def kv_cache_reduced(evidence: RunEvidence) -> CheckResults:
    """A drafter's weights and its own cache leave the engine less KV cache for requests than the baseline has."""
    found = [
        _of_arm(each, [point for point in evidence.summaries if point.arm == each.arm])
        for each in evidence.arm_environments
    ]
    return [result for result in found if result is not None]


def _of_arm(environment: ArmEnvironment, points: Sequence[PointSummary]) -> CheckResult | None:
    lost = environment.kv_cache_lost.value if environment.kv_cache_lost else None
    if lost is None or lost < LOST_FROM:
        return None
    tokens_left = environment.facts[FactName.KV_CACHE_TOKENS].number
    left = "" if tokens_left is None else f", {tokens_left:,.0f} tokens are left"
    message = f"this arm has {lost:.0%} less KV cache than the baseline{left}{_effect(tokens_left, points)}"
    return CheckResult(Severity.INFO, message, value=lost, threshold=LOST_FROM, arm=environment.arm)


def _effect(tokens_left: float | None, points: Sequence[PointSummary]) -> str:
    """State whether the highest load fills the remaining cache; empty if that is not known."""
    needed = max((each for point in points if (each := _needed(point)) is not None), default=None)
    if needed is None or tokens_left is None:
        return ""
    if needed < tokens_left:
        return f"; the highest load needs about {needed:,.0f}: no speed-up of this run includes the cost of the loss"
    return f"; the highest load needs about {needed:,.0f}: its speed-ups include the cost of the loss"


def _needed(point: PointSummary) -> float | None:
    """Tokens of prompts and answers that the requests in flight need when they end; None if it is not known."""
    in_flight = point.level.concurrency or point.client_health.reached_concurrency
    lengths = [figure.value for name in _LENGTHS if (figure := point.figures.get(name)) and figure.value is not None]
    return in_flight * sum(lengths) if in_flight and len(lengths) == len(_LENGTHS) else None


@check(
    name="ArmSpecificArguments",
    severities=(Severity.INFO,),
    threshold="1 argument",
    rationale="The effect of an argument that only one arm has cannot be separated from the effect of its drafter.",
    remedy="Move arguments that do not configure the drafter to engine.args, so that all arms have them.",
)
def arm_specific_arguments(evidence: RunEvidence) -> CheckResults:
    """An arm has arguments that the baseline does not have."""
    return [
        CheckResult(
            Severity.INFO,
            f"arm {arm.name!r} has arguments that the baseline lacks: its speed-up includes their effect:"
            f" {' '.join(arm.drafter.args)}",
            value=len(arm.drafter.args),
            threshold=1,
            arm=arm.name,
        )
        for arm in evidence.plan.arms
        if arm.drafter and arm.drafter.args
    ]


NAMED = 8
"""Maximum number of arguments listed in one finding."""
LONGEST = 60
"""Maximum number of characters shown of one value."""
_OWN = re.compile(r"^spec(ulative)?_|(^|_)(host|port|addr|seed|pid)$")
"""Arguments of the drafter, and of the process: its listening address, and the seed it draws if none is set."""
KEPT_TURNS = 4
"""Turns with one name before a change and with the other one after it. Two servers that answer by chance are as orderly
in less than 1 % of the runs."""
_SEVERITIES = {FactComparability.MUST: Severity.WARNING, FactComparability.NOTED: Severity.INFO}


@check(
    name="ArmEnvironmentsDiffer",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=(
        "two values of a fact that must be equal, two names of the model at endpoints that do not report what they"
        " loaded, or one change of the model or system fingerprint in the first answers of an endpoint's turns, with"
        f" {KEPT_TURNS} turns or more on each side (Warning), or two values of the node, the kernel, the sampling of"
        " drafts or an argument (Info)"
    ),
    rationale=(
        "An engine may change its limits, kernels or graphs because a drafter is configured, and a cluster may"
        " choose another node or image: the speed-up then measures both. What only the drafter changes, such as the"
        " size of the KV cache, is shown but not compared."
    ),
    remedy="Set the value for all arms in engine.args, or pin the image and the nodes in the spec, and measure again.",
)
def arm_environments_differ(evidence: RunEvidence) -> CheckResults:
    """The recorded environment of the launches differs in more than the drafter."""
    facts = [result for name in FACTS if (result := _fact(name, evidence.launches))]
    plan = evidence.plan
    if any(launch.value(FactName.MODEL) is None for launch in evidence.launches):
        facts += _served_models(plan)
    if plan.engine.is_external:
        facts += [result for arm in plan.arms for result in _replaced(evidence, arm.name)]
    return [*facts, *_arguments(evidence.launches, [dialect_of(plan.engine_of(arm)) for arm in plan.arms])]


def _fact(name: FactName, launches: Sequence[LaunchRecord]) -> CheckResult | None:
    """Compare one fact over all launches; launches that do not report it are ignored."""
    severity = _SEVERITIES.get(FACTS[name].comparability)
    reported = [(launch.arm, value) for launch in launches if (value := launch.value(name)) is not None]
    values = _by_value(reported)
    if severity is None or len(values) < 2:
        return None
    return CheckResult(
        severity, f"{name} is not the same in all launches: {_format_values(values)}", value=len(values), threshold=2
    )


def _replaced(evidence: RunEvidence, arm: str) -> Iterator[CheckResult]:
    """Yield the turn of an endpoint from which on another server answers, if it changed only once."""
    launches = sorted((each for each in evidence.launches if each.arm == arm), key=lambda each: each.queried_at)
    served = [(each.queried_at, value) for each in launches if (value := each.value(FactName.SERVED_BY)) is not None]
    changes = [turn for turn in range(1, len(served)) if served[turn][1] != served[turn - 1][1]]
    if len(changes) == 1 and KEPT_TURNS <= changes[0] <= len(served) - KEPT_TURNS:
        since, name = served[changes[0]]
        message = (
            f"from {since} on, {name} gives the first answer of a turn, and {served[0][1]} before: the server was"
            " replaced, or several answer at this address"
        )
        yield CheckResult(
            Severity.WARNING, message, value=min(changes[0], len(served) - changes[0]), threshold=KEPT_TURNS, arm=arm
        )


def _served_models(plan: Plan) -> CheckResults:
    """Compare the names under which endpoints serve their models, for servers that do not report what they loaded."""
    served = [(arm.name, arm.endpoint.model or plan.target.name) for arm in plan.arms if arm.endpoint]
    values = _by_value(served)
    if len(values) < 2:
        return []
    message = f"the endpoints serve models of different names: {_format_values(values)}"
    return [CheckResult(Severity.WARNING, message, value=len(values), threshold=2)]


def _arguments(launches: Sequence[LaunchRecord], dialects: Iterable[Dialect]) -> CheckResults:
    """Compare all other arguments in one Info finding, because many of them follow from the drafter.

    Which of them do is left to the reader.
    """
    reported = [
        (launch.arm, arguments)
        for launch in launches
        if isinstance(arguments := launch.value(FactName.ARGUMENTS), dict)
    ]
    compared = {key for dialect in dialects for key in _compared(dialect)}
    keys = dict.fromkeys(
        key for _, arguments in reported for key in arguments if not _OWN.search(key) and key not in compared
    )
    values_by_key = {key: _by_value((arm, arguments.get(key)) for arm, arguments in reported) for key in keys}
    differing = {key: values for key, values in values_by_key.items() if len(values) > 1}
    if not differing:
        return []
    named = name_some([f"{key} ({_format_values(values)})" for key, values in differing.items()], NAMED, "; ")
    message = f"effective arguments are not the same in all launches: {named}"
    return [CheckResult(Severity.INFO, message, value=len(differing), threshold=1)]


def _compared(dialect: Dialect) -> set[str | int]:
    """Keys of the arguments that are compared as facts of their own."""
    return {
        reading.keys[0]
        for reading in dialect.readings
        if reading.keys and FACTS[reading.fact].comparability is not FactComparability.FREE
    }


def _by_value(reported: Iterable[tuple[str, JsonValue]]) -> dict[str, list[str]]:
    """Each value as JSON, with the arms that have it."""
    found: dict[str, list[str]] = {}
    for arm, value in reported:
        arms = found.setdefault(json.dumps(value, sort_keys=True, ensure_ascii=False), [])
        if arm not in arms:
            arms.append(arm)
    return found


def _format_values(values: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{_short(value)} on {list_names(arms)}" for value, arms in values.items())


def _short(value: str) -> str:
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"


@check(
    name="Simulated",
    severities=(Severity.INFO,),
    threshold="any simulated point",
    rationale="Simulated times and acceptances are configured, not measured.",
    remedy="Measure a real engine in the same way.",
)
def simulated(evidence: RunEvidence) -> CheckResults:
    """The engine was the simulator."""
    if not evidence.simulated:
        return []
    message = "the engine is the simulator: these numbers show that the pipeline works, and nothing about a real engine"
    return [CheckResult(Severity.INFO, message)]


@check(
    name="ResearchRuntime",
    severities=(Severity.INFO,),
    threshold="engine kind transformers, or an endpoint whose reported version is that of our research runtime",
    rationale=(
        "It answers one request at a time and spends most of a step in Python, which a drafter saves too: its"
        " acceptance is the model's, but its speed-up is valid for no other engine."
    ),
    remedy="Use its acceptance, and measure the speed-up on the engine that you will deploy.",
)
def runs_on_research_runtime(evidence: RunEvidence) -> CheckResults:
    """The engine was a research runtime."""
    if evidence.plan.engine.kind is not EngineKind.TRANSFORMERS and not _reports_research_runtime(evidence.launches):
        return []
    message = (
        "the engine is transformers, a research runtime: it does not batch, and its step times are not those of a"
        " serving engine"
    )
    return [CheckResult(Severity.INFO, message)]


def _reports_research_runtime(launches: Sequence[LaunchRecord]) -> bool:
    """Whether an external endpoint reports the version of our research runtime."""
    versions = [launch.value(FactName.ENGINE_VERSION) for launch in launches]
    return any(RESEARCH_RUNTIME in version for version in versions if isinstance(version, str))


@check(
    name="EndpointsShareHost",
    severities=(Severity.INFO,),
    threshold="2 endpoints",
    rationale=(
        "Only the server whose turn it is gets requests from this run, so two servers on one GPU do not compete for it"
        " here; but they divide its memory, and a server that is in use elsewhere takes its time. Servers without a GPU"
        " share cores and memory bandwidth in the same way. What they share cannot be seen from outside."
    ),
    remedy=(
        "Give each server a GPU of its own (CUDA_VISIBLE_DEVICES), or cores of its own (taskset), and send no other"
        " traffic to either of them."
    ),
)
def endpoints_share_a_host(evidence: RunEvidence) -> CheckResults:
    """Running servers that are compared have the same host in their URLs."""
    if evidence.plan.engine.is_imported:
        return []
    together: dict[str, dict[str, str | None]] = {}
    for arm in evidence.plan.arms:
        if arm.endpoint:
            name = "the baseline" if arm.is_baseline else arm.name  # `none` would be misread
            url = arm.endpoint.address
            together.setdefault(server_address(url)[0], {})[name] = urlsplit(url).hostname
    return [
        CheckResult(
            Severity.INFO,
            f"{list_names(list(hosts))} answer at the same host, {list_names(sorted({*map(str, hosts.values())}))}: if"
            " they share a GPU, or cores and memory, each has less of it than alone, and any other traffic to one slows"
            " the others",
            value=len(hosts),
            threshold=2,
        )
        for hosts in together.values()
        if len(hosts) > 1
    ]
