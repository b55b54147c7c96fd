"""A run by `specbench run` on a real engine: its results, and each point with its records and engine counters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from specbench_client.documents.summary import CounterDeltas, PointSummary
from specbench_testing.engine_witness import Exchange, WitnessedLaunch, hit_shares_by_depth, witnessed_launches
from specbench_testing.shared_files import shared_file

FINISHED = (0, 3)
DEPTHS = (0, 1, 256, 1024, 4096)
"""Lower bounds of the documented classes of depth."""
TEMPLATE_TOKENS = 32
"""More than the chat template of the models puts before every prompt."""


@dataclass(frozen=True)
class Point:
    """The summary of a point, and every request of its load, including fillers, because the engine counts them."""

    summary: PointSummary
    records: pd.DataFrame

    @property
    def counters(self) -> CounterDeltas:
        assert self.summary.counters is not None
        return self.summary.counters

    def total(self, column: str) -> int:
        """The sum over all requests."""
        return int(self.records[column].sum())


@dataclass(frozen=True)
class RealRun:
    """The results, and the points by arm."""

    answer: dict[str, Any]
    points: dict[str, list[Point]]

    @property
    def checks(self) -> set[str]:
        """Names of the checks with findings."""
        return {finding["check"] for finding in self.answer["findings"]}


def run_here(
    folder: Path, spec: Mapping[str, Any], prompts: Sequence[str | Sequence[str]], timeout_s: float
) -> RealRun:
    """Measure in this folder with the command line. `prompts`: one turn, or several, each."""
    rows = [
        {"id": f"p{number}", "category": "text", "turns": [text] if isinstance(text, str) else list(text)}
        for number, text in enumerate(prompts)
    ]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = {
        "apiVersion": "specbench.io/v1alpha1",
        "kind": "SpecBenchRun",
        "metadata": {"name": "real"},
        "spec": {"results": {"s3": {"bucket": "bench-results"}}, **spec},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    specbench = str(Path(sys.executable).with_name("specbench"))
    command = [specbench, "run", "run.yaml", "--results", "out", "--output", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode in FINISHED, done.stderr
    points: dict[str, list[Point]] = {}
    for path in sorted((folder / "out").rglob("points/*/summary.json")):
        point = _point(path)
        points.setdefault(point.summary.arm, []).append(point)
    return RealRun(json.loads(done.stdout), points)


def launches_by_arm(run: RealRun, folder: Path) -> dict[str, WitnessedLaunch]:
    """The recorded launch of each arm, found by the ids of its requests."""
    found = witnessed_launches(folder)
    return {arm: _launch_of(point, found) for arm, (point,) in run.points.items()}


def _launch_of(point: Point, launches: Sequence[WitnessedLaunch]) -> WitnessedLaunch:
    wanted = set(point.records.request_id)
    return next(one for one in launches if {each.request_id for each in one.exchanges} >= wanted)


REUSE_PROMPTS = (
    ("Name a colour.", "Repeat that colour five times, please."),
    ("Which animal is the largest on land, and what does it eat in the dry season?", "And in water?"),
    ("Write one sentence about a lighthouse.", "Write it again."),
)
"""Short conversations: behind a system prompt, almost all of a prompt is shared."""


def reuse_spec(**fields: Any) -> dict[str, Any]:
    """A run with prompt caches as served: behind a system prompt of 1,000 tokens, and without one."""
    common = {"dataset": {"source": "jsonl", "uri": "prompts.jsonl"}, "output": {"maxTokens": 12}}
    return {
        **fields,
        "promptCache": "AsServed",
        "workloads": [
            {"name": "assistant", "systemPrompt": {"tokens": 1000}, **common},
            {"name": "bare", **common},
        ],
        "load": {"concurrency": [2], "repeats": 1, "warmupRequests": 0},
    }


@dataclass(frozen=True)
class WitnessedPoint:
    """A point, and the part of its launch between its two pages of counters."""

    point: Point
    launch: WitnessedLaunch

    @property
    def steady(self) -> list[Exchange]:
        """The answers of the steady state."""
        records = self.point.records
        return self.launch.answers_to(records.request_id[records.phase == "steady"])


def compare_reuse_with_answers(run: RealRun, folder: Path) -> dict[tuple[str, str], WitnessedPoint]:
    """Compare each point's records and counters, and each cell's reuse by depth, with the engine's own answers.

    Returns the points by workload and arm.
    """
    launches = witnessed_launches(folder)
    found = {}
    for arm, points in run.points.items():
        for point in points:
            launch = _launch_of(point, launches).during(point.records.request_id)
            assert point.records.error_class.isna().all()
            answers = launch.answers
            assert {answer.request_id for answer in answers} == set(point.records.request_id)
            cached, prompt = (sum(each) for each in zip(*(one.prompt_tokens for one in answers), strict=True))
            assert (point.counters.cached_tokens, point.total("cached_tokens")) == (cached, cached)
            assert (point.counters.prompt_tokens, point.total("input_tokens")) == (prompt, prompt)
            first = point.records.sort_values("sent_ns").cached_tokens.iloc[0]
            assert first < TEMPLATE_TOKENS, "the cache is empty, except for the request that checked the launch"
            found[point.summary.workload, arm] = WitnessedPoint(point, launch)
    for cell in run.answer["cells"]:
        if cell["arm"] == "none":
            continue
        own, baseline = (found[cell["workload"], each].steady for each in (cell["arm"], "none"))
        reported = [(each["pairs"], each["hitShare"], each["baselineHitShare"]) for each in cell["reuse"]["byDepth"]]
        expected = hit_shares_by_depth(own, baseline, DEPTHS)
        assert reported == [pytest.approx(each, rel=1e-12) for each in expected]
    return found


THINGS = ("Describe an apple as JSON.", "Describe a lemon as JSON.", "Describe a carrot as JSON.")
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "maxLength": 12}, "count": {"type": "integer"}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {"name": "describe", "description": "Describe a thing.", "parameters": SCHEMA, "strict": True},
}
"""Without `strict`, vLLM forces a call but not its arguments."""


def check_judged_answers(folder: Path, fields: Mapping[str, Any], timeout_s: float, *, calls_tools: bool) -> None:
    """Run JSON in a schema, tool calls and GSM8K at 1 and 8 streams; check what was judged against the raw answers.

    `fields`: model, engine and one drafter of the run. `calls_tools`: whether the engine enforces `tool_choice`. The
    model is too small for GSM8K, and is stopped after a sentence: both arms must fail on the same questions.
    """
    rows = shared_file("data", "gsm8k_test.jsonl").read_text().splitlines()[:3]
    (folder / "gsm8k.jsonl").write_text("\n".join(rows) + "\n")
    expected = {f"line-{number}": json.loads(row)["answer"].split("#### ")[1] for number, row in enumerate(rows, 1)}
    things = {"source": "jsonl", "uri": "prompts.jsonl"}
    spec = {
        **fields,
        "workloads": [
            {"name": "json", "dataset": things, "output": {"maxTokens": 32}, "answers": {"jsonSchema": SCHEMA}},
            {"name": "tools", "dataset": things, "output": {"maxTokens": 96}, "answers": {"tools": [TOOL]},
             "extraBody": {"tool_choice": "required"}},
            {"name": "gsm8k", "dataset": {"source": "gsm8k", "uri": "gsm8k.jsonl"}, "output": {"maxTokens": 40},
             "answers": {"expected": {"match": "Number"}}, "extraBody": {"stop": ["."]}},
        ],
        "load": {"concurrency": [1, 8], "repeats": 2, "warmupRequests": 0},
    }  # fmt: skip
    run = run_here(folder, spec, THINGS, timeout_s)
    is_right: dict[str, Callable[[Exchange, str], bool]] = {
        "json": lambda answer, _: _is_thing(answer.content),
        "tools": lambda answer, _: bool(answer.calls) and all(
            name == "describe" and _is_thing(arguments) for name, arguments in answer.calls
        ),
        "gsm8k": lambda answer, prompt_id: _last_number(answer.content) == expected[prompt_id].replace(",", ""),
    }  # fmt: skip
    judged = _compare_judged_with_answers(run, folder / "witness", is_right)
    assert set(judged) == {(workload, streams) for workload in is_right for streams in (1, 8)}
    for (workload, streams), counted in judged.items():
        if workload == "gsm8k":
            assert 0 < counted["flaws"]["WrongAnswer"] <= counted["flawed"]
        elif workload == "tools":
            assert counted["flawed"] == counted["baselineFlawed"]
            assert (counted["flawed"] < counted["pairs"]) == calls_tools
            assert not calls_tools or set(counted["flaws"]) <= {"Unfinished"}
        else:
            assert (counted["flawed"], counted["baselineFlawed"]) == (0, 0)
        if streams == 1:
            assert (counted["onlyArm"], counted["onlyBaseline"], counted["control"]) == (0, 0, 0)
    assert "AnswersWorse" not in run.checks
    # Wrong answers are the model's, so only calls that are missing on both sides are reported.
    assert ("AnswersFlawed" in run.checks) == (not calls_tools)


def _is_thing(text: str) -> bool:
    """Whether a text is a document that matches SCHEMA."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    if not isinstance(found, dict) or set(found) != {"colour", "count"}:
        return False
    colour, count = found["colour"], found["count"]
    return isinstance(colour, str) and len(colour) <= 12 and type(count) is int


def _last_number(text: str) -> str | None:
    """The number after the last mark of GSM8K, else the last number of a text."""
    found = re.findall(r"####\s*\$?([\d,]+)(?![\s\S]*####)", text) or re.findall(r"\d[\d,]*", text)
    return found[-1].strip(",").replace(",", "") if found else None


GENERAL_FLAWS = {"Empty", "BrokenText", "Loop"}
"""Flaws of any text, which come before those of what a workload demands."""


def _compare_judged_with_answers(
    run: RealRun, folder: Path, is_right: Mapping[str, Callable[[Exchange, str], bool]]
) -> dict[tuple[str, int], dict[str, Any]]:
    """Compare judged records and cells with a second reading of the engine's own answers.

    `is_right`: by workload, whether an answer is what the prompt of this id demands. Returns `judged` of each cell by
    workload and streams.
    """
    launches = witnessed_launches(folder)
    flawed: dict[tuple[str, str, int], dict[str, bool]] = {}
    for points in run.points.values():
        for point in points:
            workload, records = point.summary.workload, point.records[point.records.phase == "steady"]
            answers = _launch_of(point, launches).answers_to(records.request_id)
            assert records.judged.all()
            key = (point.summary.arm, workload, point.summary.level.concurrency or 0)
            for answer, prompt_id, flaw in zip(answers, records.prompt_id, records.flaw, strict=True):
                found = None if pd.isna(flaw) else str(flaw)
                if found not in GENERAL_FLAWS:
                    assert (found is None) == is_right[workload](answer, prompt_id), (answer.text, found)
                flawed.setdefault(key, {})[f"{point.summary.repeat}/{answer.turn}"] = found is not None
    judged = {}
    for cell in run.answer["cells"]:
        if cell["arm"] == "none":
            continue
        load = (cell["workload"], cell["level"]["concurrency"])
        own, baseline = flawed[cell["arm"], *load], flawed["none", *load]
        pairs = [(own[turn], baseline[turn]) for turn in own if turn in baseline]
        expected = {
            "pairs": len(pairs),
            "flawed": sum(mine for mine, _ in pairs),
            "baselineFlawed": sum(theirs for _, theirs in pairs),
            "onlyArm": sum(mine and not theirs for mine, theirs in pairs),
            "onlyBaseline": sum(theirs and not mine for mine, theirs in pairs),
        }
        judged[load] = cell["judged"]
        assert {name: cell["judged"][name] for name in expected} == expected
    return judged


def _point(path: Path) -> Point:
    files = sorted((path.parent / "records").glob("*.parquet"))
    records = pd.concat(pd.read_parquet(file) for file in files)
    return Point(PointSummary.model_validate_json(path.read_text()), records[records.phase != "warmup"])
