"""Which of the rows that were asked for the prompts of a workload really are, and why the others are not."""

from __future__ import annotations

from specbench_api.model import ApiModel


class WordOrder(ApiModel):
    """Whether the order of a set's words says something: random words lose nothing by being shuffled."""

    pairs: int
    """Pairs of neighbouring words that were looked at: without what prompts share word by word, 8,000 at most."""
    repeated: float
    """Of the different pairs, the share that is there more than once."""
    shuffled: float
    """The same share with the same words in random order: the mean of five."""

    @property
    def moved(self) -> float:
        """By how much shuffling moves the share; 0 where the words stood in no order."""
        return abs(self.repeated - self.shuffled)


class CategoryCoverage(ApiModel):
    """One category."""

    category: str | None = None
    """Its name; None for the prompts without one."""
    asked: int
    """Rows that the filters ask for."""
    used: int
    """Prompts that are sent."""
    turns: int
    """Their turns: requests of one pass."""
    left_out: dict[str, int] = {}
    """Rows without a usable text, by reason."""
    order: WordOrder | None = None
    """Of its prompts' words; None where they are too few to tell."""


class Recorded(ApiModel):
    """What a request log says of its own requests; None where it does not say it."""

    input_tokens_median: float | None = None
    """Prompt tokens of the median request, as the engine of then counted them."""
    output_tokens_median: float | None = None
    """Answer tokens of the median request."""
    max_tokens_median: float | None = None
    """Their limit, where one was set."""
    temperatures: dict[str, int] = {}
    """Requests by temperature; `default` where none was set."""
    seconds: float | None = None
    """From the first to the last time stamp."""


class MemberCoverage(ApiModel):
    """What a mix asks of one of its members."""

    source: str
    """Whose prompts."""
    share: float
    """Its share of the conversations."""
    output_tokens_min: int | None = None
    """Least output tokens that are expected of its median answer."""
    output_tokens_max: int | None = None
    """Most of them."""


class Coverage(ApiModel):
    """The prompts of one workload. asked = used + left out + not drawn (count, turns, shares of a mix)."""

    source: str
    """Whose prompts."""
    config: str | None = None
    """Which part or form of them."""
    revision: str | None = None
    """Revision on the hub, where that was asked."""
    licence: str | None = None
    """What is known of their licence."""
    rows: int
    """Rows of the file."""
    asked: int
    """Rows that the filters ask for."""
    used: int
    """Prompts that are sent."""
    turns: int
    """Their turns: requests of one pass."""
    left_out: dict[str, int] = {}
    """Rows that were asked for and have no usable text, by reason: the figures do not speak of them."""
    excluded: dict[str, int] = {}
    """Rows that the source's own rule or inputTokens leaves out, by reason."""
    by_category: list[CategoryCoverage] = []
    """In the file's order."""
    members: dict[str, MemberCoverage] = {}
    """Of a mix, by name."""
    recorded: Recorded | None = None
    """What a request log says of its own requests."""
    order: WordOrder | None = None
    """Of all prompts' words; None where they are too few to tell, or it was not looked at."""

    @property
    def missing(self) -> int:
        """Rows that were asked for and are left out."""
        return sum(self.left_out.values())
