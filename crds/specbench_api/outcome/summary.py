"""What a point measured, and what the run answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specbench_api.model import ApiModel
from specbench_api.outcome.claims import Claims
from specbench_api.outcome.coverage import Coverage
from specbench_api.outcome.crossover import Crossovers
from specbench_api.outcome.end_to_end import EndToEnd
from specbench_api.outcome.facts import FactName
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.finding import Finding
from specbench_api.outcome.goodput import Goodput
from specbench_api.outcome.launched import Fact
from specbench_api.outcome.lossless import Losslessness
from specbench_api.outcome.prediction import Prediction
from specbench_api.outcome.recommendation import Recommendation
from specbench_api.outcome.slices import Slices
from specbench_api.outcome.stepcost import StepCost
from specbench_api.spec.load import Arrival, Level, Load, Process
from specbench_api.spec.slo import Slo

REPEATS_TO_TELL = 3
"""Of fewer repeats no interval holds what runs do: the words faster and slower are not said."""


CLOSED_LOOP = "ClosedLoop"


class Arrivals(ApiModel):
    """How requests came to the engine. With the level it says which load a row was."""

    process: Literal["ClosedLoop", "Constant", "Poisson", "Gamma", "Trace"]
    """ClosedLoop: each stream sends its next request when its last one is answered. Else how conversations arrived in
    an open loop."""
    burstiness: float | None = None
    """Gamma alone: shape of the gaps, whose CV is 1 / sqrt(burstiness)."""
    trace: str | None = None
    """Trace alone: where the recording was read."""

    @classmethod
    def of(cls, load: Load) -> Arrivals:
        """As a run asked for them."""
        if load.concurrency is not None:
            return cls(process="ClosedLoop")
        arrival = load.arrival or Arrival()
        shape = arrival.burstiness if arrival.process is Process.GAMMA else None
        return cls(process=arrival.process.value, burstiness=shape, trace=arrival.uri)

    @property
    def words(self) -> str:
        """For tables: `closed loop`, `Poisson`, `Gamma, burstiness 0.25`, `Trace arrivals.csv`."""
        if self.process == CLOSED_LOOP:
            return "closed loop"
        shape = f", burstiness {self.burstiness:g}" if self.burstiness is not None else ""
        return self.process + shape + (f" {self.trace}" if self.trace else "")


class SteadyWindow(ApiModel):
    """The steady state of a point, in which `output_tps` counts: first steady request sent to last steady token."""

    start_ns: int
    """Begin, counted from the point's start as the times of its records are."""
    end_ns: int
    """End, counted alike."""
    share: Annotated[float, Field(ge=0)]
    """Its length over the point's, which is from the first request sent to the last token, warm-up left out."""

    @property
    def length_s(self) -> float:
        """How long it was."""
        return (self.end_ns - self.start_ns) / 1e9


class Counts(ApiModel):
    """Requests and tokens of a point or of a cell."""

    requests: int = 0
    """Requests (turns) sent, warm-up left out."""
    steady_requests: int = 0
    """Of them, those in the steady state."""
    failed_requests: int = 0
    """Of them, those that failed."""
    conversations: int = 0
    """Conversations."""
    prompts: int = 0
    """Different prompts."""
    input_tokens: int | None = None
    """Prompt tokens, as the engine counts them."""
    output_tokens: int | None = None
    """Output tokens, as the engine counts them."""


class SelfWatch(ApiModel):
    """What the client saw of itself while it measured."""

    workers: int | None = None
    """Processes that drove the load."""
    cpu_share: float | None = None
    """CPU seconds a second of the busiest of them, of one core."""
    loop_lag_p99_ms: float | None = None
    """99th percentile of the event loop's lateness, of the worst worker."""
    send_lateness_p99_ms: float | None = None
    """99th percentile of connect_ns - intended_ns over first turns in the steady state; connecting is the server's."""
    gathered_chunk_share: float | None = None
    """Share of the chunks that one read gathered with what came after them (a later chunk, the usage, [DONE]): they
    bear its time, which is late for them."""
    gathered_end_share: float | None = None
    """Share of the streamed answers whose last chunk is such a one: their last token is late by as much."""
    answers_in_one_read: int | None = None
    """Answers of two tokens and more whose chunks all bear one time: they have no time per token."""
    kernel_clock_share: float | None = None
    """Share of the answers whose times are the kernel's."""
    reached_concurrency: float | None = None
    """Mean requests in flight in the steady state."""
    reached_rate: float | None = None
    """Open loop: conversations begun a second in the steady state."""
    in_flight_growth: float | None = None
    """Open loop: mean requests in flight in the last third of the steady state over the first third's."""
    warmup_requests: int | None = None
    """Requests of the warm-up before this point; None where there was none."""
    warmup_steady: bool | None = None
    """Whether step times were steady when the warm-up ended; None where there was none."""
    steady_share: float | None = None
    """Steady state's share of the point's duration."""
    duration_s: float | None = None
    """From the first request sent to the last token, warm-up left out."""


class Counters(ApiModel):
    """Differences of the engine's own counters over the point, warm-up left out. None where it has none."""

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
    restarted: bool = False
    """A counter went backwards: the engine restarted."""


class PointSummary(ApiModel):
    """What one point measured."""

    schema_version: Literal["specbench.io/point-summary/v2"] = "specbench.io/point-summary/v2"
    """Version of this document."""
    hash: str
    """The point."""
    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    level: Level
    """The load level."""
    arrivals: Arrivals | None = None
    """How requests came. None: written before this was kept."""
    repeat: int
    """Which repeat."""
    simulated: bool
    """True when the engine was the simulator: never a measurement."""
    counts: Counts
    """Requests and tokens."""
    window: SteadyWindow | None = None
    """Its steady state; None where it has none, or where it was written before this was kept."""
    figures: dict[str, Figure]
    """By name, see docs/metrics.md."""
    self_watch: SelfWatch
    """What the client saw of itself."""
    counters: Counters | None = None
    """What the engine counted."""
    findings: list[Finding] = []
    """What the checks of a single point found."""


class Cell(ApiModel):
    """One arm × workload × load over all its repeats, compared with the paired baseline."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    level: Level
    """The load level."""
    arrivals: Arrivals | None = None
    """How requests came. None: written before this was kept."""
    points: list[str]
    """Hashes of its measured points."""
    windows: list[SteadyWindow | None] = []
    """The steady state of each of its points, in their order."""
    counts: Counts
    """Requests and tokens."""
    figures: dict[str, Figure]
    """By name, over all repeats."""
    speedup: Figure | None = None
    """Output tokens a second of stream time over the paired baseline's."""
    tpot_speedup: Figure | None = None
    """The baseline's time per output token over this arm's."""
    end_to_end: EndToEnd | None = None
    """Whole requests against the paired baseline's. None: the baseline's own cell, nothing paired, or written before
    this was kept."""
    claims: Claims | None = None
    """What the speed-up allows to be said. None: the baseline's own cell, or written before this was kept."""
    compared_repeats: int | None = None
    """Repeats in which it was compared with the baseline; None where it was not."""
    by_category: dict[str, dict[str, Figure]] = {}
    """Category → figure's name → figure."""
    goodput: Goodput | None = None
    """What was within the targets; None where the run has none, or where it was written before this was kept."""
    slices: Slices | None = None
    """The same requests and steps by where they stand; None where it was written before this was kept."""
    prediction: Prediction | None = None
    """Its speed-up beside what simple formulas predict, and the factors between the two; None for the baseline, where
    steps are not told, and in what was written before this was kept."""
    lossless: Losslessness | None = None
    """Whether its answers are the baseline's; None for the baseline, without one, and before this was kept."""
    valid: bool = True
    """False when a check broke the comparison."""
    findings: list[str] = []
    """Names of the checks that found something here."""

    @property
    def too_few_repeats(self) -> str:
        """How few, in words, where it was compared in fewer than can tell a difference; empty elsewhere."""
        repeats = self.compared_repeats
        if repeats is None or repeats >= REPEATS_TO_TELL:
            return ""
        return f"{repeats} repeat{'s' if repeats != 1 else ''}: too few to tell"


class ArmSeen(ApiModel):
    """What was seen of an arm's launches, as far as it bears on the comparison. All of it: provenance.json."""

    arm: str
    """Name of the arm."""
    launches: list[str]
    """Its launches that served a measured point."""
    facts: dict[FactName, Fact]
    """By name, see docs/provenance.md. Numbers are the median over its launches; words are told where all agree."""
    kv_cache_lost: Figure | None = None
    """What the drafter costs of the KV cache; None for the baseline."""


class RunSummary(ApiModel):
    """The answer of a run."""

    schema_version: Literal["specbench.io/run-summary/v2"] = "specbench.io/run-summary/v2"
    """Version of this document."""
    namespace: str
    """Namespace of the run."""
    name: str
    """Name of the run."""
    uid: str
    """UID of the run."""
    simulated: bool
    """True when any point was simulated."""
    created: str
    """When this was written, RFC 3339."""
    points_total: int
    """Points of the plan."""
    points_measured: int
    """Points with a manifest."""
    points_invalid: int
    """Of them, those that a check made invalid."""
    missing: list[str] = []
    """Hashes of the points without a manifest."""
    cells: list[Cell]
    """The answers."""
    arms_seen: list[ArmSeen] = []
    """What the arms ran on, and what their drafters cost of it."""
    coverage: dict[str, Coverage] = {}
    """By workload: which of the rows that were asked for its prompts are. Empty: written before this was kept."""
    crossover: Crossovers | None = None
    """Up to which load each arm pays, and which acceptance it needs. None: written before this was kept."""
    slo: Slo | None = None
    """The targets by which goodput was judged; None where the run has none."""
    step_costs: list[StepCost] = []
    """What a step costs by batch, draft length and context: one profile a drafter. Empty: no cell tells its steps, or
    it was written before this was kept."""
    findings: list[Finding]
    """Everything the checks found."""
    trustworthy: bool
    """Whether no check found a reason to doubt."""
    verdict: str
    """The verdict in one sentence."""
    recommendation: Recommendation | None = None
    """Which arm at which load, for most throughput and without prices. None: written before this was told."""
