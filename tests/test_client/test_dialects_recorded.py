"""Recorded answers of real engines: what a dialect reads equals what the engine counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.dialect import counter_difference
from specbench_client.dialects.registry import DIALECTS
from specbench_client.sliced_tasks import run_to_completion
from specbench_testing.transcripts import RECORDED, Transcript

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
