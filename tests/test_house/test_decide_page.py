"""docs/how-to/decide.md: its price list is valid, and it explains every answer."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from specbench_api.api_model import in_words
from specbench_api.outcome.recommendation import RecommendationAnswer
from specbench_client.cli.decide import decide
from specbench_client.documents.prices import Prices

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/decide.md").read_text(encoding="utf-8")


def test_the_price_list_is_valid_and_the_page_mentions_every_field() -> None:
    (block,) = re.findall(r"^\$ cat prices.yaml\n(.+?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert Prices.model_validate(yaml.safe_load(block)).currency == "EUR"
    for field in Prices.model_fields.values():
        assert str(field.alias) in PAGE


def test_the_page_explains_every_answer() -> None:
    assert all(f"| `{in_words(answer)}` |" in PAGE for answer in RecommendationAnswer)


def test_every_option_on_the_page_exists() -> None:
    options = {option for each in decide.params for option in each.opts}
    assert set(re.findall(r"(--[a-z][a-z0-9-]+)\b", PAGE)) <= options
