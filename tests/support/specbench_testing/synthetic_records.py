"""Records of a small synthetic run with known truth: acceptance, step times, and noise between runs.

A world answers a plan's points in a closed or an open loop, in virtual time and from a seed, without any corruption;
tests edit its records, counters or health record. Its engine is equally fast under any load. The records of a point,
its uncorrupted summary and the uncorrupted cells are cached for a few equal worlds, because most tests corrupt one arm
of a world that other tests use too. A test of reproducibility calls `summarise_run` directly.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from specbench_api.outcome.provenance import LaunchRecord
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan, Point
from specbench_api.spec.slo import Slo
from specbench_client.analysis.statistics import bootstrap
from specbench_client.analysis.summary.cells import EvaluatedCell
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.analysis.summary.run import arm_environments, evaluate_cells, summarise_cells
from specbench_client.documents.finding import Finding
from specbench_client.documents.prompt_coverage import PromptCoverage
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.documents.summary import ClientHealth, CounterDeltas, PointSummary, RunSummary
from specbench_client.load.conversations import is_filler
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import tidy
from specbench_client.store.records import RECORD_SCHEMA
from specbench_client.trust.checks.load import single_stream_only
from specbench_client.trust.evidence import RunEvidence
from specbench_client.trust.registry import RUN_CHECKS
from specbench_testing.resources import run_of

NS_PER_MS = 1_000_000
TURNAROUND_NS = 200_000
CREATED = "2026-01-01T00:00:00Z"
WORLDS_KEPT = 16
ONE = ("code",)
"""One category, for worlds without tests by category: the breakdown takes a sixth of a summary's time."""


@dataclass(frozen=True)
class SyntheticRun:
    """The truth of a run. Step times and acceptances by arm; other arms have the defaults."""

    prompts: int = 24
    turns: int = 1
    categories: tuple[str | None, ...] = ("code", "chat")
    tokens: tuple[int, int] = (40, 80)
    drafters: tuple[str, ...] = ("ngram",)
    drafts: int = 3
    alpha: Mapping[str, float] = field(default_factory=dict, hash=False)
    alpha_spread: float = 0.15
    step_ms: Mapping[str, float] = field(default_factory=dict, hash=False)
    prefill_ms: float = 30.0
    run_noise: float = 0.005
    step_noise: float = 0.02
    concurrency: tuple[int, ...] = (1,)
    rate: tuple[float, ...] = ()
    """Open loops instead: Poisson arrivals at these rates."""
    repeats: int = 3
    warmup: int = 2
    temperature: float = 0.0
    seeded: bool = False
    """Whether sampled answers are equal in every repeat too, as with a shared seed."""
    seed: int = 1
    cached: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Share of the prompt that is cached, by arm; `prefill_ms` is the time of 100 computed tokens."""
    slo: Slo | None = None
    """Targets for goodput."""
    edits: Mapping[str, Any] = field(default_factory=dict, hash=False)
    restarts: bool = False
    """Whether running servers are restarted before each group."""

    @cached_property
    def plan(self) -> Plan:
        drafters = [{"name": name, "method": "ngram", "numSpeculativeTokens": self.drafts} for name in self.drafters]
        for index, drafter in enumerate(drafters):
            drafter["promptLookupMax"] = index + 2
        load = {"rate": list(self.rate), "slots": 64} if self.rate else {"concurrency": list(self.concurrency)}
        edits_by_path = {
            "spec.drafters": drafters,
            "spec.load": {**load, "repeats": self.repeats},
            "spec.workloads[0].sampling": {"temperature": self.temperature, "seed": self.seed},
            "spec.workloads[0].output": {"maxTokens": self.tokens[1]},
        }
        return expand(run_of({**edits_by_path, **self.edits})).model_copy(update={"restarts": self.restarts or None})

    def acceptance(self, arm: str, prompt: int) -> float:
        """Probability that one more draft is accepted; each prompt has its own."""
        middle = self.alpha.get(arm, 0.6)
        shift = _rng(self.seed, "alpha", prompt).uniform(-1, 1) * self.alpha_spread
        return float(np.clip(middle + shift, 0.0, 0.98))

    def length(self, prompt: int, turn: int) -> int:
        """Tokens of an answer: determined by the prompt, for every arm (greedy)."""
        low, high = self.tokens
        return int(_rng(self.seed, "length", prompt, turn).integers(low, high + 1))

    def category(self, prompt: int) -> str | None:
        return self.categories[prompt % len(self.categories)]

    def input_length(self, prompt: int, turn: int) -> int:
        """Tokens of a prompt with its history: they vary only in worlds with a prompt cache."""
        return 100 + (int(_rng(self.seed, "input", prompt, turn).integers(0, 400)) if self.cached else 0)

    def step_of(self, arm: str) -> float:
        return self.step_ms.get(arm, 10.0 if arm == "none" else 12.0)

    def records(self, point: Point) -> pd.DataFrame:
        """All records of one point, warm-up first. The frame is a copy, the lists in it are shared."""
        if point.hash not in self._made:
            self._made[point.hash] = frame_of(_Loop(self, point).records())
        return self._made[point.hash].copy()

    def honest(self, point: Point) -> PointSummary:
        """The summary of the uncorrupted point."""
        if point.hash not in self._found:
            frame = self.records(point)
            arguments = self.plan, point, tidy_frames([frame], point.hash), watch_of(point), counters_of(frame)
            self._found[point.hash] = summarise_point(*arguments, simulated=False)
        return self._found[point.hash]

    def summary_with(
        self, point: Point, watch: ClientHealth, counters: CounterDeltas | None, *, simulated: bool
    ) -> PointSummary:
        """The summary of the point's own records with other health records or counters."""
        return summarise_point(
            self.plan, point, tidy_frames([self.records(point)], point.hash), watch, counters, simulated=simulated
        )

    def is_uncorrupted(self, summary: PointSummary) -> bool:
        """Whether this is the uncorrupted summary of its point."""
        return self._found.get(summary.hash) is summary

    @cached_property
    def _made(self) -> dict[str, pd.DataFrame]:
        return {}

    @cached_property
    def _found(self) -> dict[str, PointSummary]:
        return {}


@dataclass
class _Loop:
    """One point in virtual time: C streams, each taking the next conversation when it is free, or an open loop."""

    world: SyntheticRun
    point: Point

    def __post_init__(self) -> None:
        self.streams = self.point.level.concurrency or 1
        level = self.point.level.label
        names = (self.world.seed, "run", self.point.arm, self.point.workload, level, self.point.repeat)
        self.rng = _rng(*names)
        self.pace = float(np.exp(self.rng.normal(0, self.world.run_noise)))

    def records(self) -> list[Record]:
        found = [self._turn(prompt, 0, 0, -(self.world.warmup - prompt) * 10**9) for prompt in range(self.world.warmup)]
        warm = [_with(record, phase=RecordPhase.WARMUP.value, conversation_id="w") for record in found]
        return [*warm, *(self._closed() if self.point.level.rate is None else self._open(self.point.level.rate))]

    def _closed(self) -> list[Record]:
        free = [0] * self.streams
        measured: list[Record] = []
        for prompt in range(self.world.prompts):
            stream = int(np.argmin(free))
            conversation = self._conversation(prompt, stream, free[stream])
            free[stream] = _end(conversation[-1]) + TURNAROUND_NS
            measured += conversation
        return self._phased(measured, free)

    def _open(self, rate: float) -> list[Record]:
        """Ramp until as many requests have ended as are in flight; drain after the last start."""
        rng = _rng(self.world.seed, "arrivals", rate, self.point.repeat)
        begun = (np.cumsum(rng.exponential(1e9 / rate, self.world.prompts))).astype(int).tolist()
        records = [each for prompt, at in enumerate(begun) for each in self._conversation(prompt, prompt, at)]
        starts, ends = np.array([each.intended_ns for each in records]), np.array([_end(each) for each in records])
        turned = [at for at in begun if (starts <= at).sum() <= 2 * (ends <= at).sum()]
        ramp_until = turned[0] if turned else begun[-1]
        phases = np.where(starts < ramp_until, "ramp", np.where(ends > begun[-1], "drain", "steady"))
        return [_with(record, phase=str(phase)) for record, phase in zip(records, phases, strict=True)]

    @property
    def sample(self) -> str:
        """Greedy answers are equal in every repeat, sampled ones are not."""
        same = self.world.temperature == 0 or self.world.seeded
        return "" if same else f"-{self.point.repeat}"

    def _conversation(self, prompt: int, stream: int, free_ns: int) -> list[Record]:
        """All turns of one conversation."""
        found: list[Record] = []
        for turn in range(self.world.turns):
            found.append(self._turn(prompt, turn, stream, free_ns))
            free_ns = _end(found[-1]) + TURNAROUND_NS
        return found

    def _phased(self, records: list[Record], free: list[int]) -> list[Record]:
        """Ramp until all streams are busy; drain as soon as one of them has no conversation left."""
        last = min(free)
        full = self.streams - 1
        phases = [
            RecordPhase.RAMP if index < full else RecordPhase.DRAIN if _end(record) > last else RecordPhase.STEADY
            for index, record in enumerate(records)
        ]
        return [_with(record, phase=phase.value) for record, phase in zip(records, phases, strict=True)]

    def _turn(self, prompt: int, turn: int, stream: int, free_ns: int) -> Record:
        world, arm = self.world, self.point.arm
        tokens, drafting = world.length(prompt, turn), arm != "none"
        accepted = self._steps(tokens - 1, world.acceptance(arm, prompt)) if drafting else [0] * (tokens - 1)
        step_ns = world.step_of(arm) * NS_PER_MS * self.pace
        steps = step_ns * np.exp(self.rng.normal(0, world.step_noise, len(accepted)))
        sent = free_ns + 100_000
        prompt_tokens = world.input_length(prompt, turn)
        cached = int(world.cached.get(arm, 0.0) * prompt_tokens)
        first = sent + int(world.prefill_ms * (prompt_tokens - cached) / 100 * NS_PER_MS * self.pace)
        at = [first, *(first + np.cumsum(steps).astype(int)).tolist()]
        return Record(
            request_id=f"{self.point.hash[:8]}-{prompt}-{turn}-{free_ns}",
            prompt_id=f"p{prompt}",
            category=world.category(prompt),
            conversation_id=f"c{prompt}-{self.point.repeat}",
            turn=turn,
            repeat=self.point.repeat,
            phase=RecordPhase.STEADY.value,
            stream_index=stream,
            intended_ns=free_ns,
            connect_ns=sent,
            sent_ns=sent,
            first_byte_ns=first,
            first_token_ns=first,
            last_token_ns=at[-1],
            chunk_ns=at,
            chunk_tokens=[1, *(count + 1 for count in accepted)],
            chunk_coalesced=[False] * len(at),
            timestamp_source="kernel",
            input_tokens=prompt_tokens,
            output_tokens=tokens,
            output_tokens_client=tokens,
            steps=len(accepted),
            draft_steps=len(accepted) if drafting else None,
            drafted_tokens=world.drafts * len(accepted) if drafting else None,
            accepted_tokens=sum(accepted) if drafting else None,
            step_accepted=accepted if drafting else None,
            acceptance_source="per_step" if drafting else None,
            cached_tokens=cached,
            finish_reason="length" if tokens == world.tokens[1] else "stop",
            error_class=None,
            error=None,
            output_sha256=sha(f"{world.seed}-{prompt}-{turn}{self.sample}"),
        )

    def _steps(self, tokens: int, chance: float) -> list[int]:
        """Accepted drafts of each step, cut at the end of the answer."""
        accepted: list[int] = []
        while tokens > 0:
            drawn = int(np.argmin([*(self.rng.random(self.world.drafts) < chance), False]))
            accepted.append(min(drawn, tokens - 1))
            tokens -= accepted[-1] + 1
        return accepted


@dataclass(frozen=True)
class Corruptions:
    """Edits of a point's data. Each function gets the point; records are edited as a separate frame."""

    records: Callable[[Point, pd.DataFrame], pd.DataFrame] = lambda _, frame: frame
    counters: Callable[[Point, CounterDeltas], CounterDeltas | None] = lambda _, counters: counters
    watch: Callable[[Point, ClientHealth], ClientHealth] = lambda _, watch: watch
    measured: Callable[[Point], bool] = lambda _: True
    simulated: bool = False
    launches: tuple[LaunchRecord, ...] = ()
    """The observed launches."""
    coverage: Mapping[str, PromptCoverage] = field(default_factory=dict)
    """Prompt coverage by workload."""


UNCORRUPTED = Corruptions()


def point_of(
    world: SyntheticRun, point: Point, corruptions: Corruptions = UNCORRUPTED
) -> tuple[PointSummary, pd.DataFrame]:
    """Measure one point of the world."""
    world = _shared_world(world)
    honest = world.records(point)
    frame = corruptions.records(point, honest)
    watch, honestly_counted = corruptions.watch(point, watch_of(point)), counters_of(honest)
    counters = corruptions.counters(point, honestly_counted)
    if frame is not honest or watch != watch_of(point) or counters != honestly_counted or corruptions.simulated:
        rows = tidy_frames([frame], point.hash)
        return summarise_point(world.plan, point, rows, watch, counters, simulated=corruptions.simulated), frame
    return world.honest(point), frame


def watch_of(point: Point) -> ClientHealth:
    """The health record of a client without problems at a point."""
    seen = ClientHealth(loop_lag_p99_ms=0.4, cpu_share=0.2, send_lateness_p99_ms=0.1, kernel_clock_share=1.0)
    if point.level.rate is None:
        return seen
    return seen.model_copy(update={"reached_rate": point.level.rate, "in_flight_growth": 1.0})


def run_of_world(
    world: SyntheticRun, corruptions: Corruptions = UNCORRUPTED, *, one_stream: bool = False
) -> RunSummary:
    """Measure and summarise the whole plan.

    `one_stream`: whether to keep the finding SingleStreamOnly. Most worlds have one stream for simple times, so each
    of them would have it.
    """
    world = _shared_world(world)
    points = [point for point in world.plan.points if corruptions.measured(point)]
    measured = {point.hash: point_of(world, point, corruptions) for point in points}
    records = {key: [record_table(frame)] for key, (_, frame) in measured.items()}
    summaries = [summary for summary, _ in measured.values()]
    honest = all(world.is_uncorrupted(summary) for summary in summaries)
    judged = (
        _judged(world, tuple(records), bootstrap.RESAMPLES)
        if honest
        else evaluate_cells(world.plan, summaries, records, world.slo)
    )
    summary = summarise_cells(
        world.plan, summaries, judged, CREATED, corruptions.launches, coverage=corruptions.coverage, slo=world.slo
    )
    kept = [finding for finding in summary.findings if one_stream or finding.check != single_stream_only.name]
    return summary.model_copy(update={"findings": kept})


def run_findings(
    world: SyntheticRun, corruptions: Corruptions = UNCORRUPTED, *, one_stream: bool = False
) -> list[Finding]:
    """The findings on the points and on the run as a whole. Those on cells need comparisons, which take far longer."""
    plan, counted = world.plan, Counter(world.category(prompt) for prompt in range(world.prompts))
    points = [point_of(world, point, corruptions)[0] for point in plan.points if corruptions.measured(point)]
    evidence = RunEvidence(
        plan,
        points,
        [point.hash for point in plan.points if not corruptions.measured(point)],
        {workload.name: world.prompts for workload in plan.workloads},
        corruptions.simulated,
        corruptions.launches,
        corruptions.coverage,
        {each.name: {name: count for name, count in counted.items() if name} for each in plan.workloads},
        arm_environments(plan, corruptions.launches),
    )
    checks = [check for check in RUN_CHECKS if one_stream or check is not single_stream_only]
    on_run = [finding for check in checks for finding in check.findings(evidence, {})]
    return [*on_run, *(finding for point in points for finding in point.findings)]


@lru_cache(maxsize=WORLDS_KEPT)
def _shared_world(world: SyntheticRun) -> SyntheticRun:
    """The first of equal worlds, so that they share its caches."""
    return world


@lru_cache(maxsize=WORLDS_KEPT)
def _judged(world: SyntheticRun, points: tuple[str, ...], resamples: int) -> list[EvaluatedCell]:
    """The uncorrupted cells of these points. `resamples`: the current number of resamples, as part of the cache key."""
    measured = [point for point in world.plan.points if point.hash in points]
    records = {point.hash: [record_table(world.records(point))] for point in measured}
    return evaluate_cells(world.plan, [world.honest(point) for point in measured], records, world.slo)


def counters_of(frame: pd.DataFrame) -> CounterDeltas:
    """The counters of an engine for these records, without warm-up."""
    rows = frame[frame["phase"] != "warmup"]
    return CounterDeltas(
        output_tokens=_sum(rows, "output_tokens"),
        prompt_tokens=_sum(rows, "input_tokens"),
        cached_tokens=_sum(rows, "cached_tokens"),
        draft_steps=_sum(rows, "draft_steps"),
        drafted_tokens=_sum(rows, "drafted_tokens"),
        accepted_tokens=_sum(rows, "accepted_tokens"),
    )


def frame_of(records: list[Record]) -> pd.DataFrame:
    """Records as a frame of objects: None stays None."""
    names = list(Record.__dataclass_fields__)
    return pd.DataFrame([[getattr(record, name) for name in names] for record in records], columns=names, dtype=object)


def record_table(frame: pd.DataFrame) -> pa.Table:
    """The records of a frame as they are read from a file; missing values are None or NaN."""
    columns = [pa.array(frame[field.name].tolist(), field.type, from_pandas=True) for field in RECORD_SCHEMA]
    return pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)


def tidy_frames(frames: Iterable[pd.DataFrame], point: str = "") -> Table:
    """The tidy rows of the records in frames."""
    return tidy(map(record_table, frames), point)


def record(**changes: Any) -> Record:
    """A simple steady record: 11 tokens in 10 steps of 10 ms, with changes."""
    steps = 10
    at = [50 * NS_PER_MS + index * 10 * NS_PER_MS for index in range(steps + 1)]
    fields: dict[str, Any] = dict.fromkeys(Record.__dataclass_fields__)
    fields |= {"request_id": "r", "prompt_id": "p", "conversation_id": "c", "turn": 0, "repeat": 0, "phase": "steady"}
    fields |= {"stream_index": 0, "intended_ns": 0, "first_byte_ns": at[0], "first_token_ns": at[0]}
    fields |= {"connect_ns": NS_PER_MS, "sent_ns": NS_PER_MS}
    fields |= {"last_token_ns": at[-1], "chunk_ns": at, "chunk_tokens": [1] * len(at), "timestamp_source": "kernel"}
    fields |= {"chunk_coalesced": [False] * len(at)}
    fields |= {"input_tokens": 20, "output_tokens": steps + 1, "output_tokens_client": steps + 1, "steps": steps}
    return Record(**{**fields, **changes})


def sha(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _with(record: Record, **changes: Any) -> Record:
    return Record(**{**{name: getattr(record, name) for name in Record.__dataclass_fields__}, **changes})


def _end(record: Record) -> int:
    assert record.last_token_ns is not None
    return record.last_token_ns


def _sum(rows: pd.DataFrame, name: str) -> int | None:
    known = rows[name].dropna()
    return int(known.sum()) if len(known) else None


def _rng(*names: object) -> np.random.Generator:
    digest = hashlib.sha256("/".join(str(name) for name in names).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


# The measured records of a point.


def measured_rows(records: pd.DataFrame) -> pd.DataFrame:
    """The records without warm-up and fillers."""
    return records[(records.phase != "warmup") & ~records.prompt_id.map(is_filler)]
