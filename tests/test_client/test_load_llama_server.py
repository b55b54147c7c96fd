"""Client against the real llama.cpp server: records are compared with the server's counters."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from specbench_api.launch.launcher import HEALTH_PATH, LaunchRequest
from specbench_api.launch.llama_cpp import LlamaCppLauncher
from specbench_api.spec.drafter import Drafter, Method
from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.model import Target
from specbench_api.spec.workload import Output
from specbench_client.chat import ChatMessage
from specbench_client.documents.record import Record
from specbench_client.documents.summary import CounterDeltas
from specbench_client.drive.engine_connection import first_completion
from specbench_client.local.engine_process import EngineProcess
from specbench_client.transport.control_client import ControlClient
from specbench_client.transport.http_transport import KernelTransport
from specbench_testing.conversation_turns import context, row
from specbench_testing.engine_witness import (
    Exchange,
    WitnessedLaunch,
    WitnessedStep,
    conditional_rate,
    joint_rate,
    steps_reaching,
    witnessed_command,
)
from specbench_testing.load_loops import DrivenEngine
from specbench_testing.long_cases import long_after
from specbench_testing.real_engine_run import RealRun, launches_by_arm, run_here

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]

ROWS = [
    row("loop", 'Write the sentence "The quick brown fox jumps over the lazy dog." again and again.'),
    row("talk", "Name a colour.", "Repeat that colour five times."),
    row("emoji", "Write ten different emojis, nothing else. Like 😀🎉🚀"),
    row("short", "Say hi."),
]
CUSTOM = {
    "ngram-map-k": ["--spec-ngram-map-k-size-n=4"],
    "ngram-map-k4v": ["--spec-ngram-map-k4v-size-n=4"],
    "ngram-mod": ["--spec-ngram-mod-n-match=6", "--spec-ngram-mod-n-min=2"],
    "ngram-cache": list[str](),
}
"""N-gram types that only llama.cpp has, with settings suitable for short answers."""


def arms(drafter: str) -> dict[str, Drafter | None]:
    return {
        "none": None,
        "ngram": Drafter(name="ngram", method=Method.NGRAM, num_speculative_tokens=8),
        "draft": Drafter(name="draft", method=Method.DRAFT_MODEL, model=drafter, num_speculative_tokens=3),
        **{name: custom(name, args) for name, args in CUSTOM.items()},
    }


def custom(name: str, args: list[str]) -> Drafter:
    return Drafter(name=name, method=Method.CUSTOM, algorithm=name, num_speculative_tokens=8, args=args)


@asynccontextmanager
async def serving(demo_models: dict[str, str], arm: str, folder: Path) -> AsyncIterator[DrivenEngine]:
    engine = Engine(kind=EngineKind.LLAMA_CPP, args=["--threads", "1", "--ctx-size", "4096"])
    drafter = arms(demo_models["drafter"])[arm]
    launch = LlamaCppLauncher().launch(
        LaunchRequest(engine, Target(name="smol", path=demo_models["target"]), drafter, slots=2)
    )
    async with (
        EngineProcess(launch, folder, folder / "engine.log") as process,
        KernelTransport() as transport,
        ControlClient(process.url) as control,
    ):
        await control.wait_healthy(HEALTH_PATH, deadline_s=240)
        changed = {"model": "smol", "drafting": drafter is not None, "output": Output(max_tokens=48)}
        turn_context = context(transport, process.url, EngineKind.LLAMA_CPP, **changed)
        yield DrivenEngine(turn_context, control)


Texts = list[tuple[str, int, str | None]]


def texts_of(records: Sequence[Record]) -> Texts:
    assert [record.error for record in records if record.error] == []
    return [(record.prompt_id, record.turn, record.output_sha256) for record in records]


@pytest.fixture(scope="module")
def undrafted() -> list[Texts]:
    """The engine's texts without a drafter; empty until a test has measured them."""
    return []


async def texts_without_drafter(undrafted: list[Texts], demo_models: dict[str, str], folder: Path) -> Texts:
    """Return the texts, measured with two streams and then with one; the engine starts once."""
    if not undrafted:
        async with serving(demo_models, "none", folder) as site:
            assert await site.speculating() is False
            await first_completion(site.context, [ChatMessage("user", "hi")])
            records, counted = await site.counted_drive(ROWS, 2)
            assert_records_match_the_counters(records, counted)
            assert {record.drafted_tokens for record in records} == {None}
            records, _ = await site.counted_drive(ROWS, 1)
        undrafted.append(texts_of(records))
    return undrafted[0]


def assert_records_match_the_counters(records: Sequence[Record], counted: CounterDeltas) -> None:
    assert [record.error for record in records if record.error] == []
    assert len(records) == len(ROWS) + 1
    for record in records:
        assert record.output_tokens == record.output_tokens_client
        assert record.steps is not None
        assert record.cached_tokens == 0
    assert counted.output_tokens == sum(record.output_tokens or 0 for record in records)
    assert counted.prompt_tokens == sum(record.input_tokens or 0 for record in records)


@pytest.mark.parametrize("arm", long_after(3, ["ngram", "draft", *CUSTOM]))
async def test_records_match_the_engines_counters_and_drafters_do_not_change_the_text(
    arm: str, demo_models: dict[str, str], undrafted: list[Texts], tmp_path: Path
) -> None:
    expected = await texts_without_drafter(undrafted, demo_models, tmp_path)
    async with serving(demo_models, arm, tmp_path) as site:
        assert await site.speculating()
        alone, counted_alone = await site.counted_drive(ROWS, 1)
        records, counted = await site.counted_drive(ROWS, 2)
    assert texts_of(alone) == expected
    for measured, deltas in ((records, counted), (alone, counted_alone)):
        assert_records_match_the_counters(measured, deltas)
        assert deltas.drafted_tokens == sum(record.drafted_tokens or 0 for record in measured)
        by_step = [record for record in measured if record.step_accepted is not None]
        assert len(by_step) >= len(measured) - 1, "only the emoji answer, whose tokens are held back, may lack steps"
        # The engine also counts drafts accepted beyond the answer's end, at most k per request; the records do not.
        accepted = sum(record.accepted_tokens or 0 for record in measured)
        assert deltas.accepted_tokens is not None
        assert accepted <= deltas.accepted_tokens <= accepted + 8 * len(measured)
        assert deltas.draft_steps is not None
        assert sum(record.draft_steps or 0 for record in by_step) <= deltas.draft_steps
    assert sum(record.accepted_tokens or 0 for record in alone) > 0


# -- a whole run, against what the server itself answered --------------------------------------------------------------

WITNESSED_K = {"draft": 4, "ngram-mod": 8}
WITNESSED_PROMPTS = (
    "Repeat this exactly: one two three four five six seven eight nine ten eleven twelve thirteen fourteen.",
    "Write a short story about a lighthouse.",
    "Name five colours.",
    "Count from one to thirty in words.",
)


@dataclass
class WitnessedRun:
    """A run, and the launch of each arm's engine."""

    run: RealRun
    launches: dict[str, WitnessedLaunch]


def witnessed_run(demo_models: dict[str, str], folder: Path) -> WitnessedRun:
    """A run with drafters whose drafts vary in length."""
    server = [sys.executable, "-m", "specbench_client.local.llama_server"]
    common = {name: {"name": name, "numSpeculativeTokens": k} for name, k in WITNESSED_K.items()}
    draft = {"method": "draft_model", "model": demo_models["drafter"], "args": ["--spec-draft-p-min", "0.3"]}
    lookup = {"method": "custom", "algorithm": "ngram-mod", "args": CUSTOM["ngram-mod"]}
    spec = {
        "model": {"name": "smol", "path": demo_models["target"]},
        "engine": {
            "kind": "llama-cpp",
            "command": witnessed_command(folder / "witness", server),
            "args": ["--threads", "1", "--ctx-size", "4096"],
        },
        "drafters": [{**common["draft"], **draft}, {**common["ngram-mod"], **lookup}],
        "workloads": [
            {
                "name": "mixed",
                "dataset": {"source": "jsonl", "uri": "prompts.jsonl"},
                "output": {"maxTokens": 48},
            }
        ],
        "load": {"concurrency": [2], "repeats": 1, "warmupRequests": 1},
        "startupDeadlineSeconds": 240,
    }
    run = run_here(folder, spec, WITNESSED_PROMPTS, timeout_s=1200)
    return WitnessedRun(run, launches_by_arm(run, folder / "witness"))


def steps_in(answer: Exchange) -> list[WitnessedStep]:
    """The steps of an answer that verified drafts: the totals of drafts grow at the first token of each."""
    timings = [{"draft_n": 0, "draft_n_accepted": 0}, *(one["timings"] for one in answer.chunks if "timings" in one)]
    totals = [(one.get("draft_n", 0), one.get("draft_n_accepted", 0), one.get("predicted_n")) for one in timings]
    found = [(now[0] - last[0], now[1] - last[1], now[2]) for last, now in pairwise(totals) if now[0] > last[0]]
    steps = [WitnessedStep(drafted, accepted) for drafted, accepted, _ in found]
    if found:
        drafted, accepted, first_token = found[-1]
        steps[-1] = WitnessedStep(drafted, accepted, max(0, accepted - (totals[-1][2] - first_token)))
    return steps


def compare_steps_with_counters_and_log(witnessed: WitnessedRun, arm: str) -> None:
    launch = witnessed.launches[arm]
    by_answer = [steps_in(answer) for answer in launch.answers]
    steps = [step for each in by_answer for step in each]
    assert launch.counted("llamacpp:spec_decode_num_drafts_total") == len(steps)
    assert launch.counted("llamacpp:spec_decode_num_draft_tokens_total") == sum(step.drafted for step in steps)
    assert launch.counted("llamacpp:spec_decode_num_accepted_tokens_total") == sum(step.accepted for step in steps)
    name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    for position in range(1, WITNESSED_K[arm] + 1):
        assert launch.counted(name, f'position="{position - 1}"') == steps_reaching(steps, position)
    pattern = r"draft acceptance = \S+ \( *(\d+) accepted / *(\d+) generated\), mean len = *(\S+)"
    logged, expected = Counter(re.findall(pattern, launch.log)), Counter(_logged(each) for each in by_answer if each)
    assert expected <= logged
    assert (logged - expected).total() <= 1, "only the request before the first page of counters is left"


def _logged(steps: list[WitnessedStep]) -> tuple[str, str, str]:
    accepted, drafted = sum(step.accepted for step in steps), sum(step.drafted for step in steps)
    return str(accepted), str(drafted), f"{1 + accepted / len(steps):.2f}"


def compare_reported_acceptance_with_steps(witnessed: WitnessedRun, arm: str) -> None:
    (point,) = witnessed.run.points[arm]
    answers = witnessed.launches[arm].answers_to(point.records.request_id[point.records.phase == "steady"])
    steps = [step for answer in answers for step in steps_in(answer)]
    assert len({step.drafted for step in steps}) > 1, "the drafts vary in length"
    assert 0 < sum(step.accepted for step in steps) < sum(step.drafted for step in steps)
    (cell,) = [cell for cell in witnessed.run.answer["cells"] if cell["arm"] == arm]
    figures = cell["figures"]
    delivered = [step.delivered for step in steps]
    rate = sum(step.accepted for step in delivered) / sum(step.drafted for step in steps)
    assert figures["acceptance_rate"]["value"] == pytest.approx(rate)
    for position in range(1, WITNESSED_K[arm] + 1):
        joint, conditional = joint_rate(delivered, position), conditional_rate(steps, position)
        assert figures[f"position_acceptance_rate_{position}"]["value"] == pytest.approx(joint)
        assert figures[f"conditional_position_acceptance_rate_{position}"].get("value") == pytest.approx(conditional)


@pytest.mark.long
@pytest.mark.timeout(1300)
def test_steps_of_a_run_equal_the_engines_counters_its_log_and_the_reported_acceptance(
    demo_models: dict[str, str], tmp_path: Path
) -> None:
    """One test, because it needs a run of two minutes, which several workers would each measure."""
    witnessed = witnessed_run(demo_models, tmp_path)
    for arm in WITNESSED_K:
        compare_steps_with_counters_and_log(witnessed, arm)
        compare_reported_acceptance_with_steps(witnessed, arm)
