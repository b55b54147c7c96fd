"""Every pattern of the resources has a description: no message contains a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from specbench_api.errors import InvalidSpec
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.parsing import parse_resource
from specbench_api.spec.patterns import PATTERN_DESCRIPTIONS
from specbench_api.spec.run import SpecBenchRun
from specbench_testing.invalid_specs import INVALID_SPECS
from specbench_testing.resources import campaign


def patterns(node: Any) -> Iterator[str]:
    """Every pattern in a JSON schema."""
    if isinstance(node, dict):
        if isinstance(pattern := node.get("pattern"), str):
            yield pattern
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            yield from patterns(inner)


def test_every_pattern_has_a_description_and_vice_versa() -> None:
    schema_patterns = {
        found for kind in (SpecBenchRun, SpecBenchCampaign) for found in patterns(kind.model_json_schema())
    }
    assert set(PATTERN_DESCRIPTIONS) == schema_patterns


@pytest.mark.parametrize("pattern", [pattern for pattern, words in PATTERN_DESCRIPTIONS.items() if ": " in words])
def test_the_example_of_a_description_matches_its_pattern(pattern: str) -> None:
    example = PATTERN_DESCRIPTIONS[pattern].rpartition(": ")[2].partition(", ")[0]
    assert re.search(pattern, example)


def test_no_message_contains_a_regular_expression() -> None:
    specs = [row.resource for row in INVALID_SPECS] + [
        campaign({"spec.schedule": "every day"}),
        campaign(name="Bad_Name"),
    ]
    messages = []
    for spec in specs:
        try:
            parse_resource(spec)
        except InvalidSpec as rejected:
            messages.append(str(rejected))
    assert len(messages) > 50
    assert [text for text in messages if "[a-z" in text or "[A-Z" in text or "$'" in text] == []
