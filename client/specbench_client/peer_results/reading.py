"""What a reader returns, and how it takes figures and numbers from a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from specbench_api.api_model import ApiModel
from specbench_api.spec.load import STREAMS_MAX, Level
from specbench_client.documents.minimum_samples import too_few_requests
from specbench_client.documents.summary import CounterDeltas
from specbench_client.errors import BadInput
from specbench_client.transport.error_messages import replace_lone_surrogates


class PeerFigure(ApiModel):
    """One figure of the file."""

    name: str
    """Name of our figure, see docs/reference/metrics.md; the file's own name if we have no such figure."""
    field: str
    """Where the file has it."""
    unit: str
    """Unit of the values."""
    printed: float
    """The value of the file, in `unit`."""
    value: float | None = None
    """The value by our definition; None if it is not comparable."""
    reason: str = ""
    """Why it is not comparable; for a comparable figure, what was converted. Empty: the definitions are the same."""


class PeerResult(ApiModel):
    """One measurement of the file: one load."""

    schema_version: Literal["specbench.io/peer-result/v1"] = "specbench.io/peer-result/v1"
    """Version of this document."""
    file: str
    """The file, with the number of the measurement if it has several."""
    tool: str
    """The benchmark that wrote it."""
    tool_version: str | None = None
    """Its version; None if the file does not state it."""
    model: str | None = None
    """The model; None if the file does not state it."""
    level: Level | None = None
    """The load; None if the file does not state it."""
    requests: int = 0
    """Requests that were answered."""
    requests_stored: int = 0
    """Requests of which the file has its own row; 0 in a summary."""
    figures: list[PeerFigure] = []
    """The figures of the file's summary."""
    limits: list[str] = []
    """What the file does not contain, and what follows from that."""


class PeerResults(ApiModel):
    """What `specbench import` read, and where the requests were stored."""

    schema_version: Literal["specbench.io/peer-results/v1"] = "specbench.io/peer-results/v1"
    """Version of this document."""
    results: list[PeerResult]
    """The measurements, in the order of the files."""
    stored: str | None = None
    """Root of the run with the requests of all files; None if no file has requests."""


NOT_PEER_FILE = "NotAPeerResult"
"""Reason of the error for a file of no known benchmark."""


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """One request. Times are ns from its own start, and missing values None.

    `prompt`: what identifies the prompt in two files of the same prompts: its text, or its index and length.
    `start_ns`: when it was sent, on any clock that all requests of the file share. `waited_ns`: the client's own delay
    before that. `ends_ns`: when the exchange ended, by other fields than the tokens' times. Draft counts are the
    engine's, with accepted tokens that were cut off at the end of the answer.
    """

    prompt: str
    start_ns: int | None = None
    waited_ns: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    ends_ns: tuple[int, ...] = ()
    chunk_ns: tuple[int, ...] | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    draft_steps: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    turn: int = 0
    error: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        # A text may end within a character, and half of one cannot be stored.
        for name in ("prompt", "error", "text"):
            if (text := getattr(self, name)) is not None:
                object.__setattr__(self, name, replace_lone_surrogates(text))


@dataclass(frozen=True)
class PeerReading:
    """One measurement of a file, and its requests if it has them."""

    result: PeerResult
    requests: Sequence[PeerRequest] = ()
    counters: CounterDeltas | None = None
    """The server's counters over the run; None if the file does not have them."""
    chunks_are_steps: bool = False
    """Whether the server's count of steps shows that each chunk after the first is one step."""


@dataclass(frozen=True)
class DraftCounts:
    """Totals of a measurement, as engines report them; `accepted` and `drafted` may be missing."""

    tokens: float
    answered: float
    steps: float
    accepted: float | None
    drafted: float | None


@dataclass
class FigureList:
    """Collects the figures of one measurement. A field that is missing or no number is left out."""

    figures: list[PeerFigure] = field(default_factory=list)

    def add(self, name: str, unit: str, where: str, printed: Any, refused: str = "") -> None:
        """Add a figure whose definition is ours, or one that is not comparable, with the reason in `refused`."""
        self.convert(name, unit, where, printed, value=None if refused else printed, how=refused)

    def add_latencies(
        self,
        rows: Iterable[tuple[str, str, str]],
        statistics: Mapping[str, str],
        look_up: Callable[[str, str], tuple[str, Any]],
    ) -> None:
        """Add the statistics of latencies in ms. `rows`: the file's name, our figure, why it is not comparable.

        `statistics`: the file's name → our ending of the figure's name. `look_up`: returns where the file has a
        statistic of a latency, and its value in ms.
        """
        for theirs, ours, refused in rows:
            for statistic, suffix in statistics.items():
                self.add(f"{ours}_{suffix}", "ms", *look_up(theirs, statistic), refused)

    def add_acceptance(self, counts: DraftCounts, length: tuple[str, Any], percent: tuple[str, Any], how: str) -> None:
        """Add acceptance length and rate, computed again from the counts.

        `length`, `percent`: where the file has its own, and the value. `how`: how theirs were converted.
        """
        value = emitted_length(counts.tokens, counts.answered, counts.steps, counts.accepted)
        self.convert("acceptance_length_emitted_pooled", "tokens/step", *length, value=value, how=how)
        later = max(counts.tokens - counts.answered - counts.steps, 0.0)
        kept = None if counts.accepted is None else min(counts.accepted, later)
        share = kept / counts.drafted if kept is not None and counts.drafted else None
        where, printed = percent[0], finite(percent[1])
        self.convert("acceptance_rate", "ratio", where, printed and printed / 100, value=share, how=how)

    def convert(self, name: str, unit: str, where: str, printed: Any, *, value: float | None, how: str) -> None:
        """Add a figure of another definition, with its value by ours."""
        number = finite(printed)
        if number is not None:
            known = finite(value)
            if number < 0 or (known is not None and known < 0):
                known, how = None, BELOW_ZERO
            elif number == 0 and unit == "ms":
                known, how = None, ZERO_TIME
            self.figures.append(PeerFigure(name=name, unit=unit, field=where, printed=number, value=known, reason=how))


BELOW_ZERO = "it is below 0, which no measurement gives: the file is damaged"
ZERO_TIME = "no time is 0: it was not measured"
WHOLE_RUN = (
    "all tokens / the whole duration, which includes the start and the end, where fewer requests are open; ours covers"
    " the steady window"
)
"""Why a throughput of a summary is not ours."""
WITH_INPUT = "the total, which counts prompt tokens too"
PER_CHUNK = "time between chunks: a chunk has several tokens if the server speculates"
FROM_COUNTERS = (
    "from the server's counters over the run; accepted tokens that were cut off at the end of answers are removed by"
    " the number of output tokens"
)


def emitted_length(tokens: float, requests: float, steps: float, accepted: float | None) -> float | None:
    """Return the pooled acceptance length, emitted, from totals; None if nothing was drafted.

    `steps`, `accepted`: as engines report them. Decode steps without drafts are not in `steps`: each emits one token
    more than the drafts explain.
    """
    if tokens <= requests:  # no answer has a token after its first one: nothing is known about steps
        return None
    undrafted = 0.0 if accepted is None else max(tokens - requests - steps - accepted, 0.0)
    return (tokens - requests) / (steps + undrafted) if steps > 0 else None


def finite(value: Any) -> float | None:
    """Return a finite number, also from text such as `0.1234`; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):  # a text that is no number, an integer of 400 digits
        return None
    return number if math.isfinite(number) else None


def scaled(value: Any, factor: float | None) -> float | None:
    """Return a finite number in another unit; None for anything else, or for an unknown unit."""
    number = finite(value)
    return None if number is None or factor is None else number * factor


def whole(value: Any) -> int | None:
    """Return a whole number from 0; None for anything else."""
    number = finite(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


SECONDS_MAX = 4e9
"""Largest time, which is later than any clock; the sum of two of them in ns fits into 64 bits."""


def ns_of(seconds: Any) -> int | None:
    """Return seconds as ns; None if they are not a number from 0 to SECONDS_MAX."""
    number = finite(seconds)
    return None if number is None or not 0 <= number <= SECONDS_MAX else round(number * 1e9)


CLOCK_NS = 1_000_000
"""Largest difference between two clocks of one file, or by rounding."""
LONGEST_NS = 86_400 * 10**9
"""A day: no request takes longer, and times that do are on different clocks or in another unit."""
MOST_TOKENS = 2**24
"""Largest count of tokens or steps in a request."""


@dataclass(frozen=True)
class PeerRow:
    """A request in a file; fields that are missing are None. Raises BadInput for impossible ones, with their place."""

    place: str
    data: Any

    def checked(self, request: PeerRequest) -> PeerRequest:
        """Return the request; its times must be in order."""
        ends = [end_ns + CLOCK_NS for end_ns in sorted(request.ends_ns)]
        times = [time for time in (1, request.first_ns, request.last_ns, *ends, LONGEST_NS) if time is not None]
        chunks = list(request.chunk_ns or ())
        if request.error is None and (times != sorted(times) or chunks != sorted(chunks)):
            raise damaged(
                f"{self.place}: its times contradict one another (from the request to the first token"
                f" {request.first_ns} ns, to the last {request.last_ns} ns, to the end"
                f" {request.ends_ns or 'unknown'}): is one in another unit?"
            )
        return request

    def positive(self, *path: str, most: float = SECONDS_MAX) -> float | None:
        """Return a number above 0: a time, or a moment on a clock that does not start at 0."""
        value = inside(self.data, *path)
        what = f"a number above 0 and at most {most:g}"
        return None if value is None else self._read(path, value, lambda number: 0 < number <= most, what)

    def count(self, *path: str) -> int | None:
        """Return a count of tokens or steps."""
        value, what = inside(self.data, *path), f"a whole number from 0 to {MOST_TOKENS:,}"
        if value is None:
            return None
        return int(self._read(path, value, lambda number: 0 <= number <= MOST_TOKENS and number.is_integer(), what))

    def times(self, *path: str) -> list[float]:
        """Return a list of numbers from 0; empty if there is none."""
        values = inside(self.data, *path)
        if not isinstance(values, list | None):
            raise damaged(f"{self.place}: {'.'.join(path)} is {str(values)[:40]}, which is not a list")
        what = f"a number from 0 to {SECONDS_MAX:g}"
        each = enumerate(values or ())
        return [self._read((*path, str(at)), value, lambda time: 0 <= time <= SECONDS_MAX, what) for at, value in each]

    def _read(self, path: Sequence[str], value: Any, valid: Callable[[float], bool], what: str) -> float:
        number = finite(value)
        if number is None or not valid(number):
            raise damaged(f"{self.place}: {'.'.join(path)} is {str(value)[:40]}, which is not {what}")
        return number


def inside(data: Any, *path: str | int) -> Any:
    """Return the value at a path of keys and indices; None if a step is missing."""
    for step in path:
        if isinstance(step, str) and isinstance(data, Mapping):
            data = data.get(step)
        elif isinstance(step, int) and isinstance(data, list) and len(data) > step:
            data = data[step]
        else:
            return None
    return data


def level_of(concurrency: Any, rate: Any = None) -> Level | None:
    """Return the load: a finite rate if there is one, else the streams; None if the file has neither."""
    per_second, streams = finite(rate), whole(concurrency)
    if per_second is not None and 0 < per_second <= 100_000:
        return Level(rate=per_second)
    return Level(concurrency=streams) if streams is not None and 1 <= streams <= STREAMS_MAX else None


def damaged(what: str) -> BadInput:
    """Return the error for a file that contradicts itself."""
    return BadInput(f"{what}: the file is damaged; write it again", NOT_PEER_FILE)


UNIT_FACTOR = 10
"""Times that differ more from the file's own summary have another unit."""


def reject_other_units(result: PeerResult, requests: Sequence[PeerRequest]) -> None:
    """Raise BadInput if the requests' times to the first token have another unit than those of the summary."""
    first_ms = [request.first_ns / 1e6 for request in requests if request.first_ns is not None]
    for figure in result.figures:
        if first_ms and figure.name == "ttft_from_send_ms_mean" and figure.value is not None:
            mean = sum(first_ms) / len(first_ms)
            if not figure.value / UNIT_FACTOR <= mean <= figure.value * UNIT_FACTOR:
                raise damaged(
                    f"{result.file}: its requests take {mean:.4g} ms to the first token, but {figure.field} is"
                    f" {figure.printed:.4g} ms: one of them is in another unit"
                )


def without_bare_tails(result: PeerResult) -> PeerResult:
    """Return the result with percentiles of too few requests marked as not comparable, as ours would be missing."""
    figures = []
    for figure in result.figures:
        percent = figure.name.rpartition("_p")[2]
        few = too_few_requests(int(percent), result.requests) if percent.isdecimal() and result.requests else ""
        shown = few and figure.value is not None
        figures.append(figure.model_copy(update={"value": None, "reason": few}) if shown else figure)
    return result.model_copy(update={"figures": figures})


def equal_columns(name: str, columns: Mapping[str, Any]) -> int:
    """Return the length of the lists. Raises BadInput if one is no list, or they have different lengths."""
    sizes = {key: len(column) if isinstance(column, list) else None for key, column in columns.items()}
    if None in sizes.values() or len(set(sizes.values())) != 1:
        shown = ", ".join(f"{key}: {'no list' if size is None else size}" for key, size in sizes.items())
        raise damaged(f"{name}: its lists of requests have different lengths ({shown})")
    return next(iter(sizes.values())) or 0
