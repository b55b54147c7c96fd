"""The known truth about acceptance: the conditional probability of each draft position, by category.

Conditional, because that is what verification does: position i is only looked at when 1..i-1 were accepted. The joint
probability that a client may estimate is the running product. Written ``0.7`` (every position, every category),
``default=0.7,coding=0.85`` (by category) and ``coding=0.8/0.6/0.4`` (by position; the last one repeats).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specbench_client.simulator.errors import ConfigError

DEFAULT_CATEGORY = "default"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Conditional acceptance by position for each category; ``default`` serves every category not named."""

    by_category: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: {DEFAULT_CATEGORY: (0.7,)})

    def __post_init__(self) -> None:
        if DEFAULT_CATEGORY not in self.by_category:
            raise ConfigError("acceptance names categories but no default: add 'default=0.7'")
        for category, positions in self.by_category.items():
            if not positions or not all(0.0 <= one <= 1.0 for one in positions):
                raise ConfigError(f"acceptance of {category!r} is {positions}: probabilities lie between 0 and 1")

    def positions(self, category: str, depth: int) -> tuple[float, ...]:
        """Return ``depth`` conditional probabilities for the category."""
        given = self.by_category.get(category, self.by_category[DEFAULT_CATEGORY])
        return tuple(given[min(index, len(given) - 1)] for index in range(depth))


def parse_acceptance(text: str) -> Acceptance:
    """Read the notation of the module's docstring; ConfigError says which part is wrong."""
    by_category: dict[str, tuple[float, ...]] = {}
    for part in text.split(","):
        category, equals, numbers = part.strip().rpartition("=")
        name = category.strip() if equals else DEFAULT_CATEGORY
        if not name or name in by_category:
            raise ConfigError(f"acceptance {text!r}: category {name!r} is empty or given twice")
        by_category[name] = _probabilities(numbers, text)
    return Acceptance(by_category)


def _probabilities(numbers: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(one) for one in numbers.split("/"))
    except ValueError as error:
        raise ConfigError(
            f"acceptance {text!r}: {numbers!r} is no probability; write 0.7 or 0.8/0.6/0.4 or default=0.7,coding=0.85"
        ) from error
