"""Results of a point, and of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from specbench_api.api_model import ApiModel
from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_api.spec.slo import Slo
from specbench_api.spec.status import NONE_FASTER
from specbench_client.documents.arrival_pattern import ArrivalPattern
from specbench_client.documents.breakdown import Breakdown, Reuse, ReuseMissing
from specbench_client.documents.curves import ArmCrossover
from specbench_client.documents.explanation import Prediction, StepCost
from specbench_client.documents.figure import Figure, Verdict
from specbench_client.documents.finding import Finding, faults_by_arm
from specbench_client.documents.lossless import JudgedAnswers, Losslessness
from specbench_client.documents.prompt_coverage import PromptCoverage
from specbench_client.documents.recommendation import Recommendation


class Claims(ApiModel):
    """Conclusions about the speed-up of a cell and of each of its categories.

    There are two families, each corrected by Holm's method at 5 %: all cells of the run, and the categories of all
    cells. The probability of one or more false claims is at most 5 % in each family.
    """

    overall: Verdict
    """Conclusion about the cell."""
    comparisons: int
    """Number of cells in the family."""
    by_category: dict[str, Verdict] = {}
    """Conclusion about each category."""
    category_comparisons: int = 0
    """Number of categories in the family, over all cells of the run."""


class Goodput(ApiModel):
    """SLO goodput of one cell. Not the token goodput of some schedulers, which is emitted tokens over step time."""

    slo: Slo
    """The targets used."""
    rate: Figure
    """Requests per second that ended in the steady window and met every target."""
    slo_attainment: Figure
    """Fraction of the requests in the steady state that met every target; a failed request met none."""
    by_target: dict[str, Figure]
    """For each target that is set (ttft_ms, tpot_ms, e2e_ms): fraction of these requests that met it."""


class EndToEnd(ApiModel):
    """Whole requests of an arm, compared with the same requests of its paired baseline at the same load."""

    speedup: Figure
    """The baseline's mean time to the last token divided by this arm's, over the pairs. Also the ratio of requests per
    hour."""
    median_speedup: Figure
    """Median over the pairs of the baseline's time to the last token divided by this arm's: the speed-up of a typical
    request."""
    requests_per_hour: Figure
    """Requests per hour of this arm; missing where the schedule of an open loop or waiting users limit it."""
    baseline_requests_per_hour: Figure
    """Requests per hour of the baseline."""
    cost_saved: Figure
    """Fraction of a request's cost that is saved at the same price per hour: 1 − 1 / speedup; negative if it costs
    more. Missing where requests per hour are."""


MIN_WINDOWS = 8
"""Fewest windows of a soak test that give changes over time: fewer do not separate autocorrelation from a slope."""


class SteadyWindow(ApiModel):
    """The steady state of a point: first steady request sent to last steady token. `output_tps` covers it."""

    start_ns: int
    """Start, in ns from the point's start."""
    end_ns: int
    """End, in ns from the point's start."""
    share: Annotated[float, Field(ge=0)]
    """Its length as a fraction of the point's, which is from the first request sent to the last token, without warm-up.
    """

    @property
    def length_s(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


class RequestCounts(ApiModel):
    """Requests and tokens of a point or cell."""

    requests: int = 0
    """Requests (turns) sent, without warm-up."""
    steady_requests: int = 0
    """Number of these requests in the steady state."""
    failed_requests: int = 0
    """Number of these requests that failed."""
    conversations: int = 0
    """Number of conversations."""
    prompts: int = 0
    """Number of different prompts."""
    input_tokens: int | None = None
    """Prompt tokens, as counted by the engine."""
    output_tokens: int | None = None
    """Output tokens, as counted by the engine."""


class ClientHealth(ApiModel):
    """What the client observed about itself during the measurement."""

    workers: int | None = None
    """Number of processes that generated the load."""
    cpu_share: float | None = None
    """CPU seconds per second of the busiest worker, relative to one core."""
    load_per_core: float | None = None
    """Load average of the client's machine in the last minute, by its cores: processes that run or wait for a core."""
    loop_lag_p99_ms: float | None = None
    """99th percentile over time of the event loop's lag, of the worst worker, in ms. A pause counts by its length."""
    loop_lag_max_ms: float | None = None
    """Largest lag of an event loop, over all workers, in ms."""
    send_lateness_p99_ms: float | None = None
    """99th percentile of connect_ns - intended_ns over first turns in the steady state, in ms. Time to connect is the
    server's."""
    coalesced_chunk_share: float | None = None
    """Fraction of chunks that one read returned together with later data (a chunk, the usage, [DONE]); their timestamp
    is late."""
    coalesced_end_share: float | None = None
    """Fraction of streamed answers whose last chunk was coalesced in this way; the time of their last token is late."""
    answers_in_one_read: int | None = None
    """Number of answers with two or more tokens whose chunks all have the same time: they have no time per token."""
    kernel_clock_share: float | None = None
    """Fraction of answers with kernel timestamps."""
    reached_concurrency: float | None = None
    """Mean number of requests in flight in the steady state."""
    reached_rate: float | None = None
    """Open loop: conversations started per second in the steady state."""
    in_flight_growth: float | None = None
    """Open loop: mean requests in flight in the last third of the steady state divided by those in the first third."""
    warmup_requests: int | None = None
    """Number of warm-up requests before this point; None if there was no warm-up."""
    warmup_steady: bool | None = None
    """Whether step times were steady at the end of the warm-up; None if there was none."""
    steady_share: float | None = None
    """Length of the steady state as a fraction of the point's duration."""
    duration_s: float | None = None
    """Seconds from the first request sent to the last token, without warm-up."""
    interrupted_before: bool | None = None
    """Whether an attempt at this point was interrupted, so that the running server may have got its prompts before."""


class TokenCounters(ApiModel):
    """Increase of the engine's counts over the point, without warm-up. None for counters that it does not have."""

    output_tokens: int | None = None
    """Generated tokens."""
    prompt_tokens: int | None = None
    """Prompt tokens."""
    cached_tokens: int | None = None
    """Prompt tokens from a cache."""
    draft_steps: int | None = None
    """Steps that verified drafts."""
    drafted_tokens: int | None = None
    """Draft tokens proposed."""
    accepted_tokens: int | None = None
    """Draft tokens accepted."""


class CounterDeltas(TokenCounters):
    """Increase of the engine's counters over the point, without warm-up, and what else its metrics page shows."""

    restarted: bool = False
    """Whether a counter decreased, which means that the engine restarted."""
    process_started_s: float | None = None
    """When the engine's process started, in s since 1970, read after the point. None if the engine does not report it.
    """
    output_tokens_total: int | None = None
    """The counter of generated tokens, read after the point."""
    prompt_tokens_total: int | None = None
    """The counter of prompt tokens, read after the point."""
    unread: str | None = None
    """Why there are no counters: what the server answered, or which names its metrics page lacks."""
    other_models: list[str] = []
    """Other models on the metrics page; the counts leave them out."""
    all_models: TokenCounters | None = None
    """The counts over all models of the page, if it has others."""


class LoadResult(ApiModel):
    """Results of one arm on one workload at one load: of a point, or of a cell, which has all repeats."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    level: Level
    """The load level."""
    arrivals: ArrivalPattern
    """How requests arrived."""
    counts: RequestCounts
    """Requests and tokens."""
    figures: dict[str, Figure]
    """Figures by name, see docs/reference/metrics.md."""

    def value(self, name: str) -> float | None:
        """Return the value of a figure; None if it is missing."""
        figure = self.figures.get(name)
        return figure.value if figure else None


class PointSummary(LoadResult):
    """Results of one point."""

    schema_version: Literal["specbench.io/point-summary/v5"] = "specbench.io/point-summary/v5"
    """Version of this document."""
    hash: str
    """Hash of the point."""
    repeat: int
    """Index of the repeat, from 0."""
    simulated: bool
    """Whether the engine was the simulator; it is then not a measurement."""
    window: SteadyWindow | None = None
    """The steady state; None if there is none."""
    client_health: ClientHealth
    """What the client observed about itself."""
    counters: CounterDeltas | None = None
    """Increase of the engine's counters; None if they could not be read."""
    engine_launch: str | None = None
    """The launch of the engine within its group. None if specbench did not launch it."""
    kv_cache_usage: float | None = None
    """Windows of a soak test: mean fraction of the engine's KV cache in use, over regular readings during the load.
    None if the engine does not report it."""
    findings: list[Finding] = []
    """Findings of the checks that examine a single point."""


class Trend(ApiModel):
    """How a figure of an arm changed over the windows of a soak test.

    If the engine restarted, these are the windows of its longest time without a restart. The slope is that of all.
    """

    name: str
    """Name of the figure."""
    start: float
    """Value of the fitted line in the first window."""
    end: float
    """Value of the fitted line in the last window."""
    change: Figure
    """Change from the first window to the last: of a share the difference, else relative to the first window."""
    hours: float
    """Time from the middle of the first window to that of the last."""
    restarts: int = 0
    """How often the engine restarted during the test."""

    @property
    def time_words(self) -> str:
        """The time in the largest unit of which there is at least one: `42 s`, `5.1 min`, `12 h`."""
        for unit, per_hour in (("h", 1), ("min", 60)):
            if self.hours * per_hour >= 1:
                return f"{self.hours * per_hour:.3g} {unit}"
        return f"{self.hours * 3600:.3g} s"

    @property
    def restart_words(self) -> str:
        """Whether the engine restarted, and what that means for the other fields; empty if it did not."""
        if not self.restarts:
            return ""
        times = "once" if self.restarts == 1 else f"{self.restarts} times"
        return f"the engine restarted {times}, and changes are over its longest time without a restart"

    @property
    def change_per_hour(self) -> float | None:
        """The mean change per hour; None for a test of less than an hour, about whose next hour it says nothing."""
        return None if self.change.value is None or self.hours < 1 else self.change.value / self.hours


NOT_MEASURED = "not measured"
"""Why a planned cell without a point is unknown."""


class Cell(LoadResult):
    """One arm, workload and load over all repeats, compared with the paired baseline."""

    points: list[str]
    """Hashes of its measured points."""
    windows: list[SteadyWindow | None] = []
    """Steady state of each point, in the same order."""
    speedup: Figure | None = None
    """Output tokens per second of stream time, divided by the paired baseline's."""
    tpot_speedup: Figure | None = None
    """The baseline's time per output token divided by this arm's."""
    end_to_end: EndToEnd | None = None
    """Whole requests, compared with the paired baseline's. None for the baseline, and if nothing was paired."""
    claims: Claims | None = None
    """Conclusions about the speed-up. None for the baseline."""
    compared_repeats: int | None = None
    """Number of repeats that were compared with the baseline; None if none was."""
    by_category: dict[str, dict[str, Figure]] = {}
    """Category → name of the figure → figure."""
    goodput: Goodput | None = None
    """SLO goodput; None if the run has no targets."""
    breakdown: Breakdown = Breakdown()
    """Breakdown by position, context, length, turn and part."""
    prediction: Prediction | None = None
    """Speed-up predicted by simple formulas, and the factors between that and the measurement. None for the baseline,
    and if steps are unknown."""
    trends: list[Trend] = []
    """Figures over the windows of a soak test; empty otherwise."""
    lossless: Losslessness | None = None
    """Whether its answers are the baseline's. None for the baseline, and in a run without one."""
    reuse: Reuse | None = None
    """What it reuses from the prompt cache, compared with the baseline. None for the baseline, with promptCache:
    Disabled, and if an engine does not report cached tokens."""
    reuse_missing: ReuseMissing | None = None
    """Why reuse is not compared although the prompt cache is measured as served. None if it is compared."""
    judged: JudgedAnswers | None = None
    """Flawed answers, compared with the paired baseline's. None for the baseline, and if none was judged."""
    valid: bool = True
    """False if a check invalidated the comparison."""
    findings: list[str] = []
    """Names of the checks that reported a finding here."""

    def own_findings(self, findings: Iterable[Finding], *others: str) -> list[Finding]:
        """Return the findings of this cell, its points and `others`, other arms, out of those of the whole run."""
        arms, place = (self.arm, *others), (self.workload, self.level.label)
        return [each for each in findings if each.arm in arms and (each.workload, each.load) == place]

    def why_invalid(self, findings: Iterable[Finding]) -> str:
        """Return `invalid (ClientSaturated)`, with the checks that invalidated it or its baseline; empty if valid.

        `findings`: those of the whole run. A cell may have warnings and notes too, which are not reasons.
        """
        if self.valid:
            return ""
        if not self.points:
            return NOT_MEASURED
        names = dict.fromkeys(each.check for each in self.own_findings(findings, BASELINE_NAME) if each.invalidates)
        return f"invalid ({', '.join(names)})" if names else "invalid"

    def why_not_compared(self, findings: Iterable[Finding]) -> str:
        """Return why the cell has no speed-up to conclude from; empty if it has one. `findings`: of the whole run."""
        has_speedup = self.speedup is not None and self.speedup.value is not None
        return self.why_invalid(findings) or ("" if has_speedup else "not compared with a baseline")


class ArmEnvironment(ApiModel):
    """Facts about an arm's launches that matter for the comparison. provenance.json contains all facts."""

    arm: str
    """Name of the arm."""
    launches: list[str]
    """Launches that served a measured point."""
    facts: dict[FactName, Fact]
    """Facts by name, see docs/reference/provenance.md.

    Numbers are the median over the launches; other values only if all agree.
    """
    kv_cache_lost: Figure | None = None
    """Fraction of the KV cache that the drafter costs; None for the baseline."""


class RunConclusion(ApiModel):
    """Which run it is, and what follows from it."""

    namespace: str
    """Namespace of the run."""
    name: str
    """Name of the run."""
    uid: str
    """UID of the run."""
    created: str
    """When its summary was written, RFC 3339."""
    simulated: bool
    """Whether any of its points was simulated."""
    trustworthy: bool
    """Whether no check found a reason to doubt it."""
    headline: str
    """The answer as advice, for a person: which arm to use at which load, and what is unknown. One sentence of at most
    25 words for each workload."""


class RunSummary(RunConclusion):
    """Results of a run: summary.json."""

    schema_version: Literal["specbench.io/run-summary/v6"] = "specbench.io/run-summary/v6"
    """Version of this document."""
    points_total: int
    """Number of points in the plan."""
    points_measured: int
    """Number of points with a manifest."""
    points_invalid: int
    """Number of measured points that a check invalidated."""
    missing: list[str] = []
    """Hashes of the points without a manifest."""
    decided_after: int | None = None
    """Number of repeats after which every speed-up was decided and the run ended; None without such a rule."""
    cells: list[Cell]
    """Results by arm, workload and load."""
    arm_environments: list[ArmEnvironment] = []
    """What the arms ran on, and what their drafters cost of it."""
    coverage: dict[str, PromptCoverage] = {}
    """By workload: how many of the requested rows became prompts."""
    crossovers: list[ArmCrossover] = []
    """Up to which load each arm is faster, on each workload."""
    slo: Slo | None = None
    """Targets used for goodput; None if the run has none."""
    step_costs: list[StepCost] = []
    """Step cost by batch size, draft length and context: one profile per drafter. Empty if no cell reports steps."""
    findings: list[Finding]
    """All findings of the checks."""
    failures: dict[str, str] = {}
    """Arm → why its engine failed, for arms with missing points, as far as the client that measured it reported it."""
    recommendation: Recommendation | None = None
    """Which arm to use at which load, for maximum throughput and without prices. It is computed from the rest of the
    summary."""

    @property
    def is_sound(self) -> bool:
        """Whether it is trustworthy and no arm is at fault: the exit code of commands about the run is then 0."""
        return self.trustworthy and not faults_by_arm(self.findings)


class SummaryOfAnyVersion(ApiModel):
    """The fields of a summary that later commands need: whether it is up to date, and what no other file has."""

    model_config = ConfigDict(extra="ignore")

    created: str
    points_measured: int
    missing: list[str] = []
    slo: Slo | None = None
    failures: dict[str, str] = {}


# The best speed-up as text, for columns and tables. Only speed-ups that are claimed after the correction for multiple
# comparisons count.

BEST_MAX = 128


def best_speedup_text(summary: RunSummary) -> str:
    """Return the largest claimed speed-up with its arm and load, or else that there is none, if every cell is known.

    An arm at fault does not count. If there is none, the largest claimed slow-down follows. Empty if nothing could be
    compared.
    """
    ruled_out = {BASELINE_NAME, *faults_by_arm(summary.findings)}
    usable = [cell for cell in summary.cells if cell.arm not in ruled_out]
    compared = [(bounds, cell) for cell in usable if cell.valid and (bounds := _speedup(cell))]
    several = len({cell.workload for cell in summary.cells}) > 1
    claimed = [
        (value, f"{cell.arm} {value:.2f}x at {cell.level.words}{f' {cell.workload}' if several else ''}")
        for (value, low, high), cell in compared
        if (low > 1 or high < 1) and (cell.claims is None or cell.claims.overall.is_claim)
    ]
    if claimed and max(claimed)[0] > 1:
        return max(claimed)[1][:BEST_MAX]
    none = [NONE_FASTER] if compared and len(compared) == len(usable) and not summary.missing else []
    return "; ".join([*none, *([min(claimed)[1]] if claimed else [])])[:BEST_MAX]


def _speedup(cell: Cell) -> tuple[float, float, float] | None:
    """Return value and bounds, or None without an interval."""
    figure = cell.speedup
    if figure is None or figure.value is None or figure.interval is None:
        return None
    return figure.value, figure.interval.low, figure.interval.high
