"""What is wrong with the prompts themselves: random words, rows that are missing, answers of another length."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.coverage import CategoryCoverage, Coverage, Recorded, WordOrder
from specbench_api.outcome.finding import Severity
from specbench_api.plan.plan import Point
from specbench_client.drive.conclude import conclude
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.report.coverage import coverage_rows, told
from specbench_client.report.html import render_html
from specbench_client.report.tables import markdown
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.drafters import Method, drafter
from specbench_client.store.folder import FolderStore
from specbench_client.workload.prompts import load_prompts
from specbench_testing.driving import plan_of, simulator
from specbench_testing.records import Lies, World, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")

DOUBT, NOTE = Severity.DOUBT, Severity.NOTE
REASON = "placeholder: its licence does not let the text be passed on"


def world(dataset: dict[str, Any], **given: Any) -> World:
    return World(prompts=20, edits={"spec.workloads[0].dataset": dataset}, **given)


def covered(asked: int, missing: int, lost: str | None = None) -> Coverage:
    """`lost`: a category of which nothing is left."""
    gone = [CategoryCoverage(category=lost, asked=1, used=0, turns=0, left_out={REASON: 1})] if lost else []
    used = asked - missing
    return Coverage(
        source="speed-bench",
        config="qualitative",
        licence="theirs",
        rows=asked,
        asked=asked,
        used=used,
        turns=used,
        left_out={REASON: missing} if missing else {},
        by_category=[CategoryCoverage(category="code", asked=asked, used=used, turns=used), *gone],
    )


# -- random words ------------------------------------------------------------------------------------------------------

RANDOM = {"source": "random", "allowRandom": True, "count": 20}


def test_random_words_make_a_run_untrustworthy_whatever_else_is_well() -> None:
    summary = run_of_world(world(RANDOM))

    assert [(each.check, each.severity, each.workload) for each in summary.findings] == [
        ("RandomPrompts", DOUBT, "chat")
    ]
    assert not summary.trustworthy
    assert "not trustworthy (RandomPrompts)" in summary.verdict


def test_a_mix_with_random_words_is_told_with_their_share() -> None:
    members = [
        {"name": "code", "weight": 3, "source": "gsm8k"},
        {"name": "noise", "weight": 1, **RANDOM},
    ]
    (finding,) = run_of_world(world({"source": "mix", "members": members})).findings

    assert (finding.check, finding.value) == ("RandomPrompts", 0.25)
    assert finding.message.startswith("25% of the prompts of workload 'chat' are random words")


RANDOM_ORDER, REAL_ORDER = (WordOrder(pairs=8000, repeated=share, shuffled=0.05) for share in (0.052, 0.17))


def ordered(whole: WordOrder | None, **by_category: WordOrder | None) -> Coverage:
    """100 prompts, with what their words told."""
    counted = [
        CategoryCoverage(category=name, asked=50, used=50, turns=50, order=order) for name, order in by_category.items()
    ]
    return Coverage(
        source="jsonl", rows=100, asked=100, used=100, turns=100, left_out={}, by_category=counted, order=whole
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
def test_random_words_in_a_file_of_ones_own_are_doubted(coverage: Coverage, whose: str | None) -> None:
    found = run_of_world(World(prompts=20), Lies(coverage={"chat": coverage})).findings

    assert [(each.check, each.severity) for each in found] == ([("RandomPrompts", DOUBT)] if whose else [])
    assert all(f"the words of {whose} stand in random order: 5.2% of the pairs" in each.message for each in found)


@pytest.mark.parametrize("mixed", [False, True])
def test_random_words_are_found_from_the_file_to_the_verdict(mixed: bool, tmp_path: Path) -> None:
    draw, file = Random(1), tmp_path / "prompts.jsonl"
    texts = [
        " ".join(draw.choices([f"word{'abcdefgh'[n % 8]}{chr(97 + n // 8)}" for n in range(200)], k=300))
        for _ in range(30)
    ]
    file.write_text("".join(json.dumps({"id": f"{n}", "prompt": text}) + "\n" for n, text in enumerate(texts)))
    member = {"source": "jsonl", "uri": str(file)}
    dataset = {"source": "mix", "members": [{"name": "all", "weight": 1, **member}]} if mixed else member
    wanted = world(dataset)
    coverage = load_prompts(wanted.plan.workloads[0].dataset, tmp_path).coverage
    assert coverage is not None

    assert [each.check for each in run_of_world(wanted, Lies(coverage={"chat": coverage})).findings] == [
        "RandomPrompts"
    ]


@pytest.mark.parametrize(
    ("source", "name"),
    [("spec-bench", "spec_bench_question.jsonl"), ("gsm8k", "gsm8k_test.jsonl"), ("humaneval", "HumanEval.jsonl.gz")],
)
def test_the_published_sets_stand_in_order(source: str, name: str, tmp_path: Path) -> None:
    file = Path(__file__).resolve().parents[3] / "shared" / "data" / name
    if not file.exists():
        pytest.skip(f"{name} is not here")
    wanted = world({"source": source, "uri": str(file)})
    coverage = load_prompts(wanted.plan.workloads[0].dataset, tmp_path).coverage
    assert coverage is not None
    assert coverage.order is not None, "they are long enough to be judged"
    assert run_of_world(wanted, Lies(coverage={"chat": coverage})).findings == []


# -- short answers, other prompts, one stream --------------------------------------------------------------------------


def test_short_answers_are_noted_with_the_share_of_the_first_token() -> None:
    (finding,) = run_of_world(World(prompts=20, tokens=(20, 40))).findings

    assert (finding.check, finding.severity, finding.workload) == ("ShortAnswers", NOTE, "chat")
    assert finding.value is not None
    assert 20 < finding.value < 40
    assert "of their time is the first one's" in finding.message


@pytest.mark.parametrize(
    ("given", "noted"),
    [
        ({"concurrency": (1,)}, True),
        ({"concurrency": (1, 2)}, False),
        ({"rate": (0.2,)}, True),
        ({"rate": (5.0,)}, False),
    ],
)
def test_a_run_that_knows_one_stream_alone_is_noted(given: dict[str, Any], noted: bool) -> None:
    found = run_of_world(World(prompts=40, **given), one_stream=True).findings

    assert [each.severity for each in found if each.check == "OneStream"] == [NOTE] * noted


@pytest.mark.parametrize(("every", "found"), [(1, ["PromptTokensDiffer"]), (10, ["PromptTokensDiffer"]), (1000, [])])
def test_other_prompt_tokens_than_the_baselines_break_the_comparison(every: int, found: list[str]) -> None:
    def longer(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        if point.arm == "none":
            return frame
        numbered = enumerate(frame["input_tokens"])
        return frame.assign(input_tokens=[tokens + 7 * (place % every == 0) for place, tokens in numbered])

    seen = run_of_world(World(prompts=40), Lies(records=longer)).findings

    assert [each.check for each in seen if each.severity is Severity.INVALID] == found
    assert all("the median difference is +7" in each.message for each in seen)


def test_a_category_of_few_prompts_is_noted_and_told_without_intervals() -> None:
    wanted = World(prompts=24, categories=("code", "code", "code", "code", "code", "chat", "code"))
    summary = run_of_world(wanted)

    (finding,) = summary.findings
    assert (finding.check, finding.severity, finding.value) == ("FewPrompts", NOTE, 3)
    assert "fewer than 5 different prompts: chat (3)." in finding.message
    (arm,) = (cell for cell in summary.cells if cell.arm != "none")
    chat, code = arm.by_category["chat"], arm.by_category["code"]
    assert chat["speedup"].value is not None
    assert all(figure.interval is None for figure in chat.values())
    assert code["speedup"].interval is not None
    assert arm.claims is not None
    assert arm.claims.by_category["chat"] == "no interval"


# -- rows that are missing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coverage", "expected"),
    [
        (covered(100, 0), []),
        (covered(100, 4), [("PartialCoverage", NOTE)]),
        (covered(100, 5), [("PartialCoverage", DOUBT)]),
        (covered(100, 1, lost="rag"), [("PartialCoverage", DOUBT)]),
    ],
)
def test_rows_that_are_missing_are_noted_and_many_doubted(
    coverage: Coverage, expected: list[tuple[str, Severity]]
) -> None:
    summary = run_of_world(World(prompts=20), Lies(coverage={"chat": coverage}))

    assert [(each.check, each.severity) for each in summary.findings] == expected
    assert summary.coverage == {"chat": coverage}


def test_the_message_says_how_many_why_and_which_categories_are_gone() -> None:
    lies = Lies(coverage={"chat": covered(100, 1, lost="rag")})
    (finding,) = run_of_world(World(prompts=20), lies).findings

    assert finding.message == (
        "of 100 rows that workload 'chat' asks for, 1 (1%) were left out (allowMissing):"
        f" 1 x {REASON}; nothing is left of rag"
    )


@pytest.mark.usefixtures("undrawn")
def test_page_and_table_say_what_the_prompts_are_and_what_is_missing() -> None:
    wanted = World(prompts=20)
    summary = run_of_world(wanted, Lies(coverage={"chat": covered(100, 7, lost="rag")}))

    page, text = render_html(wanted.plan, summary), markdown(wanted.plan, summary)

    assert (
        f'<td>chat</td><td>all</td><td class="n">100</td><td class="n">93</td><td class="n">93</td><td>7 x {REASON}'
        in page
    )
    assert "Licence: theirs" in page
    assert f"- chat: 93 prompts of 100 rows that were asked for; left out: 7 x {REASON}" in text
    assert [row.category for row in coverage_rows(summary)] == ["all", "code", "rag"]


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        ({"source": "jsonl", "uri": "p.jsonl"}, "p.jsonl (jsonl)"),
        (
            {"source": "jsonl", "uri": "p.jsonl", "count": 8, "categories": ["a", "b"], "seed": 0},
            "p.jsonl (jsonl, 8 prompts, only a, b, seed 0)",
        ),
        (
            {"source": "speed-bench", "config": "throughput_8k", "turns": 9, "entropy": ["low"], "revision": "abc"},
            "speed-bench throughput_8k, 9 turns, entropy low, revision abc",
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
def test_what_was_asked_for_is_told_in_one_line(dataset: dict[str, Any], says: str) -> None:
    assert told(world(dataset).plan.workloads[0].dataset) == says


# -- answers of another length -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "found"), [({"min": 40, "max": 80}, []), ({"max": 20}, ["code"]), ({"min": 200}, ["code"])]
)
def test_answers_outside_a_members_range_are_noted(expected: dict[str, int], found: list[str]) -> None:
    members = [
        {"name": "code", "weight": 1, "source": "gsm8k", "outputTokens": expected},
        {"name": "chat", "weight": 1, "source": "mbpp"},
    ]
    seen = run_of_world(world({"source": "mix", "members": members})).findings

    assert {(each.check, each.severity) for each in seen} == ({("UnexpectedLengths", NOTE)} if found else set())
    assert all("the median answer of code has" in each.message for each in seen)


# -- logged requests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "messages"),
    [
        ({"temperatures": {"0": 6, "0.7": 4}, "output_tokens_median": 80}, []),
        ({"temperatures": {"default": 10}}, []),
        (
            {"temperatures": {"0.7": 6, "0": 4}},
            ["workload 'chat': 6 of 10 logged requests had a temperature other than 0, most 0.7"],
        ),
        (
            {"temperatures": {"0": 1}, "output_tokens_median": 300},
            ["workload 'chat': the log's median answer has 300 tokens, and output.maxTokens is 80"],
        ),
    ],
)
def test_a_log_that_is_sent_otherwise_than_it_was_is_noted(recorded: dict[str, Any], messages: list[str]) -> None:
    coverage = covered(100, 0).model_copy(update={"recorded": Recorded(**recorded)})
    seen = run_of_world(World(prompts=20), Lies(coverage={"chat": coverage})).findings

    assert [each.message for each in seen] == messages
    assert {(each.check, each.severity) for each in seen} <= {("UnlikeLog", NOTE)}


# -- all the way -------------------------------------------------------------------------------------------------------


@pytest.mark.process
async def test_what_was_left_out_goes_the_whole_way_from_the_file_to_the_answer(tmp_path: Path) -> None:
    lines = [{"messages": [{"role": "user", "content": f"Why {n}?"}]} for n in range(8)]
    tools = [{"messages": [{"role": "user", "content": "Look it up"}], "tools": [{"type": "function"}]}]
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines + tools))
    dataset = {"source": "openai-logs", "uri": str(file), "allowMissing": True}
    load = {"concurrency": [2], "repeats": 1, "warmupRequests": 0}
    plan = plan_of(file, {"spec.load": load, "spec.workloads[0].dataset": dataset})
    store = FolderStore(tmp_path / "results")
    for group in plan.groups:
        drafting = drafter(Method.NGRAM, 3) if plan.arm(group.arm).drafter else drafter(Method.NONE, 0)
        config = SimulatorConfig(time_scale=0, drafter=drafting)
        async with simulator(tmp_path / f"truth-{group.index}.jsonl", config) as engine:
            options = DriveOptions(attempt=f"{group.index}", spool=tmp_path / "spool")
            await drive_group(plan, group, engine.url, store, options)

    summary = conclude(plan, store)

    (coverage,) = summary.coverage.values()
    assert (coverage.asked, coverage.used) == (9, 8)
    (why,) = coverage.left_out
    assert why.startswith("tools: only chatTemplate.appliedBy: Client sends them")
    assert coverage.left_out[why] == 1
    assert "PartialCoverage" in [finding.check for finding in summary.findings]
    assert b"tools: only chatTemplate.appliedBy" in (store.get("report.html") or b"")
