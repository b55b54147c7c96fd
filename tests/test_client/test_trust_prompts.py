"""Checks on the prompts: random words, missing rows, unexpected answer lengths."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest

from specbench_api.plan.plan import Point
from specbench_client.documents.finding import Severity
from specbench_client.documents.prompt_coverage import CategoryCoverage, PromptCoverage, RequestLogStats, WordOrderTest
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.report.text.applicability import coverage_table, dataset_text
from specbench_client.report.text.run_report import markdown
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.write_results import conclude
from specbench_client.workload.prompts import load_prompts
from specbench_testing.observed_launches import observed_launch
from specbench_testing.present import present
from specbench_testing.simulated_groups import plan_of, simulator
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_findings, run_of_world

pytestmark = pytest.mark.runs

WARNING, INFO = Severity.WARNING, Severity.INFO
REASON = "placeholder: the licence does not allow redistribution of the text"


def world(dataset: dict[str, Any], **given: Any) -> SyntheticRun:
    return SyntheticRun(prompts=20, edits={"spec.workloads[0].dataset": dataset}, **given)


def covered(requested: int, missing: int, lost: str | None = None) -> PromptCoverage:
    """Return prompt coverage in which the category `lost` has no rows left."""
    gone = [CategoryCoverage(category=lost, requested=1, used=0, turns=0, unusable={REASON: 1})] if lost else []
    used = requested - missing
    return PromptCoverage(
        source="speed-bench",
        config="qualitative",
        licence="theirs",
        rows=requested,
        requested=requested,
        used=used,
        turns=used,
        unusable={REASON: missing} if missing else {},
        by_category=[CategoryCoverage(category="code", requested=requested, used=used, turns=used), *gone],
    )


# -- random words ------------------------------------------------------------------------------------------------------

LENGTHS = {"turns": 1, "turnTokens": 16, "answerTokens": 8}
SESSIONS = {"source": "sessions", "count": 20, "sessions": LENGTHS}


@pytest.mark.parametrize("dataset", [SESSIONS, {"source": "mooncake", "uri": "t.jsonl"}], ids=["sessions", "mooncake"])
def test_random_words_make_a_run_untrustworthy(dataset: dict[str, Any]) -> None:
    """Both sources also prescribe the length of the answers, past their natural end."""
    summary = run_of_world(world(dataset))

    assert [(each.check, each.severity, each.workload) for each in summary.findings] == [
        ("RandomPrompts", WARNING, "chat"),
        ("IgnoreEos", INFO, "chat"),
    ]
    assert not summary.trustworthy
    assert summary.headline.startswith("Not trustworthy (RandomPrompts): ")


def test_mix_with_random_words_is_reported_with_their_share() -> None:
    members = [{"name": "code", "weight": 3, "source": "gsm8k"}, {"name": "noise", "weight": 1, **SESSIONS}]
    finding, _ = run_findings(world({"source": "mix", "members": members}))
    assert (finding.check, finding.value) == ("RandomPrompts", 0.25)


RANDOM_ORDER, REAL_ORDER = (WordOrderTest(pairs=8000, repeated=share, shuffled=0.05) for share in (0.052, 0.17))


def ordered(whole: WordOrderTest | None, **by_category: WordOrderTest | None) -> PromptCoverage:
    """Coverage of 100 prompts with the given results of the word-order test."""
    counted = [
        CategoryCoverage(category=name, requested=50, used=50, turns=50, order=order)
        for name, order in by_category.items()
    ]
    return PromptCoverage(
        source="jsonl", rows=100, requested=100, used=100, turns=100, unusable={}, by_category=counted, order=whole
    )


@pytest.mark.parametrize(
    ("coverage", "whose"),
    [
        (ordered(RANDOM_ORDER), "its prompts"),
        (ordered(REAL_ORDER, code=REAL_ORDER, chat=RANDOM_ORDER), "the prompts of chat"),
        (ordered(REAL_ORDER, code=REAL_ORDER, chat=None), None),
        (ordered(None), None),
    ],
)
def test_random_word_order_in_a_users_file_is_a_warning(coverage: PromptCoverage, whose: str | None) -> None:
    found = run_findings(SyntheticRun(prompts=20), Corruptions(coverage={"chat": coverage}))
    assert [(each.check, each.severity) for each in found] == ([("RandomPrompts", WARNING)] if whose else [])
    assert all(f"the words of {whose} are in random order: 5.2% of the pairs" in each.message for each in found)


def findings_of_dataset(dataset: dict[str, Any], folder: Path) -> list[str]:
    """Return the findings on a run with the prompts of this dataset, which is read."""
    synthetic_run = world(dataset)
    coverage = present(load_prompts(synthetic_run.plan.workloads[0].dataset, folder).coverage)
    assert coverage.order is not None, "the dataset is long enough for the word-order test"
    return [each.check for each in run_findings(synthetic_run, Corruptions(coverage={"chat": coverage}))]


@pytest.mark.parametrize("mixed", [False, True])
def test_random_word_order_in_a_file_is_detected_end_to_end(mixed: bool, tmp_path: Path) -> None:
    draw, file = Random(1), tmp_path / "prompts.jsonl"
    words = [f"word{'abcdefgh'[n % 8]}{chr(97 + n // 8)}" for n in range(200)]
    lines = [json.dumps({"id": f"{n}", "prompt": " ".join(draw.choices(words, k=300))}) + "\n" for n in range(30)]
    file.write_text("".join(lines))
    member = {"source": "jsonl", "uri": str(file)}
    dataset = {"source": "mix", "members": [{"name": "all", "weight": 1, **member}]} if mixed else member
    assert findings_of_dataset(dataset, tmp_path) == ["RandomPrompts"]


@pytest.mark.parametrize(
    ("source", "name"),
    [("spec-bench", "spec_bench_question.jsonl"), ("gsm8k", "gsm8k_test.jsonl"), ("humaneval", "HumanEval.jsonl.gz")],
)
def test_published_datasets_are_not_in_random_order(source: str, name: str, tmp_path: Path) -> None:
    file = Path(__file__).resolve().parents[3] / "shared" / "data" / name
    if not file.exists():
        pytest.skip(f"{name} is not available")
    assert findings_of_dataset({"source": source, "uri": str(file)}, tmp_path) == []


# -- short answers, other prompts, one stream --------------------------------------------------------------------------


def test_short_answers_are_info_with_the_share_of_ttft() -> None:
    (finding,) = run_findings(SyntheticRun(prompts=20, tokens=(20, 40)))
    assert (finding.check, finding.severity, finding.workload) == ("ShortAnswers", INFO, "chat")
    assert 20 < present(finding.value) < 40
    assert "of their time is TTFT" in finding.message


@pytest.mark.parametrize(
    ("given", "limits", "expected"),
    [
        ({"concurrency": (1, 8)}, {"none": 4, "ngram": 2}, [(None, 8, 2)]),
        ({"concurrency": (1, 8)}, {"none": 2, "ngram": 4}, [(None, 8, 2)]),
        ({"concurrency": (1, 2)}, {"none": 2, "ngram": 1}, [("ngram", 2, 1)]),
        ({"concurrency": (1, 2)}, {"none": 2, "ngram": None}, []),
        ({"concurrency": (8,), "edits": {"spec.baseline": "Skip"}}, {"ngram": 4}, [("ngram", 8, 4)]),
        ({"concurrency": (4,), "edits": {"spec.workloads[0].thinkTime": {"seconds": 9}}}, {"none": 3.999}, []),
        ({"rate": (0.2,)}, {"none": 1}, []),
        ({"rate": (5.0,)}, {"none": 1}, [("none", pytest.approx(3, abs=2), 1)]),
    ],
)
def test_loads_above_the_limit_of_a_server_are_info(
    given: dict[str, Any], limits: dict[str, float | None], expected: list[tuple[str | None, float, int]]
) -> None:
    launches = tuple(observed_launch(arm, max_running_requests=limit) for arm, limit in limits.items())
    summary = run_of_world(SyntheticRun(prompts=40, **given), Corruptions(launches=launches))
    found = [each for each in summary.findings if each.check == "RequestsQueued"]
    assert [(each.arm, each.value, each.threshold) for each in found] == expected
    assert {each.severity for each in found} <= {INFO}
    if found and found[0].arm is None:
        assert all(f"{limit} of 8 on {arm}" in found[0].message for arm, limit in limits.items())


@pytest.mark.parametrize(
    ("given", "noted"),
    [
        ({"concurrency": (1,)}, True),
        ({"concurrency": (1, 2)}, False),
        ({"rate": (0.2,)}, True),
        ({"rate": (5.0,)}, False),
        ({"concurrency": (1,), "edits": {"spec.baseline": "Skip"}}, False),
    ],
)
def test_run_with_a_single_stream_is_info(given: dict[str, Any], noted: bool) -> None:
    found = run_findings(SyntheticRun(prompts=40, **given), one_stream=True)
    assert [each.severity for each in found if each.check == "SingleStreamOnly"] == [INFO] * noted


@pytest.mark.parametrize(("every", "found"), [(1, ["PromptTokensDiffer"]), (10, ["PromptTokensDiffer"]), (1000, [])])
def test_different_prompt_tokens_invalidate_the_comparison(every: int, found: list[str]) -> None:
    def longer(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        if point.arm == "none":
            return frame
        numbered = enumerate(frame["input_tokens"])
        return frame.assign(input_tokens=[tokens + 7 * (place % every == 0) for place, tokens in numbered])

    seen = run_of_world(SyntheticRun(prompts=40), Corruptions(records=longer)).findings

    assert [each.check for each in seen if each.severity is Severity.INVALID] == found
    assert all("median difference +7" in each.message for each in seen)


def test_category_of_few_prompts_is_info_and_has_no_intervals() -> None:
    synthetic_run = SyntheticRun(prompts=24, categories=("code", "code", "code", "code", "code", "chat", "code"))
    summary = run_of_world(synthetic_run)
    (finding,) = summary.findings
    assert (finding.check, finding.severity, finding.value) == ("TooFewPrompts", INFO, 3)
    assert "fewer than 5 different prompts: chat (3)." in finding.message
    (by_category,) = (cell.by_category for cell in summary.cells if cell.arm != "none")
    assert by_category["chat"]["speedup"].value is not None
    assert all(figure.interval is None for figure in by_category["chat"].values())
    assert by_category["code"]["speedup"].interval is not None


# -- missing rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coverage", "expected"),
    [
        (covered(100, 0), []),
        (covered(100, 4), [INFO]),
        (covered(100, 5), [WARNING]),
        (covered(100, 1, lost="rag"), [WARNING]),
    ],
)
def test_missing_rows_are_info_and_many_are_a_warning(coverage: PromptCoverage, expected: list[Severity]) -> None:
    found = run_findings(SyntheticRun(prompts=20), Corruptions(coverage={"chat": coverage}))
    assert [(each.check, each.severity) for each in found] == [("DatasetRowsMissing", each) for each in expected]
    assert all(f"left out (allowMissing): {coverage.unusable[REASON]} x {REASON}" in each.message for each in found)
    lost = [each.category for each in coverage.by_category if not each.used]
    assert all(("no rows are left of rag" in each.message) == bool(lost) for each in found)


def test_tables_describe_the_prompts_and_missing_rows() -> None:
    coverage = {"chat": covered(100, 7, lost="rag")}
    summary = run_of_world(SyntheticRun(prompts=20), Corruptions(coverage=coverage))
    assert summary.coverage == coverage
    assert coverage_table(summary).title in markdown(SyntheticRun(prompts=20).plan, summary)
    rows = coverage_table(summary).rows
    assert rows[0][:4] == ["chat", "all", "100", "93"]
    assert rows[0][-1] == f"7 x {REASON}"
    assert [row[1] for row in rows] == ["all", "code", "rag"]


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ({"source": "jsonl", "uri": "p.jsonl"}, "p.jsonl (jsonl)"),
        (
            {"source": "jsonl", "uri": "p.jsonl", "count": 8, "categories": ["a", "b"], "seed": 0},
            "p.jsonl (jsonl, 8 prompts, only a, b, seed 0)",
        ),
        (
            {"source": "speed-bench", "config": "throughput_8k", "entropy": ["Low"], "revision": "abc"},
            "speed-bench throughput_8k, entropy low, revision abc",
        ),
        (
            {
                "source": "mix",
                "members": [
                    {"name": "a", "weight": 1, "source": "gsm8k"},
                    {"name": "b", "weight": 3, "source": "mbpp"},
                ],
            },
            "mix: 25% a: gsm8k; 75% b: mbpp",
        ),
    ],
)
def test_requested_dataset_is_described_in_one_line(dataset: dict[str, Any], expected: str) -> None:
    assert dataset_text(world(dataset).plan.workloads[0].dataset) == expected


# -- unexpected answer lengths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "found"), [({"min": 40, "max": 80}, []), ({"max": 20}, ["code"]), ({"min": 200}, ["code"])]
)
def test_answers_outside_a_members_range_are_info(expected: dict[str, int], found: list[str]) -> None:
    members = [
        {"name": "code", "weight": 1, "source": "gsm8k", "outputTokens": expected},
        {"name": "chat", "weight": 1, "source": "mbpp"},
    ]
    seen = run_of_world(world({"source": "mix", "members": members})).findings

    assert {(each.check, each.severity) for each in seen} == ({("UnexpectedOutputLengths", INFO)} if found else set())
    assert all("the median answer of code has" in each.message for each in seen)


# -- logged requests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "messages"),
    [
        ({"temperatures": {"0": 6, "0.7": 4}, "output_tokens_median": 80}, []),
        ({"temperatures": {"default": 10}}, []),
        (
            {"temperatures": {"0.7": 6, "0": 4}},
            ["6 of 10 logged requests have a temperature other than 0, most often 0.7"],
        ),
        (
            {"temperatures": {"0": 1}, "output_tokens_median": 300},
            ["the log's median answer has 300 tokens, but output.maxTokens is 80"],
        ),
    ],
)
def test_sampling_that_differs_from_the_log_is_info(recorded: dict[str, Any], messages: list[str]) -> None:
    coverage = covered(100, 0).model_copy(update={"recorded": RequestLogStats(**recorded)})
    seen = run_findings(SyntheticRun(prompts=20), Corruptions(coverage={"chat": coverage}))
    assert [each.message for each in seen] == messages
    assert {(each.check, each.severity) for each in seen} <= {("SamplingDiffersFromLog", INFO)}


# -- end to end --------------------------------------------------------------------------------------------------------


@pytest.mark.process
async def test_unusable_rows_are_reported_end_to_end(tmp_path: Path) -> None:
    lines = [{"messages": [{"role": "user", "content": f"Why {n}?"}]} for n in range(8)]
    tools = [{"messages": [{"role": "user", "content": "Look it up"}], "tools": [{"type": "function"}]}]
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines + tools))
    dataset = {"source": "openai-logs", "uri": str(file), "allowMissing": True}
    load = {"concurrency": [2], "repeats": 1, "warmupRequests": 0}
    plan = plan_of(file, {"spec.load": load, "spec.workloads[0].dataset": dataset, "spec.drafters": []})
    store = FolderStore(tmp_path / "results")
    async with simulator(tmp_path / "truth.jsonl") as engine:
        options = DriveOptions(attempt="0")
        await drive_group(plan, plan.groups[0], engine.url, store, options)
    (coverage,) = conclude(plan, store).coverage.values()
    assert (coverage.requested, coverage.used) == (9, 8)
    assert list(coverage.unusable.values()) == [1]
