"""Trust checks of whole runs and of the client."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome.provenance import FACTS, FactComparability, FactName, LaunchRecord
from specbench_api.plan.plan import Arm, Point
from specbench_api.spec.engine import DialectName, Endpoint
from specbench_client.analysis.estimates.cell_figures import SampleRows, figures_of, with_counted_acceptance
from specbench_client.analysis.estimates.point_rows import load_rows
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.analysis.summary.trends import with_divided_rounds
from specbench_client.documents.figure import Figure
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.prompt_coverage import CategoryCoverage, PromptCoverage
from specbench_client.documents.summary import ClientHealth, CounterDeltas, PointSummary
from specbench_client.metrics.late_sends import late_figures
from specbench_client.metrics.latency import E2E_MS, TTFT_MS
from specbench_client.metrics.metric_types import SENT_LATE
from specbench_client.metrics.rows import POINT, has_text
from specbench_client.metrics.tidy_frame import steady_rows
from specbench_client.metrics.time_per_token import TPOT_MS
from specbench_client.trust import checks
from specbench_client.trust.check_type import Check, CheckResult, list_names
from specbench_client.trust.checks import engine
from specbench_client.trust.checks.engine import endpoints_share_a_host
from specbench_client.trust.checks.launches import launches_differ
from specbench_client.trust.checks.prompts import too_few_prompts
from specbench_client.trust.evidence import RunEvidence
from specbench_client.trust.registry import ANSWER_CHECKS, CELL_CHECKS, CHECK_BY_NAME, POINT_CHECKS, RUN_CHECKS
from specbench_testing.corrupted_records import (
    OPEN,
    WORLD,
    check_names,
    combine,
    findings_of,
    replace_columns,
    replace_counters,
    replace_watch,
    undeclared_drafter,
)
from specbench_testing.long_cases import long_after
from specbench_testing.observed_launches import observed_launch
from specbench_testing.present import present
from specbench_testing.resources import external_engine
from specbench_testing.synthetic_records import (
    NS_PER_MS,
    ONE,
    Corruptions,
    SyntheticRun,
    point_of,
    record_table,
    run_findings,
    run_of_world,
    tidy_frames,
)

INVALID, WARNING, INFO = Severity.INVALID, Severity.WARNING, Severity.INFO
NO_BASELINE = {"spec.baseline": "Skip"}
DRAFTING_COLUMNS = ("steps", "draft_steps", "drafted_tokens", "accepted_tokens", "step_accepted", "acceptance_source")
ALL: tuple[Check[Any], ...] = (*POINT_CHECKS, *CELL_CHECKS, *ANSWER_CHECKS, *RUN_CHECKS)


def found(world: SyntheticRun, corruptions: Corruptions | None = None) -> list[tuple[str, Severity]]:
    return [(finding.check, finding.severity) for finding in run_findings(world, corruptions or Corruptions())]


def small(**edits: Any) -> SyntheticRun:
    return SyntheticRun(prompts=20, categories=ONE, edits=edits)


SEQUENTIAL = {"concurrency": [1], "repeats": 3, "order": "Sequential"}


def of_version(version: str | None) -> Corruptions:
    return Corruptions(launches=(observed_launch("none", 0, engine_version=version),))


def stamped(share: float | None) -> Corruptions:
    return Corruptions(watch=lambda _, seen: seen.model_copy(update={"kernel_clock_share": share}))


LOSSY = {"spec.engine": {"kind": "vllm"}, "spec.drafters[0].speculativeConfig": {"rejection_sample_method": "fly"}}
NATURAL_END = {"spec.workloads[0].output": {"maxTokens": 80, "ignoreEos": True}}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("world", "corruptions", "expected"),
    [
        (small(), None, []),
        (small(**{"spec.drafters": []}), None, []),
        (small(**NO_BASELINE), None, [("AcceptanceWithoutBaseline", INFO)]),
        (small(**{"spec.load": SEQUENTIAL}), None, [("NotInterleaved", INFO)]),
        # Nothing to interleave.
        (small(**{"spec.load": SEQUENTIAL}, **NO_BASELINE), None, [("AcceptanceWithoutBaseline", INFO)]),
        (small(**{"spec.load": {**SEQUENTIAL, "repeats": 1}}), None, [("TooFewRepeats", WARNING)]),
        (replace(small(**{"spec.drafters": []}), repeats=1), None, [("TooFewRepeats", INFO)]),
        (
            replace(small(**NO_BASELINE), repeats=1),
            None,
            [("AcceptanceWithoutBaseline", INFO), ("TooFewRepeats", INFO)],
        ),
        (small(**NATURAL_END), None, [("IgnoreEos", INFO)]),
        (small(**{"spec.engine": {"kind": "transformers"}}), None, [("ResearchRuntime", INFO)]),
        (small(**LOSSY), None, [("LossyVerification", INFO)]),
        (SyntheticRun(prompts=4, categories=ONE), None, [("TooFewPrompts", WARNING)]),
        (SyntheticRun(prompts=12, categories=ONE), None, [("TooFewPrompts", INFO)]),
        (small(), of_version("transformers-5.19.0 (research runtime)"), [("ResearchRuntime", INFO)]),
        (small(), of_version("0.33.0"), []),
        (small(), of_version(None), []),
        (small(), stamped(1.0), []),
        (small(), stamped(0.4), [("UserSpaceTimestamps", INFO)]),
        (small(), stamped(None), []),
        (small(), Corruptions(simulated=True), [("Simulated", INFO)]),
    ],
)
def test_findings_of_a_run(
    world: SyntheticRun, corruptions: Corruptions | None, expected: list[tuple[str, Severity]]
) -> None:
    assert sorted(found(world, corruptions)) == sorted(expected)


def coverage_of(rows: int, rare: int) -> PromptCoverage:
    by_category = [CategoryCoverage(category=each, requested=rare, used=rare, turns=rare) for each in ("chat", "code")]
    return PromptCoverage(rows=rows, requested=rows, used=rows, turns=rows, source="jsonl", by_category=by_category)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("load", "rows", "rare", "limits"),
    [
        ({"requests": 8}, 60, 30, [["load.requests"], ["load.requests"]]),
        ({"requestsPerStream": 8}, 20, 10, [["load.requestsPerStream"], ["load.requestsPerStream"]]),
        ({"requests": 8}, 19, 5, [[], ["load.requests"]]),  # too few for the workload, but more than were sent
        ({"requests": 8}, 60, 4, [[], ["load.requests"]]),  # the dataset itself has too few of the categories
        ({"requests": 8}, 8, 4, [[], []]),
        ({}, 60, 30, [[], []]),
    ],
)
def test_few_prompts_of_workload_or_categories_name_what_limits_them(
    load: dict[str, int], rows: int, rare: int, limits: list[list[str]]
) -> None:
    world = SyntheticRun(prompts=8, edits={"spec.load": {"concurrency": [1], **load}})
    assert limits == sorted(
        re.findall(r"load\.\w+", each.message)
        for each in run_findings(world, Corruptions(coverage={"chat": coverage_of(rows, rare)}))
        if each.check == "TooFewPrompts"
    )


@pytest.mark.runs
@pytest.mark.parametrize(
    ("rows", "limits"),
    [(8, set()), (24, {"12 requests failed"}), (60, {"load.requests", "12 requests failed"})],
)
def test_few_prompts_name_failed_requests_instead_of_a_setting_that_sends_all(rows: int, limits: set[str]) -> None:
    world = SyntheticRun(prompts=24, edits={"spec.load": {"concurrency": [1], "requests": 24}})
    failed = replace_columns(error_class=lambda index, _: "reset" if index in (10, 20) else None)  # of each of 6 points
    evidence = RunEvidence(
        world.plan,
        [point_of(world, point, failed)[0] for point in world.plan.points],
        missing=[],
        prompts={"chat": 20},
        simulated=False,
        coverage={"chat": coverage_of(rows, rows // 2)},
        category_prompts={"chat": {"code": 3}},
    )
    assert [
        set(re.findall(r"load\.\w+|\d+ requests failed", each.message)) for each in too_few_prompts.evaluate(evidence)
    ] == [limits]


@pytest.mark.runs
def test_acceptance_without_a_baseline_is_info_with_the_length() -> None:
    summary = run_of_world(small(**NO_BASELINE))
    assert summary.trustworthy
    longest = present(summary.cells[0].figures["acceptance_length_emitted_pooled"].value)
    assert [each.value for each in summary.findings] == [pytest.approx(longest, rel=0.1)]

    def without_acceptance(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(**dict.fromkeys(DRAFTING_COLUMNS))

    hidden = Corruptions(records=without_acceptance, counters=lambda *_: None)
    assert "AcceptanceWithoutBaseline" not in dict(found(small(**NO_BASELINE), hidden))


@pytest.mark.runs
@pytest.mark.parametrize(
    ("repeats", "measured", "words"),
    [
        (2, {("none", 0), ("ngram", 0)}, "no load was measured more than once so far (2 repeats are planned): the"),
        (2, {("none", 0), ("none", 1), ("ngram", 0)}, "no load was measured more than twice: the"),
        (1, {("none", 0)}, "no load was measured more than once: the"),
        (2, {(arm, repeat) for arm in ("none", "ngram") for repeat in (0, 1)}, "each load was measured twice: the"),
    ],
    ids=["one of two repeats", "one arm complete", "one arm missing", "complete"],
)
def test_too_few_repeats_are_counted_as_far_as_they_were_measured(
    repeats: int, measured: set[tuple[str, int]], words: str
) -> None:
    world = SyntheticRun(prompts=20, categories=ONE, repeats=repeats)
    seen = run_findings(world, Corruptions(measured=lambda point: (point.arm, point.repeat) in measured))
    (few,) = [finding for finding in seen if finding.check == "TooFewRepeats"]
    assert few.message.startswith(words)
    assert (few.severity, few.value) == (WARNING, 1 if "once" in words else 2)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("left", "effect", "expected"),
    [
        (910_000, "", []),
        (890_000, "no speed-up of this run includes the cost", [("KvCacheReduced", INFO)]),
        (100, "its speed-ups include the cost", [("KvCacheReduced", INFO)]),
        (None, "", []),
    ],
)
def test_reduced_kv_cache_is_info_with_its_effect_on_the_loads(
    left: int | None, effect: str, expected: list[tuple[str, Severity]]
) -> None:
    launches = (
        observed_launch("none", 0, kv_cache_tokens=1_000_000),
        observed_launch("ngram", 1, kv_cache_tokens=left),
    )
    seen = run_findings(small(), Corruptions(launches=launches))
    assert [(each.check, each.severity) for each in seen] == expected
    assert all(each.arm == "ngram" and effect in each.message for each in seen)


@pytest.mark.runs
def test_arguments_of_one_arm_are_info() -> None:
    drafter = {"name": "ngram", "method": "ngram", "args": ["--seed=7"]}
    (seen,) = run_findings(small(**{"spec.drafters": [drafter]}))
    assert (seen.check, seen.arm) == ("ArmSpecificArguments", "ngram")
    assert "--seed=7" in seen.message


@pytest.mark.runs
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("gpu-1", ["the baseline and ngram answer at the same host, gpu-1"]),
        ("gpu-2", []),
    ],
)
def test_endpoints_at_one_host_are_info(host: str, expected: list[str]) -> None:
    urls = {"none": "http://gpu-1:8000", "ngram": f"http://{host}:8001"}
    arms = [Arm(name=name, endpoint=Endpoint(name=name, url=url)) for name, url in urls.items()]
    plan = small().plan.model_copy(update={"arms": arms})
    found = endpoints_share_a_host.evaluate(RunEvidence(plan, [], [], {}, simulated=False))
    assert [(each.severity, each.message.partition(":")[0]) for each in found] == [(INFO, text) for text in expected]


@pytest.mark.parametrize(
    ("names", "expected"),
    [([], ""), (["s"], "s"), (["s", "t"], "s and t"), (["s", "t", "u"], "s, t and u")],
)
def test_names_are_listed_as_in_a_sentence(names: list[str], expected: str) -> None:
    assert list_names(names) == expected


@pytest.mark.runs
def test_missing_points_are_a_warning_and_named() -> None:
    (seen,) = run_findings(small(), Corruptions(measured=lambda point: (point.arm, point.repeat) != ("ngram", 2)))
    assert (seen.check, seen.severity) == ("MissingPoints", WARNING)
    assert "1 of 6 points have no result: ngram/chat at 1, repeat 3" in seen.message


@pytest.mark.runs
@pytest.mark.draws
@pytest.mark.parametrize("seed", long_after(4, range(50)))
def test_valid_run_has_no_findings(seed: int) -> None:
    load, noise = (1, 2, 4)[seed % 3], (0.002, 0.01)[seed % 2]
    categories = (("code", "chat"), (None,))[seed % 2]
    world = SyntheticRun(20 + 3 * load, 1 + seed // 2 % 2, categories, seed=seed, concurrency=(load,), run_noise=noise)
    summary = run_of_world(world)
    assert (summary.findings, summary.trustworthy, summary.points_invalid) == ([], True, 0)


@pytest.mark.runs
@pytest.mark.draws
@pytest.mark.parametrize("seed", long_after(2, range(4)))
def test_valid_open_loop_has_only_expected_findings(seed: int) -> None:
    world = SyntheticRun(200, 1 + seed % 2, seed=seed, tokens=(10, 30), rate=(2, 8), repeats=1)
    summary = run_of_world(world)
    # Answers of 10 to 30 tokens are short.
    assert {finding.check for finding in summary.findings} == {"TooFewRepeats", "ShortAnswers"}
    assert [cell.level.label for cell in summary.cells] == ["2/s", "2/s", "8/s", "8/s"]


@pytest.mark.runs
def test_every_check_is_in_the_registry() -> None:
    modules = [
        importlib.import_module(f"{checks.__name__}.{each.name}") for each in pkgutil.iter_modules(checks.__path__)
    ]
    defined = [value.name for module in modules for value in vars(module).values() if isinstance(value, Check)]
    assert sorted(defined) == sorted(CHECK_BY_NAME)


@pytest.mark.runs
@pytest.mark.parametrize("check", ALL, ids=lambda check: str(check.name))
def test_every_check_has_a_camel_case_name_and_a_remedy(check: Any) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]{2,62}", check.name)
    assert check.severities
    assert all(text.strip() for text in (check.description, check.threshold, check.rationale, check.remedy))
    assert CHECK_BY_NAME[check.name] is check


RUNS_WORLD = SyntheticRun(prompts=20, categories=ONE)
SGLANG = SyntheticRun(prompts=20, categories=ONE, edits={"spec.engine.dialect": "sglang"})


def differ(*launches: LaunchRecord, world: SyntheticRun = RUNS_WORLD) -> Sequence[CheckResult]:
    return engine.arm_environments_differ.evaluate(
        RunEvidence(world.plan, [], [], {}, simulated=False, launches=launches)
    )


def pair(one: dict[str, Any], other: dict[str, Any], world: SyntheticRun = RUNS_WORLD) -> Sequence[CheckResult]:
    return differ(observed_launch("none", 0, **one), observed_launch("ngram", 1, **other), world=world)


@pytest.mark.runs
def test_run_whose_launches_differ_is_untrustworthy() -> None:
    launches = (observed_launch("none", 0, dtype="float16"), observed_launch("ngram", 1, dtype="bfloat16"))
    summary = run_of_world(RUNS_WORLD, Corruptions(launches=launches))
    assert [(finding.check, finding.severity) for finding in summary.findings] == [
        ("ArmEnvironmentsDiffer", Severity.WARNING)
    ]
    assert not summary.trustworthy


@pytest.mark.parametrize(
    ("served", "changed"),
    [
        ("aaaaaaaa", None),
        ("aaaabbbb", 4),
        ("aaaaabbbb", 5),
        ("aaaabbb", None),
        ("aaabbbb", None),
        ("aabb", None),
        ("aaaabbbbcccc", None),
        ("aaaabbbbaaaa", None),
        ("abababab", None),
        ("aaaab---bbb", 4),
        ("aaaa---bbbb", 7),
        ("--------", None),
    ],
)
def test_endpoint_that_is_replaced_between_its_turns_is_named_with_the_time(served: str, changed: int | None) -> None:
    """Several servers behind one address answer by chance; `-`: an answer does not name its server.

    A plan that was extended has given its groups new indices, so only the times of the launches are in order.
    """
    world = SyntheticRun(prompts=6, concurrency=(1,), repeats=4)
    arms = [
        Arm(name=name, endpoint=Endpoint(name=name, url=f"http://{name}:80", model="m")) for name in ("none", "ngram")
    ]
    launches = [
        observed_launch("ngram", turn, served_by=None if name == "-" else name).model_copy(update={"group": -turn})
        for turn, name in enumerate(served)
    ]
    changes = {"engine": external_engine(DialectName.OPENAI), "arms": arms}
    plan = world.plan.model_copy(update=changes)
    evidence = RunEvidence(plan, [], [], {}, simulated=False, launches=launches)
    found = [each for each in engine.arm_environments_differ.evaluate(evidence) if each.arm == "ngram"]
    times = [] if changed is None else [launches[changed].queried_at]
    assert [(each.severity, each.message.split()[1]) for each in found] == [(WARNING, time) for time in times]
    managed = replace(evidence, plan=world.plan)
    assert [each for each in engine.arm_environments_differ.evaluate(managed) if each.arm == "ngram"] == []


@pytest.mark.runs
@pytest.mark.parametrize(("root", "expected"), [(None, [Severity.WARNING]), ("acme/tiny", [])])
def test_endpoints_with_other_names_of_models_are_a_warning(root: str | None, expected: list[Severity]) -> None:
    """A server that reports what it loaded may call it as it likes; of another, the name is all that is known."""
    arms = [
        Arm(name=name, endpoint=Endpoint(name=name, url=f"http://{name}:8000", model=model))
        for name, model in (("none", "tiny"), ("ngram", "large"))
    ]
    launches = (observed_launch("none", 0, model=root), observed_launch("ngram", 1, model=root))
    plan = RUNS_WORLD.plan.model_copy(update={"arms": arms})
    found = engine.arm_environments_differ.evaluate(RunEvidence(plan, [], [], {}, simulated=False, launches=launches))
    assert [each.severity for each in found] == expected


@pytest.mark.runs
@pytest.mark.parametrize("name", [name for name in FACTS if FACTS[name].comparability is FactComparability.MUST])
def test_differing_required_fact_is_a_warning_with_values_and_arms(name: FactName) -> None:
    (finding,) = pair({name.value: "a"}, {name.value: "b"})
    assert (finding.severity, finding.value) == (Severity.WARNING, 2)
    assert finding.message == f'{name} is not the same in all launches: "a" on none, "b" on ngram'


@pytest.mark.runs
def test_facts_that_a_drafter_changes_are_not_reported() -> None:
    taken = {name.value: 1 for name in FACTS if FACTS[name].comparability is FactComparability.FREE}
    assert {"kv_cache_tokens", "gpu_memory_used_bytes", "drafter_at_work", "started"} <= set(taken)
    assert list(pair(taken, dict.fromkeys(taken, 2))) == []


@pytest.mark.runs
def test_launches_of_one_arm_are_compared_too() -> None:
    (finding,) = differ(*(observed_launch("none", number, driver=version) for number, version in enumerate("112")))
    assert finding.message == 'driver is not the same in all launches: "1" on none, "2" on none'


@pytest.mark.runs
def test_arguments_are_compared_except_those_of_drafter_and_process() -> None:
    own = {"speculative_algorithm": None, "spec_x": 1, "port": 30000, "nccl_port": 1, "random_seed": 7, "host": "a"}
    others = dict.fromkeys(own, "other")
    (finding,) = pair(
        {"arguments": {**own, "page_size": 1, "mem_fraction_static": 0.9, "tp_size": 2}},
        {"arguments": {**others, "page_size": 64, "mem_fraction_static": 0.8, "tp_size": 2}},
        SGLANG,
    )
    assert (finding.severity, finding.value) == (Severity.INFO, 2)
    assert finding.message.endswith(
        "launches: page_size (1 on none, 64 on ngram); mem_fraction_static (0.9 on none, 0.8 on ngram)"
    )


SAME: dict[str, Any] = {"dtype": "bfloat16", "max_model_len": 4096, "prefix_cache": False, "node": "a"}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("one", "other", "world", "expected"),
    [
        (SAME, SAME, RUNS_WORLD, None),
        ({"dtype": "bfloat16"}, {"dtype": None}, RUNS_WORLD, None),
        ({"node": "gpu-1"}, {"node": "gpu-2"}, RUNS_WORLD, (Severity.INFO, '"gpu-1" on none, "gpu-2" on ngram')),
        (
            {"draft_sampling": "greedy"},
            {"draft_sampling": "probabilistic"},
            RUNS_WORLD,
            (Severity.INFO, '"greedy" on none, "probabilistic" on ngram'),
        ),
        (
            {"draft_verification": "token match"},
            {"draft_verification": "acceptance thresholds (lossy)"},
            RUNS_WORLD,
            (Severity.INFO, '"token match" on none, "acceptance thresholds (lossy)" on ngram'),
        ),
        ({"cuda_graphs": True}, {"cuda_graphs": 1}, RUNS_WORLD, (Severity.WARNING, "true on none, 1 on ngram")),
        (
            {"arguments": {"new": [1]}},
            {"arguments": {}},
            SGLANG,
            (Severity.INFO, "new ([1] on none, null on ngram)"),
        ),
        # SGLang lowers max_running_requests to 48 when it speculates, without reporting it.
        (
            {"max_running_requests": 256, "arguments": {"max_running_requests": 256}},
            {"max_running_requests": 48, "arguments": {"max_running_requests": 48}},
            SGLANG,
            (Severity.WARNING, "256 on none, 48 on ngram"),
        ),
    ],
)
def test_pair_of_launches(
    one: dict[str, Any], other: dict[str, Any], world: SyntheticRun, expected: tuple[Severity, str] | None
) -> None:
    found = pair(one, other, world)
    assert [each.severity for each in found] == ([expected[0]] if expected else [])
    assert all(expected and expected[1] in each.message for each in found)


@pytest.mark.parametrize(
    ("lag", "share", "expected"), [(400.0, 0.1, 1), (0.5, 0.95, 1), (400.0, 0.95, 2), (4.9, 0.8, 0)]
)
def test_client_that_cannot_keep_up_is_found(lag: float, share: float, expected: int) -> None:
    findings = findings_of(replace_watch(loop_lag_p99_ms=lag, cpu_share=share, kernel_clock_share=None))
    assert check_names(findings) == [("ClientSaturated", INVALID)] * expected


@pytest.mark.parametrize(("share", "expected"), [(1.0, []), (0.99, ["ClientSaturated"]), (None, ["ClientSaturated"])])
def test_a_late_event_loop_is_harmless_where_the_kernel_timestamps(share: float | None, expected: list[str]) -> None:
    found = findings_of(replace_watch(loop_lag_p99_ms=400.0, kernel_clock_share=share))
    assert [finding.check for finding in found] == expected


def test_tolerated_lateness_depends_on_the_request_time() -> None:
    long = SyntheticRun(prompts=24, concurrency=(3,), repeats=1, tokens=(400, 500))
    late = replace_watch(loop_lag_p99_ms=30.0, kernel_clock_share=None)
    assert findings_of(late, world=long) == []
    assert check_names(findings_of(late)) == [("ClientSaturated", INVALID)]


@pytest.mark.parametrize(("late", "expected"), [(4.9, 0), (30.0, 1)])
def test_open_loop_that_sends_late_is_found(late: float, expected: int) -> None:
    assert (
        check_names(findings_of(replace_watch(send_lateness_p99_ms=late), world=OPEN))
        == [("ClientSaturated", INVALID)] * expected
    )
    assert findings_of(replace_watch(send_lateness_p99_ms=late)) == [], "a closed loop has no arrivals to keep"


def test_tolerated_send_lateness_depends_on_the_gap_between_arrivals() -> None:
    def far_apart(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
        later = frame["intended_ns"] * 99
        times = ("intended_ns", "connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns")
        chunks = pd.Series([[at + by for at in each] for each, by in zip(frame["chunk_ns"], later, strict=True)])
        return frame.assign(**{name: frame[name] + later for name in times}, chunk_ns=chunks)

    long = SyntheticRun(prompts=150, rate=(10,), repeats=1, tokens=(400, 500))
    late = replace_watch(send_lateness_p99_ms=20.0)
    assert check_names(findings_of(late, world=long)) == [("ClientSaturated", INVALID)]
    assert findings_of(Corruptions(records=far_apart, watch=late.watch), world=long) == []


CLOSED_LOOP = SyntheticRun(prompts=240, concurrency=(4,), repeats=1, categories=ONE)
OPEN_LOOP = SyntheticRun(prompts=240, rate=(10,), repeats=1, categories=ONE)
SENT_TIMES = ("connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns")


def sent_late(late_ms: Callable[[int, Any], float]) -> Corruptions:
    """Send each request, by its row's number and its row, this much later; its answer keeps its pace."""

    def later(name: str) -> Callable[[int, Any], int]:
        return lambda index, row: row[name] + int(late_ms(index, row) * NS_PER_MS)

    def chunks(index: int, row: Any) -> list[int]:
        return [ns + int(late_ms(index, row) * NS_PER_MS) for ns in row["chunk_ns"]]

    return replace_columns(**{name: later(name) for name in SENT_TIMES}, chunk_ns=chunks)


def saturation(corruptions: Corruptions, world: SyntheticRun) -> list[str]:
    return [each.message for each in findings_of(corruptions, world=world) if each.check == "ClientSaturated"]


LATE = sent_late(lambda index, _: 6)
TTFT, E2E = (WARNING, "ttft_ms_mean"), (INVALID, "e2e_ms_mean")
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
OF_TAIL = {"ttft_ms_mean", "ttft_ms_p99", "e2e_ms_p99"}


@pytest.mark.parametrize(
    ("late_ms", "closed", "opened", "lost"),
    [
        (lambda index, _: 0, None, None, set()),
        (lambda index, _: 1000 if 100 <= index < 104 else 0, TTFT, E2E, OF_TAIL),
        (lambda index, _: 600 if index == 100 else 0, None, None, set()),
        (lambda index, _: 4, None, None, set()),
        (lambda index, _: 6, TTFT, TTFT, {"ttft_ms_mean", "ttft_ms_p50"}),
        (lambda index, _: 9 if index % 10 == 0 else 0, None, None, set()),
        (lambda index, _: 20, E2E, E2E, {f"ttft_ms_{each}" for each in STATISTICS}),
        (lambda index, row: 1000 if 100 <= index < 108 and row["stream_index"] % 2 else 0, TTFT, E2E, OF_TAIL),
        (
            lambda index, _: 25 if index % 15 == 0 else 0,
            *[(WARNING, "ttft_ms_p95")] * 2,
            {"ttft_ms_p95", "ttft_ms_p99"},
        ),
        (
            lambda index, _: 30 if index % 8 == 0 else 0,
            *[(WARNING, "ttft_ms_p90")] * 2,
            {f"ttft_ms_p{each}" for each in (90, 95, 99)},
        ),
    ],
    ids=[
        "in time",
        "one pause",
        "one request",
        "small",
        "a fifth of TTFT",
        "small now and then",
        "always",
        "one worker of two",
        "a tenth of the tail",
        "an eighth",
    ],
)
def test_late_sends_invalidate_what_they_change(
    late_ms: Callable[[int, Any], float],
    closed: tuple[Severity, str] | None,
    opened: tuple[Severity, str] | None,
    lost: set[str],
) -> None:
    """Mean latency that is wrong makes the point invalid, since a speed-up is its ratio; others are only left out."""
    for world, expected in ((CLOSED_LOOP, closed), (OPEN_LOOP, opened)):
        point = next(each for each in world.plan.points if each.arm == "ngram")
        summary, _ = point_of(world, point, sent_late(late_ms))
        findings = [each for each in summary.findings if each.check == "ClientSaturated"]
        named = [(each.severity, re.findall(r" ms to (\w+)", each.message)) for each in findings]
        assert named == ([(expected[0], [expected[1]])] if expected else [])
        missing = {
            f"{measure}_{each}": summary.figures[f"{measure}_{each}"].missing
            for measure in ("ttft_ms", "ttft_from_send_ms", "e2e_ms")
            for each in STATISTICS
            if summary.figures[f"{measure}_{each}"].value is None
        }
        assert missing == dict.fromkeys(lost, SENT_LATE)


@pytest.mark.parametrize(
    ("late_ms", "lost"),
    [
        (lambda index, _: 0, set()),
        (lambda index, _: 6, set()),
        (lambda index, _: 30, {"ttft_ms_mean", "ttft_ms_p90", "ttft_ms_p95", "ttft_ms_p99"}),
        (lambda index, _: 150 if index % 10 == 3 else 0, {"ttft_ms_p99"}),
    ],
    ids=["in time", "a fifth of TTFT in one repeat", "one repeat", "some of one repeat"],
)
def test_figures_of_a_load_are_judged_over_all_its_repeats(
    late_ms: Callable[[int, Any], float], lost: set[str]
) -> None:
    """Percentiles of a point with few requests are not judged, and a repeat that is late hardly changes a mean."""
    world = replace(CLOSED_LOOP, prompts=60, repeats=4)
    points = [each for each in world.plan.points if each.arm == "ngram"]
    found = [point_of(world, each, sent_late(late_ms) if each == points[1] else Corruptions()) for each in points]
    records = {summary.hash: [record_table(frame)] for summary, frame in found}
    rows = load_rows(world.plan, [summary for summary, _ in found], records)
    figures = figures_of(SampleRows(rows), 3, 0)
    assert {name for name, figure in figures.items() if figure.missing == SENT_LATE} == lost


@pytest.mark.parametrize(("requests", "expected"), [(24, []), (400, [("ClientSaturated", WARNING)])])
def test_late_sends_that_only_change_a_percentile_are_a_warning(
    requests: int, expected: list[tuple[str, Severity]]
) -> None:
    """One request in a hundred is late by more than half a TTFT: of 24, one request is all there is of the tail."""
    late = sent_late(lambda index, _: 25 if index % 80 == 10 else 0)
    world = replace(CLOSED_LOOP, prompts=requests)
    summary, _ = point_of(world, next(each for each in world.plan.points if each.arm == "ngram"), late)
    assert check_names(summary.findings) == expected
    missing = {name for name, figure in summary.figures.items() if figure.missing == SENT_LATE}
    assert missing == ({"ttft_ms_p99"} if expected else set())


def test_late_sends_are_found_where_answers_are_not_streamed() -> None:
    late = sent_late(lambda index, _: 1000 if 100 <= index < 104 else 0)
    whole = replace_columns(first_token_ns=None, chunk_ns=None, chunk_tokens=None)
    both = Corruptions(records=lambda point, frame: whole.records(point, late.records(point, frame)))
    (message,) = saturation(both, CLOSED_LOOP)
    assert "ms to e2e_ms_p99" in message


def test_waits_that_belong_to_the_latency_are_not_late_sends() -> None:
    """A wait for a slot of an open loop, and the time in which the client applies the chat template to a later turn."""
    waits = sent_late(lambda index, row: 50 if row["turn"] == 0 else 0)
    renders = sent_late(lambda index, row: 50 if row["turn"] else 0)
    slots = replace(OPEN_LOOP, edits={"spec.load.arrival": {"maxInFlight": 8}})
    talks = replace(CLOSED_LOOP, prompts=60, turns=2)
    template = {"appliedBy": "Client", "tokenizer": "org/model"}
    assert len(saturation(waits, OPEN_LOOP)) == len(saturation(renders, talks)) == 1
    assert saturation(waits, slots) == []
    point = slots.plan.points[0]
    summary, frame = point_of(slots, point, waits)
    assert late_figures(load_rows(slots.plan, [summary], {point.hash: [record_table(frame)]})) == []
    assert saturation(renders, replace(talks, edits={"spec.workloads[0].chatTemplate": template})) == []


def test_imported_requests_without_connect_times_are_not_judged() -> None:
    assert saturation(replace_columns(connect_ns=None), CLOSED_LOOP) == []


def coalesced(share: float, group_size: int = 2) -> Corruptions:
    """Give every group of `group_size` neighbouring chunks the last one's time, in this share of the answers."""

    def stamps(index: int, row: Any) -> list[int]:
        at = list(row["chunk_ns"])
        last = len(at) - 1
        return (
            [at[min(last, i - i % group_size + group_size - 1)] for i in range(len(at))]
            if index % 10 < 10 * share
            else at
        )

    return replace_columns(chunk_ns=stamps)


def in_one_piece(share: float, apart_ns: int = 0) -> Corruptions:
    """Make this share of the answers arrive in one piece, with segments `apart_ns` apart."""

    def stamps(index: int, row: Any) -> list[int]:
        last, count = row["chunk_ns"][-1], len(row["chunk_ns"])
        whole = [last - apart_ns * (count - 1 - number) for number in range(count)]
        return whole if 6 <= index < 6 + 24 * share else row["chunk_ns"]

    return replace_columns(chunk_ns=stamps)


@pytest.mark.parametrize("arm", ["none", "ngram"])
@pytest.mark.parametrize("apart_ns", [0, 20_000])
def test_answers_that_arrive_in_one_piece_are_found(arm: str, apart_ns: int) -> None:
    findings = findings_of(in_one_piece(0.15, apart_ns), arm)
    assert check_names(findings) == [("ChunksCoalesced", INVALID)]
    assert "at least half of the chunks" in findings[0].message
    assert findings_of(in_one_piece(1.0, 10_000_000), arm) == [], "chunks one step apart are not coalesced"


FIRST_TOKEN = {"ttft_ms_mean", "ttft_ms_p50", "ttft_from_send_ms_mean"}
PER_TOKEN = {"tpot_ms_mean", "tpot_ms_pooled", "user_tps_p50"}


@pytest.mark.parametrize(
    ("corruptions", "lost"),
    [
        (coalesced(0.2), set[str]()),
        (coalesced(0.8), FIRST_TOKEN),
        (in_one_piece(0.15), FIRST_TOKEN | PER_TOKEN),
    ],
    ids=["a warning", "some chunks", "whole answers"],
)
def test_times_that_coalesced_chunks_made_wrong_are_left_out_with_the_reason(
    corruptions: Corruptions, lost: set[str]
) -> None:
    """In the summary of the point, and of its load over all repeats, also if one repeat alone is at fault."""
    world = replace(WORLD, repeats=2)
    bad = next(each for each in world.plan.points if each.arm == "none")
    points = [point_of(world, each, corruptions if each == bad else Corruptions()) for each in world.plan.points]
    summary = next(summary for summary, _ in points if summary.hash == bad.hash)
    judged = FIRST_TOKEN | PER_TOKEN | {"e2e_ms_mean"}
    assert {name for name in judged if summary.figures[name].value is None} == lost
    assert all("(ChunksCoalesced)" in summary.figures[name].missing for name in lost)

    records = {summary.hash: [record_table(frame)] for summary, frame in points}
    rows = steady_rows(load_rows(world.plan, [summary for summary, _ in points], records))
    for summary, _ in points:
        own = rows.among(has_text(rows, POINT, summary.hash))
        unknown = {each.name for each in (TTFT_MS, TPOT_MS, E2E_MS) if np.isnan(each.values(own)).all()}
        of_arm = {name.removesuffix("_mean") for name in lost} if summary.arm == "none" else set()
        assert unknown == of_arm & {"ttft_ms", "tpot_ms"}


COUNTED = ("acceptance_length_verified_pooled", "acceptance_rate")


def test_acceptance_that_only_the_counters_have_is_shown_with_its_source() -> None:
    point = next(each for each in WORLD.plan.points if each.arm == "ngram")
    unreported = Corruptions(records=lambda _, frame: frame.assign(**dict.fromkeys(DRAFTING_COLUMNS)))
    summary, _ = point_of(WORLD, point, unreported)
    counters = present(summary.counters)
    accepted, drafted, steps = (
        float(present(each)) for each in (counters.accepted_tokens, counters.drafted_tokens, counters.draft_steps)
    )
    figures = [summary.figures[name] for name in COUNTED]
    assert [each.value for each in figures] == pytest.approx([1 + accepted / steps, accepted / drafted])
    assert {each.source for each in figures} == {"engine (counters)"}
    reported = point_of(WORLD, point)[0].figures["acceptance_rate"]
    assert reported.source != "engine (counters)"

    for change in ({"restarted": True}, {"accepted_tokens": None}):  # SGLang counts no accepted tokens.
        lost, _ = point_of(WORLD, point, combine(unreported, replace_counters(**change)))
        assert [lost.figures[each].value for each in COUNTED] == [None, None]
    mixed = with_counted_acceptance(lost.figures, [counters, present(lost.counters)])
    assert [mixed[each].value for each in COUNTED] == [None, None]


IN_TURNS = [("none", 0), ("ngram", 0), ("ngram", 1), ("none", 1), ("none", 2), ("ngram", 2)]
CONTINUED = [("none", 0), ("ngram", 0), ("none", 1), ("none", 2), ("ngram", 1), ("ngram", 2)]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (IN_TURNS, []),
        (CONTINUED, [("ngram", 1), ("ngram", 2)]),
        (CONTINUED[:4], []),  # the rest is missing
    ],
)
@pytest.mark.parametrize("load_order", ["Interleaved", "Sequential"])
def test_repeats_of_launched_engines_that_were_not_measured_in_turns_are_found(
    order: list[tuple[str, int]], expected: list[tuple[str, int]], load_order: str
) -> None:
    """Each engine was launched again for each repeat, which divides nothing."""
    edits = {"spec.load.order": load_order}
    world = SyntheticRun(prompts=8, concurrency=(1,), repeats=3, edits=edits)
    by_place = {(point.arm, point.repeat): point_of(world, point)[0] for point in world.plan.points}
    start = datetime(2026, 1, 1, tzinfo=UTC)
    spans = {by_place[turn].hash: (start + timedelta(minutes=6 * number),) * 2 for number, turn in enumerate(order)}
    launched = [by_place[turn].model_copy(update={"engine_launch": f"{number}-a"}) for number, turn in enumerate(order)]
    found = with_divided_rounds(world.plan, launched, spans)
    apart = [(each.arm, each.repeat) for each in found if "RepeatsApart" in {one.check for one in each.findings}]
    assert apart == (expected if load_order == "Interleaved" else [])


def launches_of(
    repeats: int,
    *,
    noise: float = 0.01,
    off: Mapping[tuple[str, int], float] | None = None,
    third: Mapping[tuple[str, str], float] | None = None,
    invalid: Sequence[tuple[str, int, str]] = (),
    seed: int = 1,
    edits: Mapping[str, Any] | None = None,
    drafters: tuple[str, ...] = ("ngram",),
) -> RunEvidence:
    """A run at one and four streams, whose launches differ by this CV, and some by a factor, by arm and repeat.

    `third`: factors of repeat 3, by arm and load. `invalid`: points (arm, repeat, load).
    """
    plan = SyntheticRun(repeats=repeats, concurrency=(1, 4), drafters=drafters, edits=edits or {}).plan
    rng = np.random.default_rng(seed)
    factors = {each: float(np.exp(rng.normal(0, noise))) for each in product(("none", *drafters), range(repeats))}
    finding = Finding(check="NeverDrafted", severity=INVALID, message="m")

    def summary(point: Point) -> PointSummary:
        launch = point.arm, point.repeat
        by_load = (third or {}).get((point.arm, point.level.label), 1.0) if point.repeat == 2 else 1.0
        speed = 100 * factors[launch] * (off or {}).get(launch, 1.0) * by_load
        figure = Figure(value=speed, unit="tokens/s", definition="d", n=1, source="client")
        found = [finding] if (*launch, point.level.label) in invalid else []
        return PointSummary.model_construct(**dict(point), figures={"stream_tps": figure}, findings=found)

    launches = [observed_launch(group.arm, group.index, node=f"gpu-{group.index}") for group in plan.groups]
    return RunEvidence(plan, [*map(summary, plan.points)], [], {}, simulated=False, launches=launches)


EVERY_POINT = {
    "spec.promptCache": "AsServed",
    "spec.engine": {"kind": "simulator", "dialect": "tensorrt-llm"},
}
SLOW = {("ngram", 2): 0.7}
SOAK = {"concurrency": [1], "order": "Soak", "durationSeconds": 60, "repeats": 8}


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (launches_of(8), []),
        (launches_of(8, off=SLOW), [("ngram", 3)]),
        (launches_of(8, off={("none", 5): 1.4}), [("none", 6)]),
        (launches_of(4, noise=0.001, off=SLOW), [("ngram", 3)]),
        (launches_of(3, noise=0, off=SLOW), []),
        (launches_of(8, noise=0.15, off=SLOW), []),
        (launches_of(8, noise=0, off={("ngram", 2): 0.96}), []),  # too little to matter
        (launches_of(8, noise=0, off={("ngram", 2): 0.94}), [("ngram", 3)]),
        (launches_of(8, off=SLOW | {("none", 2): 0.7}), []),  # the machine
        (launches_of(8, off=SLOW | {("none", 2): 0.8}), []),
        (launches_of(8, third={("ngram", "1"): 0.6}), [("ngram", 3)]),
        (launches_of(8, third={("ngram", "1"): 0.6, ("none", "1"): 0.6}), []),
        (launches_of(8, off=SLOW | {("none", 2): 0.95}), [("ngram", 3)]),
        (launches_of(8, off=SLOW | {("none", 2): 0.87, ("k", 2): 0.87}, drafters=("ngram", "k")), [("ngram", 3)]),
        (launches_of(8, off=SLOW | {("none", 2): 1.4}), [("none", 3), ("ngram", 3)]),
        (launches_of(8, off=SLOW | {("none", 4): 0.7}), [("none", 5), ("ngram", 3)]),
        (launches_of(8, off=SLOW, invalid=[("ngram", 2, "1"), ("ngram", 2, "4")]), []),
        (launches_of(8, off=SLOW, invalid=[("ngram", repeat, "1") for repeat in range(8)]), [("ngram", 3)]),
        (launches_of(8, off=SLOW, invalid=[("ngram", repeat, load) for repeat in range(8) for load in "14"]), []),
        (launches_of(8, off=SLOW | {("none", 2): 0.7}, invalid=[("ngram", repeat, "1") for repeat in range(8)]), []),
        (launches_of(5, noise=0, off=SLOW, invalid=[("ngram", 0, "1")]), [("ngram", 3)]),
        (launches_of(4, noise=0, off=SLOW, invalid=[("ngram", 0, "1")]), []),
        (launches_of(8, off=SLOW, edits=NO_BASELINE), [("ngram", 3)]),
        (launches_of(8, off=SLOW, edits={"spec.load.order": "Sequential"}), []),
        (launches_of(8, off=SLOW, edits={"spec.load": SOAK}), []),
        (launches_of(8, off=SLOW, edits=EVERY_POINT), [("ngram", 3)] * 2),
    ],
)
def test_a_launch_apart_from_the_others_of_its_arm_is_info(
    evidence: RunEvidence, expected: list[tuple[str, int]]
) -> None:
    found = launches_differ.evaluate(evidence)
    assert [(each.arm, int(re.findall(r"in repeat (\d+) ", each.message)[0])) for each in found] == expected
    assert {each.severity for each in found} <= {INFO}
    external = evidence.plan.model_copy(update={"engine": external_engine(DialectName.OPENAI)})
    assert launches_differ.evaluate(replace(evidence, plan=external)) == []


@pytest.mark.parametrize(
    ("repeats", "edits", "limit"),
    # Student's t with `repeats - 2` degrees of freedom at 1 - 0.0025 / launches, times sqrt(1 + 1 / (repeats - 1)).
    [(4, NO_BASELINE, 32.6), (4, {}, 46.2), (6, {}, 11.8), (8, {}, 7.92)],
)
def test_a_launch_is_apart_from_a_number_of_standard_deviations_of_the_others_on(
    repeats: int, edits: dict[str, Any], limit: float
) -> None:
    others = np.linspace(-0.01, 0.01, repeats - 1)
    for share, count in ((0.98, 0), (1.02, 1)):
        logs = [-share * limit * others.std(ddof=1), *others]
        off = {("ngram", repeat): float(np.exp(log)) for repeat, log in enumerate(logs)}
        found = launches_differ.evaluate(launches_of(repeats, noise=0, off=off, edits=edits))
        assert len(found) == count
        assert [each.value for each in found] == [pytest.approx(np.exp(-logs[0]))] * count


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({}, [(0.7 * 0.8, [5], [("0.70", "1"), ("0.80", "4")])]),
        (EVERY_POINT, [(0.7 * 0.7, [10], [("0.70", "1")]), (0.8 * 0.8, [11], [("0.80", "4")])]),
    ],
)
def test_a_launch_that_is_apart_is_named_with_its_file_node_and_loads(edits: dict[str, Any], expected: Any) -> None:
    """Its value is the geometric mean over its loads."""
    third = {("ngram", "1"): 0.7, ("ngram", "4"): 0.8}
    found = launches_differ.evaluate(launches_of(4, noise=0, third=third, edits=edits))
    assert expected == [
        (
            pytest.approx(present(each.value) ** -2),
            [*map(int, re.findall(r"launches/(\d+)-a.json \(node gpu-\1\)", each.message))],
            re.findall(r"([\d.]+) for \w+ at (\d)", each.message),
        )
        for each in found
    ]


@pytest.mark.draws
@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_launches_that_differ_alike_are_seldom_reported(noise: float) -> None:
    """In at most 0.5 % of the runs."""
    found = [launches_differ.evaluate(launches_of(6, noise=noise, seed=seed)) for seed in range(100)]
    assert sum(map(bool, found)) <= 2


@pytest.mark.parametrize(
    ("health", "words"),
    [
        ({"loop_lag_p99_ms": 0.4}, "a proxy holds chunks back, or lacks CPU; the client was not late"),
        ({"loop_lag_p99_ms": 900.0}, "the client itself was late (its event loop was 900.00 ms"),
        ({"loop_lag_p99_ms": None}, "the client read late, or the engine or a proxy holds chunks back"),
        ({"loop_lag_p99_ms": 0.4, "load_per_core": 9.0}, "a proxy holds chunks back, or lacks CPU; the client was not"),
        ({"loop_lag_p99_ms": 900.0, "load_per_core": 2.1}, "the client itself was late (its event loop was 900.00 ms"),
        ({"loop_lag_p99_ms": None, "load_per_core": 9.0}, "the client read late, or the engine or a proxy holds"),
    ],
)
def test_message_names_the_probable_cause(health: dict[str, float | None], words: str) -> None:
    corruptions = replace(in_one_piece(0.3), watch=replace_watch(**health).watch)
    (message,) = (each.message for each in findings_of(corruptions, "none") if each.check == "ChunksCoalesced")
    assert words in message
    load = health.get("load_per_core")
    assert ("machine was busy" in message) == (load is not None), "beside the cause, not instead of it"


@pytest.mark.parametrize(("load", "named"), [(1.0, False), (1.1, True)])
def test_a_busy_machine_is_named_from_its_load_per_core(load: float, named: bool) -> None:
    corruptions = replace(in_one_piece(0.3), watch=replace_watch(load_per_core=load).watch)
    (message,) = (each.message for each in findings_of(corruptions, "none") if each.check == "ChunksCoalesced")
    assert (f"busy (load average up to {load:.1f} per core)" in message) == named


def endpoint_findings(
    frame: pd.DataFrame, counters: CounterDeltas | None = None, *, index: int = 1, alone: bool = False
) -> list[tuple[str, Severity]]:
    """Return findings in the records of an endpoint whose drafter is not declared, or of another point."""
    plan, _ = undeclared_drafter(WORLD, DialectName.OPENAI)
    point = plan.points[index]
    if alone:
        plan = plan.model_copy(update={"arms": [plan.arm(point.arm)]})
    rows = tidy_frames([frame], point.hash)
    return check_names(summarise_point(plan, point, rows, ClientHealth(), counters, simulated=False).findings)


def test_chunks_of_an_endpoint_are_checked_against_its_reported_drafts() -> None:
    point = WORLD.plan.points[1]
    unmodified = WORLD.records(point)
    assert endpoint_findings(unmodified) == []
    without_drafts = unmodified.assign(drafted_tokens=None, draft_steps=None)
    assert endpoint_findings(without_drafts) == [], "a chunk of several tokens may be one step"
    late = coalesced(1.0, group_size=4).records(point, without_drafts)
    assert endpoint_findings(late) == [("ChunksCoalesced", WARNING)]
    assert endpoint_findings(coalesced(1.0, group_size=4).records(point, unmodified)) == [("ChunksCoalesced", INVALID)]


@pytest.mark.runs
@pytest.mark.parametrize(("share", "severity", "words"), [(0.1, WARNING, "remain"), (1.0, INVALID, "are left out")])
def test_coalesced_chunks_state_whether_they_leave_figures_out(share: float, severity: Severity, words: str) -> None:
    found = [each for each in run_findings(WORLD, coalesced(share, group_size=4)) if each.check == "ChunksCoalesced"]
    assert found
    assert {each.severity for each in found} == {severity}
    assert all(words in each.message for each in found)


@pytest.mark.parametrize(("reported", "found"), [(0, True), (None, False)])
@pytest.mark.parametrize(("index", "compared"), [(1, True), (0, False)])
def test_an_endpoint_that_counts_its_drafts_and_has_none_is_found(
    reported: int | None, found: bool, index: int, compared: bool
) -> None:
    """The baseline may count drafts that it has none of."""
    point = WORLD.plan.points[index]
    counts = dict.fromkeys(("draft_steps", "drafted_tokens", "accepted_tokens"), reported)
    frame = WORLD.records(point).assign(**counts, step_accepted=None)
    assert (("NeverDrafted", WARNING) in endpoint_findings(frame, index=index)) == (found and compared)


def test_a_server_alone_that_counts_its_drafts_may_be_without_a_drafter() -> None:
    counts = dict.fromkeys(("draft_steps", "drafted_tokens", "accepted_tokens"), 0)
    frame = WORLD.records(WORLD.plan.points[1]).assign(**counts, step_accepted=None)
    assert ("NeverDrafted", INFO) in endpoint_findings(frame, alone=True)


@pytest.mark.parametrize(
    ("counted", "severity"),
    [
        ({}, WARNING),
        ({"draft_steps": 0}, INVALID),
        ({"draft_steps": 0, "drafted_tokens": 0, "accepted_tokens": 0}, INVALID),
        ({"draft_steps": 500}, WARNING),
        ({"drafted_tokens": 500}, WARNING),
        ({"accepted_tokens": 500}, WARNING),
        ({"restarted": True}, WARNING),
        ({"output_tokens": None}, WARNING),
    ],
    ids=str,
)
def test_endpoint_whose_counters_of_drafts_stand_still_has_one_token_a_step(
    counted: dict[str, Any], severity: Severity
) -> None:
    point = WORLD.plan.points[0]
    unreported = dict.fromkeys(("steps", "draft_steps", "drafted_tokens", "accepted_tokens", "acceptance_source"))
    frame = coalesced(0.8).records(point, WORLD.records(point)).assign(**unreported)
    tokens = int(frame["output_tokens"][WORLD.warmup :].sum())
    found = endpoint_findings(frame, CounterDeltas(**{"output_tokens": tokens, **counted}))
    assert ("ChunksCoalesced", severity) in found


def merge_four_chunks(_: int, row: Any) -> list[int]:
    return [sum(row["chunk_tokens"][at : at + 4]) for at in range(0, len(row["chunk_tokens"]), 4)]


BY_TOKEN = replace_columns(
    chunk_ns=lambda _, row: [
        ns for ns, count in zip(row["chunk_ns"], row["chunk_tokens"], strict=True) for _ in range(count)
    ],
    chunk_tokens=lambda _, row: [1] * sum(row["chunk_tokens"]),
)


UNCOUNTED = replace_columns(chunk_tokens=None)


MERGED = replace_columns(
    chunk_tokens=merge_four_chunks, chunk_ns=lambda _, row: row["chunk_ns"][3::4] or row["chunk_ns"][-1:]
)


SHORT = SyntheticRun(prompts=24, concurrency=(1,), repeats=1, tokens=(8, 8), alpha={"ngram": 1.0}, alpha_spread=0.0)


CHUNKS: dict[str, tuple[Corruptions, str, SyntheticRun, list[tuple[str, Severity]]]] = {
    "none coalesced": (coalesced(0.0), "none", WORLD, []),
    "some coalesced": (coalesced(0.2), "none", WORLD, [("ChunksCoalesced", WARNING)]),
    "most coalesced": (coalesced(0.8), "none", WORLD, [("ChunksCoalesced", INVALID)]),
    "one pair": (
        replace_columns(chunk_ns=lambda _, row: [row["chunk_ns"][1], *row["chunk_ns"][1:]]),
        "none",
        WORLD,
        [],
    ),
    "several steps": (coalesced(1.0, group_size=4), "ngram", WORLD, [("ChunksCoalesced", INVALID)]),
    "several steps, uncounted": (
        combine(coalesced(1.0, group_size=4), UNCOUNTED),
        "ngram",
        WORLD,
        [("ChunksCoalesced", INVALID)],
    ),
    "one step": (BY_TOKEN, "ngram", WORLD, []),
    "one step, uncounted": (combine(BY_TOKEN, UNCOUNTED), "ngram", WORLD, []),
    "half of a short answer in one step": (BY_TOKEN, "ngram", SHORT, []),
    "merged": (MERGED, "ngram", WORLD, [("MultiStepChunks", WARNING)]),
    "merged, of the baseline": (MERGED, "none", WORLD, [("MultiStepChunks", WARNING)]),
    "merged, uncounted": (
        replace_columns(chunk_tokens=None, chunk_ns=lambda _, row: row["chunk_ns"][::8]),
        "ngram",
        WORLD,
        [("MultiStepChunks", WARNING)],
    ),
    "merged once": (
        replace_columns(
            chunk_tokens=lambda index, row: [2, *row["chunk_tokens"][2:]] if index == 9 else row["chunk_tokens"]
        ),
        "none",
        WORLD,
        [],
    ),
}


@pytest.mark.parametrize("case", CHUNKS)
def test_coalesced_and_merged_chunks_are_found(case: str) -> None:
    corruptions, arm, world, expected = CHUNKS[case]
    assert check_names(findings_of(corruptions, arm, world)) == expected


"""Eight tokens in three steps, so half of an answer may be one step."""
"""llama.cpp streams one chunk per token; those of one step leave the engine together."""
"""llama.cpp streams one chunk per token; those of one step leave the engine together."""
