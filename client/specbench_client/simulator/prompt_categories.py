"""Looks up a prompt's category in the prompt file that the client measures with.

A real engine has no categories. The simulated one needs them, because its acceptance differs by category, and
per-category figures are checked against that. Rows are found by their exact text: ``prompt``, each of ``turns``, or the
user's ``messages``. A prompt that is not in the file has the category ``default``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specbench_client.simulator.errors import ConfigError
from specbench_client.simulator.requests import SimulatedPrompt
from specbench_client.simulator.speculation import DEFAULT_CATEGORY


class PromptCategories:
    """Maps prompt texts to categories."""

    def __init__(self, by_text: Mapping[str, str] | None = None) -> None:
        self._by_text = dict(by_text or {})

    def of(self, prompt: SimulatedPrompt) -> str:
        """Return the category of the prompt's last known text, so that a conversation's last user turn counts."""
        for text in reversed(prompt.texts):
            if text in self._by_text:
                return self._by_text[text]
        return DEFAULT_CATEGORY


def read_categories(path: Path) -> PromptCategories:
    """Read a JSONL file of prompts. Raises ConfigError with the invalid line."""
    by_text: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"prompts file {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            category, texts = _row(line, f"prompts file {path}, line {number}")
            by_text.update(dict.fromkeys(texts, category))
    return PromptCategories(by_text)


def _row(line: str, where: str) -> tuple[str, tuple[str, ...]]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: not a JSON object")
    texts = tuple(_texts(row))
    if not texts:
        raise ConfigError(f"{where}: has none of prompt, turns and messages")
    return str(row.get("category") or DEFAULT_CATEGORY), texts


def _texts(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield every text of the row that can be a whole prompt or a user's turn."""
    candidates = [row.get("prompt"), *(row.get("turns") or ())]
    candidates += [one.get("content") for one in row.get("messages") or () if one.get("role") == "user"]
    yield from (one for one in candidates if isinstance(one, str))
