"""How many of the requested rows became prompts of a workload, and why the others did not."""

from __future__ import annotations

from specbench_api.api_model import ApiModel


class WordOrderTest(ApiModel):
    """Whether the order of a dataset's words is meaningful: shuffling random words changes nothing."""

    pairs: int
    """Number of pairs of adjacent words tested, at most 8,000; without text that prompts share."""
    repeated: float
    """Fraction of the distinct pairs that occur more than once."""
    shuffled: float
    """The same fraction after shuffling the words: mean of five shuffles."""

    @property
    def moved(self) -> float:
        """Change of the fraction by shuffling; about 0 if the order was random."""
        return abs(self.repeated - self.shuffled)


class RowCoverage(ApiModel):
    """Coverage of the rows of one category, or of a whole workload."""

    requested: int
    """Rows that match the filters."""
    used: int
    """Prompts that are sent."""
    turns: int
    """Turns of these prompts: requests in one pass."""
    unusable: dict[str, int] = {}
    """Requested rows without usable text, by reason. No figure covers them."""
    order: WordOrderTest | None = None
    """Word-order test of these prompts; None with too few words, or if it was not run."""


class CategoryCoverage(RowCoverage):
    """Coverage of one category."""

    category: str | None = None
    """Name of the category; None for prompts without one."""


class RequestLogStats(ApiModel):
    """Statistics of a request log about its own requests; None if the log does not contain them."""

    input_tokens_median: float | None = None
    """Median prompt tokens, as counted by the engine that served them."""
    output_tokens_median: float | None = None
    """Median answer tokens."""
    max_tokens_median: float | None = None
    """Median token limit, over requests with one."""
    temperatures: dict[str, int] = {}
    """Number of requests by temperature; `default` if none was set."""
    seconds: float | None = None
    """Seconds from the first to the last timestamp."""


class MemberCoverage(ApiModel):
    """One member of a mix."""

    source: str
    """The member's source."""
    share: float
    """Its fraction of the conversations."""
    output_tokens_min: int | None = None
    """Lower bound of the expected median answer, in tokens."""
    output_tokens_max: int | None = None
    """Upper bound of the expected median answer, in tokens."""


class PromptCoverage(RowCoverage):
    """Coverage of one workload: requested = used + unusable + not drawn (count, turns, shares of a mix)."""

    source: str
    """The prompts' source."""
    config: str | None = None
    """Part or form of the source."""
    revision: str | None = None
    """Revision on the hub, if one was requested."""
    licence: str | None = None
    """Licence of the prompts, if known."""
    rows: int
    """Rows of the file."""
    excluded: dict[str, int] = {}
    """Rows excluded by the source's own rule or by inputTokens, by reason."""
    by_category: list[CategoryCoverage] = []
    """Coverage by category, in file order."""
    members: dict[str, MemberCoverage] = {}
    """Members of a mix, by name."""
    recorded: RequestLogStats | None = None
    """Statistics of a request log about its own requests."""
    reusable_share: float | None = None
    """Source sessions: share of the prompt tokens that a prompt cache can reuse, see `dataset.sessions`."""

    @property
    def missing(self) -> int:
        """Number of requested rows without usable text."""
        return sum(self.unusable.values())
