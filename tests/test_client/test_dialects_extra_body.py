"""What a user may add to a request's body, and what is ours: one table, held against every dialect."""

from __future__ import annotations

import pytest

from specbench_api.spec.workload import RESERVED_BODY_FIELDS, Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.dialects.dialect import CompletionRequest, Dialect
from specbench_client.dialects.registry import DIALECTS, DIALECTS_BY_NAME

NEUTRAL = {"top_k", "min_p", "repetition_penalty", "repeat_penalty"}
"""Samplers that the spec does not have: switched off where the user says nothing, and the user's to switch on."""
ASKS = [
    CompletionRequest("m", (ChatMessage("user", "hi"),), Sampling(), Output(stream=stream, ignore_eos=True), 7)
    for stream in (True, False)
]


@pytest.mark.parametrize("ask", ASKS, ids=["streamed", "whole"])
@pytest.mark.parametrize(
    "dialect", [*DIALECTS.values(), *DIALECTS_BY_NAME.values()], ids=lambda dialect: type(dialect).__name__
)
def test_every_field_that_a_dialect_sets_is_ours_or_gives_way(dialect: Dialect, ask: CompletionRequest) -> None:
    assert set(dialect.body(ask)) - NEUTRAL <= RESERVED_BODY_FIELDS.keys()
    assert not NEUTRAL & RESERVED_BODY_FIELDS.keys()
