"""Each dialect reconstructs the engine's steps: drafts, delivered tokens, tokens per chunk, and where the steps are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specbench_api.spec.engine import EngineKind
from specbench_client.cooperative_tasks import run_to_completion
from specbench_client.dialects.dialect import Dialect, counter_difference
from specbench_client.dialects.engine_answer import EngineAnswer, RequestAcceptance
from specbench_client.dialects.registry import DIALECTS
from specbench_client.documents.record import AcceptanceSource
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, as_events, llama, sglang, tensorrt_llm, vllm
from specbench_testing.synthetic_records import frame_of, record, tidy_frames
from specbench_testing.transcripts import RECORDED, Transcript

VLLM = DIALECTS[EngineKind.SIMULATOR]
LLAMA = DIALECTS[EngineKind.LLAMA_CPP]
SGLANG = DIALECTS[EngineKind.SGLANG]
TENSORRT_LLM = DIALECTS[EngineKind.TENSORRT_LLM]
PLAIN = DecodedAnswer((StreamStep(), StreamStep(), StreamStep()))
DRAFTED = DecodedAnswer((StreamStep(3, 2),))


@st.composite
def decodings(draw: st.DrawFn, *, every_step_drafts: bool = False) -> DecodedAnswer:
    """Draw any sequence of steps; the last step may be truncated by its accepted drafts."""
    steps = []
    for _ in range(draw(st.integers(0, 12))):
        drafted = draw(st.integers(1 if every_step_drafts else 0, 5))
        steps.append(StreamStep(drafted, draw(st.integers(0, drafted))))
    return DecodedAnswer(tuple(steps), draw(st.integers(0, steps[-1].accepted)) if steps else 0)


def truth(decoded: DecodedAnswer, source: AcceptanceSource = AcceptanceSource.PER_STEP) -> RequestAcceptance:
    return RequestAcceptance(
        steps=len(decoded.steps),
        draft_steps=len(decoded.drafting),
        drafted_tokens=sum(step.drafted for step in decoded.steps),
        accepted_tokens=sum(decoded.delivered),
        step_accepted=decoded.delivered,
        step_drafted=tuple(step.drafted for step in decoded.drafting),
        source=source,
        cut_tokens=decoded.cut,
    )


@given(decodings())
def test_vllm_steps_are_reconstructed_from_single_chunks(decoded: DecodedAnswer) -> None:
    answer = run_to_completion(VLLM.read(as_events(vllm(decoded)), drafting=True))
    assert answer.acceptance == truth(decoded)
    assert [chunk.tokens for chunk in answer.content] == decoded.sizes
    assert answer.output_tokens == answer.output_tokens_client == decoded.output_tokens


@given(decodings(every_step_drafts=True), st.integers(1, 5))
def test_vllm_steps_are_reconstructed_from_merged_chunks_with_all_steps_drafting(
    decoded: DecodedAnswer, merge: int
) -> None:
    answer = run_to_completion(VLLM.read(as_events(vllm(decoded, merge=merge)), drafting=True))
    assert answer.acceptance == truth(decoded)
    assert answer.output_tokens_client == decoded.output_tokens


@pytest.mark.parametrize(
    ("steps", "cut"),
    [
        ((StreamStep(3, 2), StreamStep(), StreamStep(3, 1), StreamStep(3, 3)), 2),
        ((StreamStep(3, 2), StreamStep(), StreamStep(3, 3)), 0),
        ((StreamStep(3, 2), StreamStep(), StreamStep(3, 3), StreamStep()), 0),
        ((StreamStep(3, 2), StreamStep(), StreamStep(3, 1), StreamStep(), StreamStep(3, 3)), 3),
    ],
)
def test_vllm_cut_at_the_end_is_found_if_earlier_chunks_were_merged(steps: tuple[StreamStep, ...], cut: int) -> None:
    decoded = DecodedAnswer(steps, cut)
    chunks = vllm(decoded)
    del chunks[2]  # Counts are totals, so the next chunk contains its tokens.
    assert run_to_completion(VLLM.read(as_events(chunks), drafting=True)).acceptance == truth(decoded)


@given(decodings(), st.integers(1, 5), st.booleans())
def test_vllm_steps_and_accepted_tokens_add_up_to_the_output(
    decoded: DecodedAnswer, merge: int, continuous: bool
) -> None:
    acceptance = run_to_completion(
        VLLM.read(as_events(vllm(decoded, merge=merge, continuous=continuous)), drafting=True)
    ).acceptance
    assert acceptance.steps is not None
    assert acceptance.draft_steps is not None
    assert acceptance.accepted_tokens is not None
    undrafted = decoded.output_tokens - 1 - (acceptance.accepted_tokens + acceptance.draft_steps)
    assert undrafted >= 0
    assert acceptance.steps == acceptance.draft_steps + undrafted


@given(decodings(every_step_drafts=True))
def test_vllm_summary_detail_gives_totals_without_single_steps(decoded: DecodedAnswer) -> None:
    acceptance = run_to_completion(VLLM.read(as_events(vllm(decoded, detail="summary")), drafting=True)).acceptance
    expected = truth(decoded, AcceptanceSource.PER_REQUEST)
    assert (acceptance.steps, acceptance.accepted_tokens) == (expected.steps, expected.accepted_tokens)
    assert acceptance.step_accepted is None


@given(decodings(), st.booleans())
def test_llama_cpp_steps_are_reconstructed_from_running_totals(decoded: DecodedAnswer, ends_itself: bool) -> None:
    answer = run_to_completion(LLAMA.read(as_events(llama(decoded, ends_itself=ends_itself)), drafting=True))
    assert answer.output_tokens == answer.output_tokens_client == decoded.output_tokens
    if ends_itself and decoded.output_tokens == 1 and decoded.steps:
        return  # no chunk shows where the totals increased
    assert answer.acceptance == truth(decoded)


@given(decodings(), st.integers(2, 3))
def test_llama_cpp_steps_are_never_wrong_when_characters_are_held_back(decoded: DecodedAnswer, held_back: int) -> None:
    answer = run_to_completion(LLAMA.read(as_events(llama(decoded, held_back=held_back)), drafting=True))
    acceptance = answer.acceptance
    assert answer.output_tokens_client == decoded.output_tokens
    if acceptance.source is AcceptanceSource.PER_STEP:
        assert acceptance == truth(decoded)
    else:
        assert acceptance.step_accepted is None
        assert acceptance.accepted_tokens == sum(step.accepted for step in decoded.steps)


@given(decodings(), st.integers(1, 4))
def test_vllm_acceptance_without_details_is_inferred_from_chunks_and_marked(decoded: DecodedAnswer, merge: int) -> None:
    acceptance = run_to_completion(
        VLLM.read(as_events(vllm(decoded, detail=None, merge=merge)), drafting=True)
    ).acceptance
    assert acceptance.draft_steps is None
    assert acceptance.drafted_tokens is None
    if merge == 1:
        assert acceptance.source is AcceptanceSource.CHUNKS
        assert acceptance.steps == len(decoded.steps)


@given(st.integers(2, 40), st.integers(2, 8))
def test_stream_interval_is_marked_as_inferred_from_chunks(tokens: int, interval: int) -> None:
    """Nothing was drafted. The chunks do not show that; the analysis compares them with the counters."""
    sizes = vllm(DecodedAnswer((StreamStep(),) * (tokens - 1)), detail=None, merge=interval)
    acceptance = run_to_completion(VLLM.read(as_events(sizes), drafting=True)).acceptance
    assert acceptance.source in (AcceptanceSource.CHUNKS, None)
    assert (acceptance.accepted_tokens is None) == (acceptance.source is None)


@pytest.mark.parametrize(
    ("dialect", "chunks", "drafted"),
    [
        (VLLM, vllm(PLAIN, detail=None), vllm(DRAFTED)),
        (LLAMA, llama(PLAIN), llama(DRAFTED)),
        (SGLANG, sglang(PLAIN), sglang(DRAFTED)),
        (TENSORRT_LLM, tensorrt_llm(PLAIN), tensorrt_llm(DRAFTED)),
        (TENSORRT_LLM, tensorrt_llm(PLAIN, merge=3), tensorrt_llm(DRAFTED)),
    ],
    ids=["vllm", "llama.cpp", "sglang", "tensorrt-llm", "tensorrt-llm merged"],
)
def test_baseline_has_one_token_per_step_and_its_drafting_is_reported(
    dialect: Dialect, chunks: list[dict[str, Any]], drafted: list[dict[str, Any]]
) -> None:
    assert run_to_completion(dialect.read(as_events(chunks), drafting=False)).acceptance == RequestAcceptance(steps=3)
    found, same = (run_to_completion(dialect.read(as_events(drafted), drafting=each)) for each in (False, True))
    assert (found.acceptance.accepted_tokens, found.acceptance) == (2, same.acceptance)


def test_drafter_without_drafts_has_draft_counts_of_0() -> None:
    decoded = DecodedAnswer((StreamStep(), StreamStep()))
    for dialect, chunks in ((VLLM, vllm(decoded)), (LLAMA, llama(decoded))):
        acceptance = run_to_completion(dialect.read(as_events(chunks), drafting=True)).acceptance
        assert acceptance == RequestAcceptance(2, 0, 0, 0, (), (), AcceptanceSource.PER_STEP, 0)


def test_steps_that_contradict_the_totals_are_ignored() -> None:
    chunks = vllm(DecodedAnswer((StreamStep(3, 2), StreamStep(3, 1))))
    chunks[-1]["metrics"]["speculative_decoding"]["per_step_accepted"] = [2, 1, 0]
    acceptance = run_to_completion(VLLM.read(as_events(chunks), drafting=True)).acceptance
    assert acceptance == RequestAcceptance(2, 2, 6, 3, None, None, AcceptanceSource.PER_REQUEST)


@pytest.mark.parametrize("listed", [[3], [3, 4], [1, 5], None, "3"])
def test_drafts_by_step_that_contradict_the_accepted_ones_or_the_total_are_ignored(listed: object) -> None:
    chunks = vllm(DecodedAnswer((StreamStep(3, 2), StreamStep(3, 1))))
    chunks[-1]["metrics"]["speculative_decoding"]["per_step_drafted"] = listed
    acceptance = run_to_completion(VLLM.read(as_events(chunks), drafting=True)).acceptance
    assert (acceptance.step_accepted, acceptance.step_drafted) == ((2, 1), None)


def test_steps_that_do_not_fit_the_tokens_are_missing() -> None:
    chunks = vllm(DecodedAnswer((StreamStep(3, 3),)))
    block = chunks[-1]["metrics"]["speculative_decoding"]
    block.update(num_spec_steps=9, num_accepted_draft_tokens=3, per_step_accepted=[3, *[0] * 8])
    assert run_to_completion(VLLM.read(as_events(chunks), drafting=True)).acceptance.steps is None


FILES = sorted(RECORDED.rglob("*.json"))


def test_recordings_exist() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_recorded_answer_matches_the_engines_counters(path: Path) -> None:
    transcript = Transcript.read(path)
    dialect = DIALECTS[EngineKind(transcript.kind)]
    answer = run_to_completion(dialect.read(transcript.events, drafting=transcript.drafting))
    counted = counter_difference(
        dialect.counters(transcript.metrics_before), dialect.counters(transcript.metrics_after)
    )
    assert answer.output_tokens == answer.output_tokens_client == counted.output_tokens
    assert answer.input_tokens == counted.prompt_tokens
    acceptance = answer.acceptance
    if not transcript.drafting:
        assert (acceptance.steps, acceptance.drafted_tokens) == ((answer.output_tokens or 0) - 1, None)
        return
    assert acceptance.draft_steps == counted.draft_steps
    assert acceptance.drafted_tokens == counted.drafted_tokens
    # The engines also count drafts accepted beyond the answer's end, at most those of one step.
    accepted = acceptance.accepted_tokens or 0
    assert accepted <= (counted.accepted_tokens or 0) <= accepted + max(acceptance.step_accepted or (0,), default=0) + 8
    assert answer.output_tokens == 1 + (acceptance.steps or 0) + accepted


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
    (walk,) = tidy_frames([frame_of([row])]).lists("walk").arrays()
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
            assert walk[:, 1:].sum(axis=0).tolist() == [len(decoded.steps), decoded.output_tokens - 1]


RECORDINGS = [path for path in sorted(RECORDED.rglob("*.json")) if Transcript.read(path).drafting]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_steps_of_recorded_answers_are_located_and_add_up(path: Path) -> None:
    """Recordings of vLLM and the research runtime, including n-gram answers whose steps mostly have no drafts."""
    transcript = Transcript.read(path)
    answer = run_to_completion(DIALECTS[EngineKind(transcript.kind)].read(transcript.events, drafting=True))
    walk, steps, listed = walk_of(answer), answer.acceptance.steps, answer.acceptance.step_accepted
    assert walk is not None
    assert walk[:, 1:].sum(axis=0).tolist() == [steps, (answer.output_tokens or 0) - 1]
    assert listed is not None
    assert sum(listed) + (steps or 0) + 1 == answer.output_tokens_client, "AL = 1 + Σ of the joint rates"
