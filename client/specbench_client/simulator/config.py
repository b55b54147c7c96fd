"""The configuration of the simulated engine, and the categories of its prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from specbench_client.simulator.errors import ConfigError
from specbench_client.simulator.faults import Faults
from specbench_client.simulator.speculation import DEFAULT_CATEGORY, AcceptanceProbabilities, SimulatedDrafter
from specbench_client.simulator.step_cost import SimulatedStepCost

MODEL_NAME = "simulated"
VERSION = "simulated-0.1.0"


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """One simulated engine. ``time_scale`` multiplies the duration of every step; with 0 nothing waits."""

    seed: int = 0
    drafter: SimulatedDrafter = field(default_factory=SimulatedDrafter)
    acceptance: AcceptanceProbabilities = field(default_factory=AcceptanceProbabilities)
    cost: SimulatedStepCost = field(default_factory=SimulatedStepCost)
    faults: Faults = field(default_factory=Faults)
    max_num_seqs: int = 256
    max_model_len: int = 32768
    prefix_cache_tokens: int = 0
    """Capacity of the prefix cache; 0: none."""
    output_mean_tokens: float = 128.0
    time_scale: float = 1.0
    spec_detail: str = "detailed"
    served_model_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1 or self.max_model_len < 2 or self.output_mean_tokens < 1:
            raise ConfigError("--max-num-seqs must be at least 1, --max-model-len at least 2, --output-mean at least 1")
        if self.time_scale < 0:
            raise ConfigError(
                f"--time-scale {self.time_scale}: give 0 or more (1: real time, 0.1: ten times faster, 0: no waiting)"
            )

    @property
    def model_names(self) -> tuple[str, ...]:
        """Model names that requests may use; answers always name ``simulated``."""
        return (MODEL_NAME, *self.served_model_names)

    @property
    def kv_room_tokens(self) -> int:
        """The cache that the engine claims to have: room for every request at full length."""
        return self.max_num_seqs * self.max_model_len

    @property
    def fingerprint(self) -> str:
        """A short hash of the whole configuration, to identify the engine that answered."""
        return f"{VERSION}-{sha256(repr(self).encode()).hexdigest()[:8]}"


class PromptCategories:
    """Maps prompt texts to categories, from the prompt file that the client measures with.

    A real engine has no categories. The simulated one needs them, because its acceptance differs by category, and
    per-category figures are checked against that. Rows are found by their exact text: ``prompt``, each of ``turns``, or
    the user's ``messages``. A prompt that is not in the file has the category ``default``.
    """

    def __init__(self, by_text: Mapping[str, str] | None = None) -> None:
        self._by_text = dict(by_text or {})

    def of(self, texts: Sequence[str]) -> str:
        """Return the category of a prompt's last known text, so that a conversation's last user turn counts."""
        for text in reversed(texts):
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
