"""What a user may add to a request's body, and what is ours: one table, held against every dialect."""

from __future__ import annotations

import pytest

from specbench_api.spec.workload import CLAIMED_BODY, Output, Sampling
from specbench_client.chat import Message
from specbench_client.dialects.dialect import Ask, Dialect
from specbench_client.dialects.table import BY_NAME, DIALECTS

NEUTRAL = {"top_k", "min_p", "repetition_penalty", "repeat_penalty"}
"""Samplers that the spec does not have: switched off where the user says nothing, and the user's to switch on."""
ASKS = [
    Ask("m", (Message("user", "hi"),), Sampling(), Output(stream=stream, ignore_eos=True), 7)
    for stream in (True, False)
]


@pytest.mark.parametrize("ask", ASKS, ids=["streamed", "whole"])
@pytest.mark.parametrize("dialect", [*DIALECTS.values(), *BY_NAME.values()], ids=lambda dialect: type(dialect).__name__)
def test_every_field_that_a_dialect_sets_is_ours_or_gives_way(dialect: Dialect, ask: Ask) -> None:
    assert set(dialect.body(ask)) - NEUTRAL <= CLAIMED_BODY.keys()
    assert not NEUTRAL & CLAIMED_BODY.keys()
