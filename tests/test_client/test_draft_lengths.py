"""Draft length schedules: the best length of a known engine at every batch size, ties, and engine formats."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.outcome.step_cost import StepObservation
from specbench_api.outcome.summary import RunSummary
from specbench_api.outcome.termination import Exit
from specbench_api.plan.plan import Arm
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import DialectName, EngineKind
from specbench_client.analysis.stepcost.model import fit_step_cost
from specbench_client.analysis.stepcost.surfaces import StepTimeSurface, surfaces
from specbench_client.analysis.what_if.draft_lengths import (
    RunSource,
    choose_schedule,
    drafting_pays,
    emitted_by_length,
    engine_schedule,
    missing_step_times,
    propose_schedules,
    run_differences,
    with_schedule,
)
from specbench_client.cli import exit_code
from specbench_client.documents.what_if import DraftSchedule, EmittedTokens, TokensEvidence
from specbench_client.errors import BadInput
from specbench_client.report.text.what_if import context_tables
from specbench_client.store.folder import FolderStore
from specbench_testing.local_results import store_results
from specbench_testing.resources import external_engine
from specbench_testing.summary_variants import invalid
from specbench_testing.synthetic_records import run_of_world
from specbench_testing.virtual_engine import VirtualEngine, VirtualWorld

pytestmark = pytest.mark.runs

LENGTHS = (0, 1, 3, 6)
UID = "0190a000-0000-7000-8000-000000000000"
DRAFTER = Drafter(name="eagle3-k6", method="eagle3", model="m", num_speculative_tokens=6)


def true_ms(batch: float, tokens: int, costs: tuple[float, float, float]) -> float:
    base, verified, draft = costs
    return base + verified * batch * (tokens + 1) + draft * tokens


def surface_of(costs: tuple[float, float, float], batches: tuple[int, ...] = (1, 4, 16, 64)) -> StepTimeSurface:
    cells = [
        StepObservation(
            run="r", arm=f"e{tokens}" if tokens else "none", workload="w", load=str(batch),
            configured_draft_tokens=tokens,
            draft_tokens=tokens, batch=batch, context_tokens=batch * 100, prefill_tokens=0.0,
            step_ms=true_ms(batch, tokens, costs), requests=9,
        )
        for tokens in LENGTHS
        for batch in batches
    ]  # fmt: skip
    return surfaces(fit_step_cost(["none", "e"], cells))["w"]


def lengths_of(alpha: float, error: float = 0.0) -> list[EmittedTokens]:
    return [
        EmittedTokens(
            draft_tokens=tokens,
            tokens=sum(alpha**power for power in range(tokens + 1)),
            relative_error=error,
            how=TokensEvidence.MEASURED,
            source="e",
        )
        for tokens in range(max(LENGTHS) + 1)
    ]


def made(costs: tuple[float, float, float], alpha: float, error: float = 0.0) -> DraftSchedule:
    found = choose_schedule(["e"], "w", surface_of(costs), lengths_of(alpha, error))
    assert found is not None
    return found


def at(found: DraftSchedule, batch: int) -> int:
    return next(each.draft_tokens for each in found.ranges if each.first <= batch <= each.last)


@settings(max_examples=12)
@given(
    st.tuples(st.floats(1, 20), st.floats(0.001, 0.5), st.floats(0.01, 2)),
    st.floats(0.05, 0.95),
)
def test_schedule_maximises_the_engines_goodput_at_every_batch_size(
    costs: tuple[float, float, float], alpha: float
) -> None:
    found = made(costs, alpha)
    for batch in (1, 2, 5, 16, 33, 64):
        goodput = {
            each.draft_tokens: each.tokens / true_ms(batch, each.draft_tokens, costs) for each in lengths_of(alpha)
        }
        assert goodput[at(found, batch)] >= max(goodput.values()) * (1 - 1e-6)


@given(st.floats(0.05, 0.95), st.floats(0.001, 0.5))
@settings(max_examples=8)
def test_ranges_start_at_one_and_have_no_gap(alpha: float, verified: float) -> None:
    found = made((5.0, verified, 0.3), alpha)
    assert found.ranges[0].first == 1
    assert found.ranges[-1].last == 64
    assert all(one.last + 1 == two.first for one, two in itertools.pairwise(found.ranges))
    assert all(one.draft_tokens != two.draft_tokens for one, two in itertools.pairwise(found.ranges))


CONTEXT_COST = 0.004
"""Milliseconds per token in the cache."""
CONTEXTS = (200, 4000)


def with_contexts(
    costs: tuple[float, float, float], contexts: tuple[int, ...] = CONTEXTS
) -> dict[str, StepTimeSurface]:
    """Surfaces of a workload for each context; the fit is of all of them."""
    cells = [
        each.model_copy(update={
            "workload": f"w{context}", "context_tokens": each.batch * context,
            "step_ms": each.step_ms + CONTEXT_COST * each.batch * context,
        })
        for context in contexts
        for each in surface_of(costs).cells
    ]  # fmt: skip
    return surfaces(fit_step_cost(["none", "e"], cells))


@pytest.mark.parametrize("context", [200, 1000, 4000])
def test_schedule_for_a_context_maximises_the_goodput_there(context: int) -> None:
    costs, alpha = (5.0, 0.05, 0.6), 0.7
    found = choose_schedule(["e"], "w", with_contexts(costs)["w200"].at_context(context), lengths_of(alpha))
    assert found is not None
    assert found.context_tokens == context
    for batch in (1, 4, 16, 64):
        cache = CONTEXT_COST * batch * context
        goodput = {
            each.draft_tokens: each.tokens / (true_ms(batch, each.draft_tokens, costs) + cache)
            for each in lengths_of(alpha)
        }
        assert goodput[at(found, batch)] >= max(goodput.values()) * (1 - 1e-6)


def test_longer_contexts_favour_longer_drafts() -> None:
    """Reading the cache costs the same for any draft length, so a long draft shares it among more tokens."""
    surface = with_contexts((5.0, 0.05, 0.6))["w200"]
    short, long = (choose_schedule(["e"], "w", surface.at_context(each), lengths_of(0.7)) for each in CONTEXTS)
    assert short is not None
    assert long is not None
    assert [(at(short, batch), at(long, batch)) for batch in (1, 16, 64)] == [(4, 6), (5, 6), (5, 6)]
    table = context_tables([short, long])[0]
    assert table.columns == ["Batch", "200 tokens", "4,000 tokens"]
    assert [row[1:] for row in table.rows if row[0] == "64"] == [["5", "6"]]


@pytest.mark.parametrize(
    ("contexts", "tokens", "reason"),
    [
        (CONTEXTS, 4300, "ContextNotMeasured"),
        (CONTEXTS, 150, "ContextNotMeasured"),
        ((200,), 400, "ContextNotMeasured"),
    ],
)
def test_contexts_outside_the_measured_ones_are_refused(contexts: tuple[int, ...], tokens: int, reason: str) -> None:
    with pytest.raises(BadInput) as raised:
        with_contexts((5.0, 0.05, 0.3), contexts)["w200"].at_context(tokens)
    assert raised.value.reason == reason


def test_context_is_refused_without_a_fitted_cost_of_context() -> None:
    surface = surface_of((5.0, 0.05, 0.3), (4, 64))
    few = fit_step_cost(["none", "e"], [each for each in surface.cells if each.configured_draft_tokens in (0, 3)])
    with pytest.raises(BadInput, match="measure workloads whose prompts differ in length") as raised:
        surfaces(few)["w"].at_context(100)
    assert raised.value.reason == "NoContextCost"


def test_no_drafts_is_chosen_when_steps_are_expensive() -> None:
    found = made((5.0, 0.3, 0.3), 0.6)
    assert at(found, 1) > 0
    assert found.ranges[-1].draft_tokens == 0
    assert found.ranges[-1].gain == pytest.approx(1.0)
    assert found.ranges[0].gain is not None
    assert found.ranges[0].gain > 1


def test_indistinguishable_lengths_are_tied_and_exact_data_has_no_ties() -> None:
    costs = (5.0, 0.05, 0.3)
    sure, unsure = made(costs, 0.7), made(costs, 0.7, error=0.2)
    assert all(not each.tied for each in sure.ranges)
    assert [each.draft_tokens for each in sure.ranges] == [each.draft_tokens for each in unsure.ranges]
    assert all(each.tied for each in unsure.ranges)


def test_range_lists_lengths_without_a_known_step_time() -> None:
    """Six drafts were measured at small batches only, so whether they are best at large ones is unknown."""
    plain = surface_of((5.0, 0.01, 0.1))
    cells = tuple(each for each in plain.cells if each.configured_draft_tokens < 6 or each.batch <= 16)
    found = choose_schedule(["e"], "w", StepTimeSurface(plain.cost, cells), lengths_of(0.9))
    assert found is not None
    assert [(each.first, each.draft_tokens, each.unknown) for each in found.ranges] == [(1, 6, []), (17, 3, [4, 5, 6])]


def test_range_below_the_smallest_batch_is_extrapolated_and_marked() -> None:
    found = choose_schedule(["e"], "w", surface_of((5.0, 0.05, 0.3), (8, 16, 64)), lengths_of(0.7))
    assert found is not None
    assert (found.ranges[0].first, found.ranges[0].carried) == (1, True)
    assert found.batches == (8, 64)
    assert set(found.table) == {8, 16, 64}


def test_single_length_gives_no_schedule() -> None:
    assert choose_schedule(["e"], "w", surface_of((5.0, 0.05, 0.3)), lengths_of(0.7)[:1]) is None


def ranges(*rows: tuple[int, int, int]) -> DraftSchedule:
    """Return a schedule with these ranges; its other fields are arbitrary."""
    given = [{"first": first, "last": last, "draftTokens": tokens, "tied": []} for first, last, tokens in rows]
    return DraftSchedule.model_validate(
        {**made((5.0, 0.05, 0.3), 0.7).to_dict(), "ranges": given, "arms": ["eagle3-k6"], "workload": "chat"}
    )


def plan_of(engine: str, **drafter: Any) -> Any:
    fields = drafter or {"name": "eagle3-k6", "method": "eagle3", "model": "m", "numSpeculativeTokens": 6}
    return VirtualWorld(edits={"spec.engine": {"kind": engine}, "spec.drafters": [fields]}).plan


def test_vllm_and_sglang_schedules_use_the_engines_formats() -> None:
    schedule = ranges((1, 64, 3), (65, 128, 1), (129, 512, 0))
    plan = plan_of("vllm")
    vllm = engine_schedule(EngineKind.VLLM, plan, plan.arm("eagle3-k6"), schedule)
    assert vllm.config == [[1, 64, 3], [65, 128, 1], [129, 512, 0]]
    assert vllm.problems == []
    config = json.loads(vllm.arguments[vllm.arguments.index("--speculative-config") + 1])
    assert config["num_speculative_tokens"] == 3, "vLLM reserves memory for this maximum"
    sglang = engine_schedule(EngineKind.SGLANG, plan, plan.arm("eagle3-k6"), schedule)
    assert sglang.config == {
        "1": {"candidate_steps": [3]},
        "65": {"candidate_steps": [1]},
        "129": {"candidate_steps": [0]},
    }
    assert "--speculative-adaptive" in sglang.arguments
    assert sglang.run is None, "the run used another engine"


def test_settings_an_engine_silently_drops_are_reported() -> None:
    plan = plan_of("sglang", name="ngram", method="ngram", numSpeculativeTokens=6)
    proposal = engine_schedule(EngineKind.SGLANG, plan, plan.arms[-1], ranges((1, 8, 3), (9, 64, 1)))
    assert any("only for chains of eagle, eagle3 and mtp" in problem for problem in proposal.problems)
    assert proposal.run is None


def test_drafting_pays_if_any_range_drafts() -> None:
    assert not drafting_pays(ranges((1, 64, 0)))
    assert drafting_pays(ranges((1, 8, 2), (9, 64, 0)))


def test_more_ranges_than_a_spec_allows_are_rejected_with_a_remedy() -> None:
    with pytest.raises(BadInput, match="--draft-tokens"):
        with_schedule(DRAFTER, ranges(*((batch, batch, batch % 2 + 1) for batch in range(1, 18))))


WORLD = VirtualWorld(
    concurrency=(2, 12),
    repeats=1,
    edits={
        "spec.engine": {"kind": "vllm"},
        "spec.drafters": [
            {"name": f"eagle3-k{tokens}", "method": "eagle3", "model": "m", "numSpeculativeTokens": tokens}
            for tokens in (1, 5)
        ],
    },
    engine=VirtualEngine(requests_per_stream=6),
)


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return run_of_world(WORLD)


def test_longer_drafts_give_lower_bounds_for_shorter_lengths(summary: RunSummary) -> None:
    source = RunSource(WORLD.plan, summary)
    cells = [(arm, cell) for arm, cell in source.cells if not arm.is_baseline]
    known = {each.draft_tokens: each for each in emitted_by_length(cells)}
    conditional = WORLD.engine.conditional
    assert list(known) == [0, 1, 2, 3, 4, 5]
    assert [known[each].how for each in (0, 1, 5)] == [TokensEvidence.MEASURED] * 3
    for tokens in (2, 3, 4):
        truth = 1 + float(np.cumprod(conditional[:tokens]).sum())
        assert known[tokens].how is TokensEvidence.LOWER_BOUND
        assert known[tokens].source == "eagle3-k5"
        assert known[tokens].tokens == pytest.approx(truth, rel=0.1)
    assert [known[each].tokens for each in sorted(known)] == sorted(each.tokens for each in known.values())


def test_run_of_two_lengths_gives_one_schedule_and_notes_missing_lengths(summary: RunSummary) -> None:
    (found,) = propose_schedules([RunSource(WORLD.plan, summary)])
    assert found.schedule.arms == ["eagle3-k1", "eagle3-k5"]
    assert found.longest.name == "eagle3-k5"
    assert any("draft lengths 2, 3, 4 were not run" in note for note in found.schedule.notes)
    assert found.schedule.table[2][0].draft_tokens >= found.schedule.table[12][0].draft_tokens > 0
    (only,) = propose_schedules([RunSource(WORLD.plan, summary)], only=[0, 5])
    assert {each.draft_tokens for row in only.schedule.table.values() for each in row} == {0, 5}


@pytest.mark.draws
def test_comparable_runs_are_combined_and_others_are_rejected(summary: RunSummary) -> None:
    parts = [
        VirtualWorld(
            concurrency=(2, 12),
            repeats=1,
            edits={"spec.engine": {"kind": engine}, "spec.drafters": [WORLD.edits["spec.drafters"][row]]},
            engine=WORLD.engine,
        )
        for engine, row in (("vllm", 0), ("vllm", 1), ("sglang", 1))
    ]
    one, two, three = (RunSource(world.plan, run_of_world(world)) for world in parts)
    assert run_differences([one, two]) == []
    (found,) = propose_schedules([one, two])
    assert found.schedule.arms == ["eagle3-k1", "eagle3-k5"]
    assert len(found.cost.observations) == 8, "each run brings its own baseline"
    assert run_differences([one, three]) == ["demo and demo differ in their engine"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, summary: RunSummary) -> Path:
    """A stored run with its summary."""
    folder = tmp_path_factory.mktemp("schedule") / "out"
    plan = store_results(WORLD, folder, UID)
    FolderStore(folder / run_root(plan.namespace, plan.name, UID)).put(SUMMARY, summary.to_json().encode())
    return folder


def test_draft_lengths_command_prints_the_schedule_and_a_valid_run(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "draft-lengths", str(results)]) == Exit.OK
    printed = capsys.readouterr().out
    assert "vllm: [[1, " in printed
    assert "Estimated, not measured: verify it with a run" in printed
    assert exit_code(["analyze", "draft-lengths", str(results), "--output", "yaml"]) == Exit.OK
    file = tmp_path / "verify.yaml"
    file.write_text(capsys.readouterr().out)
    drafters = yaml.safe_load(file.read_text())["spec"]["drafters"]
    assert [each["name"] for each in drafters] == ["eagle3-k1", "eagle3-k5", "eagle3-k5-schedule"]
    assert exit_code(["plan", str(file)]) == Exit.OK
    assert "num_speculative_tokens_per_batch_size" in capsys.readouterr().out


def test_run_given_twice_counts_once(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Duplicate cells would be held out against themselves and would falsely identify terms."""
    assert exit_code(["analyze", "draft-lengths", str(results), "--output", "json"]) == Exit.OK
    once = capsys.readouterr().out
    (root,) = results.glob("runs/*/*/*")
    assert exit_code(["analyze", "draft-lengths", str(results), str(root), "--output", "json"]) == Exit.OK
    twice = capsys.readouterr()
    assert json.loads(twice.out) == json.loads(once)
    assert twice.err == f"given twice, used once: {WORLD.plan.name} ({UID})\n"


def test_json_output_is_one_document_for_the_requested_engine(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "analyze",
        "draft-lengths",
        str(results),
        "--engine",
        "sglang",
        "--draft-tokens",
        "0,5",
        "--output",
        "json",
    ]
    assert exit_code(command) == Exit.OK
    (found,) = json.loads(capsys.readouterr().out)["proposals"]
    assert [each["engine"] for each in found["engines"]] == ["sglang"]
    assert {each["draftTokens"] for each in found["schedule"]["emitted"]} == {0, 5}
    assert found["stepCost"]["basis"] == "Fit"


def test_command_prints_lengths_by_context_and_that_no_engine_has_a_form_for_them(
    results: Path, summary: RunSummary, capsys: pytest.CaptureFixture[str]
) -> None:
    contexts = [each.context_tokens / each.batch for each in summary.step_costs[0].observations]
    low, high = round(min(contexts)), round(max(contexts))
    command = ["analyze", "draft-lengths", str(results), "--context-tokens", f"{low},{high}"]
    assert exit_code(command) == Exit.OK
    printed = " ".join(capsys.readouterr().out.split())
    for words in (f"{low} tokens", f"{high} tokens", "have no setting by context length", f", {low} tokens of context"):
        assert words in printed
    assert exit_code([*command, "--output", "json"]) == Exit.OK
    proposals = json.loads(capsys.readouterr().out)["proposals"]
    assert [each["schedule"]["contextTokens"] for each in proposals] == [low, high]
    assert exit_code([*command, "--output", "yaml"]) == Exit.BAD_INPUT
    assert "remove --context-tokens or --output yaml" in capsys.readouterr().err
    assert exit_code([*command[:-1], "100000"]) == Exit.BAD_INPUT
    assert "error: ContextNotMeasured: 100000 tokens of context are outside the measured" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["text", "json", "yaml"])
def test_no_paying_draft_length_is_a_valid_result(
    tmp_path: Path, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expensive = replace(WORLD, engine=replace(WORLD.engine, conditional=(0.01, 0.01, 0.01, 0.01, 0.01)))
    plan = store_results(expensive, tmp_path / "out", UID, points=0)
    store = FolderStore(tmp_path / "out" / run_root(plan.namespace, plan.name, UID))
    store.put(SUMMARY, run_of_world(expensive).to_json().encode())
    assert exit_code(["analyze", "draft-lengths", str(tmp_path / "out"), "--output", output]) == Exit.OK
    printed = capsys.readouterr()
    if output == "json":
        (proposal,) = json.loads(printed.out)["proposals"]
        assert {each["draftTokens"] for each in proposal["schedule"]["ranges"]} == {0}
        assert proposal["engines"] == []
    else:
        assert "leave drafting off" in (printed.err if output == "yaml" else printed.out)


def test_missing_schedule_is_rejected_with_a_remedy(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["analyze", "draft-lengths", str(results), "--workload", "other"]) == Exit.BAD_INPUT
    assert "no schedule for --workload other" in capsys.readouterr().err
    assert exit_code(["analyze", "draft-lengths", str(results), "--draft-tokens", "0"]) == Exit.BAD_INPUT
    assert (
        exit_code(["analyze", "draft-lengths", str(results), "--engine", "sglang", "--output", "yaml"])
        == Exit.BAD_INPUT
    )
    assert "no run can verify the schedule" in capsys.readouterr().err


def test_no_drafter_cells_give_only_the_length_zero() -> None:
    assert emitted_by_length([]) == [
        EmittedTokens(draft_tokens=0, tokens=1.0, relative_error=0.0, how=TokensEvidence.MEASURED, source="no drafts")
    ]
    assert Arm(name="none").is_baseline


def test_recompute_is_not_suggested_for_a_run_of_invalid_cells(
    tmp_path: Path, summary: RunSummary, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = store_results(WORLD, tmp_path / "out", UID, points=1)
    broken = invalid(summary).model_copy(update={"step_costs": []})
    FolderStore(tmp_path / "out" / run_root(plan.namespace, plan.name, UID)).put(SUMMARY, broken.to_json().encode())
    assert exit_code(["analyze", "draft-lengths", str(tmp_path / "out")]) == Exit.BAD_INPUT
    message = capsys.readouterr().err
    assert "no cell with a drafter is valid: specbench report" in message
    assert "--recompute" not in message


ENDPOINT = external_engine(DialectName.VLLM)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"engine": ENDPOINT, "arms": [Arm(name="endpoint")]}, "the run measured an endpoint"),
        ({"arms": [Arm(name="none")]}, "the run has the baseline alone"),
        ({}, "steady requests whose steps the engine reported"),
    ],
)
def test_run_without_step_times_is_rejected_with_the_missing_data(
    summary: RunSummary, changes: dict[str, Any], expected: str
) -> None:
    """`specbench report --recompute` would return the same summary, so no message may suggest it."""
    message = missing_step_times(WORLD.plan.model_copy(update=changes), summary, "out")
    assert expected in message
    assert "--recompute" not in message
