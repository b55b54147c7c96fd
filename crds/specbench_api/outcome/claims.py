"""What may be said of a cell's speed-up, once the number of comparisons of the run is paid for."""

from __future__ import annotations

from enum import StrEnum

from specbench_api.model import ApiModel


class Standing(StrEnum):
    """What can be said of an arm against its paired baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    INDISTINGUISHABLE = "indistinguishable"
    """The interval holds 1."""
    UNCLEAR = "unclear"
    """The interval holds no 1, which among so many comparisons happens by chance."""
    TOO_FEW_REPEATS = "too few repeats"
    """The interval does not hold what runs do."""
    NO_INTERVAL = "no interval"
    NOT_COMPARABLE = "not comparable"
    """A check broke the comparison, or nothing was paired."""

    @property
    def is_claim(self) -> bool:
        """Whether a difference is claimed."""
        return self in (Standing.FASTER, Standing.SLOWER)


class Claims(ApiModel):
    """What the speed-up of a cell, and of each of its categories, allows to be said.

    Two families, each corrected by Holm at 5 %: the cells of the run, and the categories of all its cells together.
    The chance of one false word or more is at most 5 % in each.
    """

    overall: Standing
    """Of the cell's speed-up."""
    comparisons: int
    """Cells of the run among which it was corrected."""
    by_category: dict[str, Standing] = {}
    """Of the speed-up within each category."""
    category_comparisons: int = 0
    """Categories of all cells of the run among which these were corrected."""
