"""Request body fields that users may set, and reserved ones: one table, checked with every dialect."""

from __future__ import annotations

import pytest

from specbench_api.spec.workload import RESERVED_BODY_FIELDS, Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.dialects.dialect import CompletionRequest, Dialect
from specbench_client.dialects.registry import DIALECTS, DIALECTS_BY_NAME

NEUTRAL = {"top_k", "min_p", "repetition_penalty", "repeat_penalty"}
"""Samplers that the spec does not have: disabled by default, and users may enable them."""
REQUESTS = [
    CompletionRequest("m", (ChatMessage("user", "hi"),), Sampling(), Output(stream=stream, ignore_eos=True), 7)
    for stream in (True, False)
]


@pytest.mark.parametrize("completion_request", REQUESTS, ids=["streamed", "whole"])
@pytest.mark.parametrize(
    "dialect", [*DIALECTS.values(), *DIALECTS_BY_NAME.values()], ids=lambda dialect: type(dialect).__name__
)
def test_every_field_set_by_a_dialect_is_reserved_or_overridable(
    dialect: Dialect, completion_request: CompletionRequest
) -> None:
    assert set(dialect.body(completion_request)) - NEUTRAL <= RESERVED_BODY_FIELDS.keys()
    assert not NEUTRAL & RESERVED_BODY_FIELDS.keys()
