"""Step location per engine: the table of docs/research/breakdown.md, checked with streams in each engine's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.engine_answer import EngineAnswer
from specbench_client.dialects.registry import DIALECTS
from specbench_client.metrics.tidy_frame import step_walks, tidy
from specbench_client.sliced_tasks import run_to_completion
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, as_events, llama, sglang, tensorrt_llm, vllm
from specbench_testing.synthetic_records import frame_of, record
from specbench_testing.transcripts import RECORDED, Transcript

ALWAYS = DecodedAnswer((StreamStep(3, 2), StreamStep(3, 0), StreamStep(3, 3), StreamStep(3, 1)), cut=1)
SOMETIMES = DecodedAnswer((StreamStep(3, 2), StreamStep(), StreamStep(), StreamStep(3, 3)))
"""An answer of a look-up drafter: two of its steps have no drafts."""


def walk_of(answer: EngineAnswer) -> NDArray[np.number] | None:
    accepted = answer.acceptance.step_accepted
    row = record(
        acceptance_source="per_step",
        steps=answer.acceptance.steps,
        output_tokens=answer.output_tokens,
        output_tokens_client=None,
        step_accepted=None if accepted is None else list(accepted),
        chunk_ns=list(range(len(answer.content))),
        chunk_tokens=[chunk.tokens for chunk in answer.content],
    )
    (walk,) = step_walks(tidy([frame_of([row])])).arrays()
    return walk


@pytest.mark.parametrize(
    ("kind", "stream", "located"),
    [
        (EngineKind.VLLM, vllm, (True, True)),
        (EngineKind.SGLANG, sglang, (True, True)),
        (EngineKind.TENSORRT_LLM, tensorrt_llm, (True, True)),
        (EngineKind.LLAMA_CPP, llama, (True, False)),
    ],
    ids=["vllm", "sglang", "tensorrt-llm", "llama-cpp"],
)
def test_steps_are_located_as_documented_for_each_engine(
    kind: EngineKind, stream: Any, located: tuple[bool, bool]
) -> None:
    for decoded, expected in zip((ALWAYS, SOMETIMES), located, strict=True):
        walk = walk_of(run_to_completion(DIALECTS[kind].read(as_events(stream(decoded)), drafting=True)))
        assert (walk is not None) is expected
        if walk is not None:
            assert walk[1:].sum(axis=1).tolist() == [len(decoded.steps), decoded.output_tokens - 1]


RECORDINGS = [path for path in sorted(RECORDED.rglob("*.json")) if Transcript.read(path).drafting]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_steps_of_recorded_answers_are_located_and_add_up(path: Path) -> None:
    """Recordings of vLLM and the research runtime, including n-gram answers whose steps mostly have no drafts."""
    transcript = Transcript.read(path)
    answer = run_to_completion(DIALECTS[EngineKind(transcript.kind)].read(transcript.events, drafting=True))
    walk, steps, listed = walk_of(answer), answer.acceptance.steps, answer.acceptance.step_accepted
    assert walk is not None
    assert walk[1:].sum(axis=1).tolist() == [steps, (answer.output_tokens or 0) - 1]
    assert listed is not None
    assert sum(listed) + (steps or 0) + 1 == answer.output_tokens_client, "AL = 1 + Σ of the joint rates"
