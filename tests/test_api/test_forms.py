"""Every pattern of the resources is told in words: no person is shown a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from specbench_api.errors import InvalidSpec
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.forms import FORMS
from specbench_api.spec.reading import parse_resource
from specbench_api.spec.run import SpecBenchRun
from specbench_testing.campaigns import campaign
from specbench_testing.refusals import REFUSALS


def patterns(node: Any) -> Iterator[str]:
    """Every pattern in a JSON schema."""
    if isinstance(node, dict):
        if isinstance(pattern := node.get("pattern"), str):
            yield pattern
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            yield from patterns(inner)


def test_every_pattern_has_its_words_and_no_words_are_without_a_pattern() -> None:
    asked = {found for kind in (SpecBenchRun, SpecBenchCampaign) for found in patterns(kind.model_json_schema())}
    assert set(FORMS) == asked


@pytest.mark.parametrize("pattern", [pattern for pattern, words in FORMS.items() if ": " in words])
def test_the_example_in_the_words_has_the_form(pattern: str) -> None:
    example = FORMS[pattern].rpartition(": ")[2].partition(", ")[0]
    assert re.search(pattern, example)


def test_no_refusal_shows_a_regular_expression() -> None:
    specs = [row.resource for row in REFUSALS] + [campaign({"spec.schedule": "every day"}), campaign(name="Bad_Name")]
    told = []
    for spec in specs:
        try:
            parse_resource(spec)
        except InvalidSpec as refused:
            told.append(str(refused))
    assert len(told) > 50
    assert [text for text in told if "[a-z" in text or "[A-Z" in text or "$'" in text] == []
