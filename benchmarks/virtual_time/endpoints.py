"""Two running servers that are compared, interleaved, as `specbench measure --endpoint B --baseline A` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import REPEATS_TO_DECIDE, Arm, EngineGroup, Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.parsing import parse_run
from specbench_client.analysis.estimates.speedups import SPEEDUP, PairedSpeedup, paired_speedup
from specbench_client.analysis.statistics.significance import verdicts
from specbench_client.analysis.summary.run import evaluate_cells
from specbench_client.analysis.summary.stop_rule import is_settled
from specbench_client.documents.figure import Figure, Verdict
from specbench_client.documents.summary import Cell
from specbench_client.drive.load_probes import LEAST
from specbench_client.metrics.pairing import pair_requests
from specbench_client.metrics.rows import Table, join_tables
from specbench_client.metrics.tidy_frame import iter_tidy, without_point_columns
from specbench_client.simulator import (
    AcceptanceProbabilities,
    SimulatedDrafter,
    SimulatedMethod,
    SimulatedStepCost,
    make_drafter,
)
from virtual_time.noise import Noise
from virtual_time.world import DATASET, WORKLOAD, World
from virtual_time.world_run import MeasuredPoint, launches_of

ENDPOINT = "endpoint"
ABBA, ABAB = "ABBA", "ABAB"
EQUAL_WITHIN = 1e-3
"""Servers are equal if only the network's noise distinguishes them."""
SEED = 0
"""Of the resamples."""
SHIFTS = {"code": 0.1, "chat": -0.1, "math": 0.05, "news": -0.05}
"""Acceptance probability of each category, relative to the server's own."""
STEADY = Noise(run=0.0, step=0.0, hiccup_share=0.0)
POPULATION = 4000
"""Prompts of a true value: its standard error is 0.2 %, a hundredth of the width of an interval over 40 prompts."""
UNTIL_SURE_DRIFT = 8
"""Repeats during which the drift of a test takes place whose length is not known before."""


@dataclass(frozen=True)
class EndpointPair(World):
    """`drafted_acceptance`: of the endpoint's EAGLE-3 drafter; None: it has none. The baseline never has one.

    The servers keep running: each repeat continues through the prompts, and only the first has a warm-up.
    """

    drafted_acceptance: float | None = None
    turns_of_arms: str = ABBA
    stops: bool = False
    requests: int = LEAST
    """Requests of a repeat for each server."""
    load: Mapping[str, Any] = field(default_factory=lambda: {"concurrency": [2], "warmupRequests": 2})
    repeats: int = 4
    prompts: int = 60
    output_mean: float = 24.0
    max_tokens: int = 64
    cost: SimulatedStepCost = field(default_factory=lambda: SimulatedStepCost(base_ms=10.0, per_token_ms=0.1))

    @cached_property
    def plan(self) -> Plan:
        """Return the plan of `specbench measure`."""
        plan = lay_out(parse_run(self.resource)).model_copy(update={"stop": "WhenDecided" if self.stops else None})
        return plan if self.turns_of_arms == ABBA else plan.model_copy(update={"groups": _alternating(plan)})

    def drafter_of(self, arm: Arm) -> SimulatedDrafter:
        """Return the drafter of the endpoint, which the plan does not contain."""
        if arm.name == BASELINE_NAME or self.drafted_acceptance is None:
            return make_drafter(SimulatedMethod.NONE, 0)
        return make_drafter(SimulatedMethod.EAGLE3, self.drafts)

    def acceptance_of(self, running: SimulatedDrafter) -> AcceptanceProbabilities:
        """Return the same probabilities for every seed: the server is given, and the prompts are drawn."""
        del running
        centre = self.drafted_acceptance or 0.0
        shifted = {name: (max(0.0, centre + shift),) for name, shift in SHIFTS.items()}
        return AcceptanceProbabilities({"default": (centre,), **shifted})

    @property
    def resource(self) -> dict[str, Any]:
        """The resource that `specbench measure` makes of its options."""
        endpoints = [{"name": name, "url": f"http://{name}:8000"} for name in (BASELINE_NAME, ENDPOINT)]
        workload = {
            "name": WORKLOAD,
            "dataset": DATASET,
            "sampling": {"temperature": 0.0, "seed": self.seed},
            "output": {"maxTokens": self.max_tokens},
        }
        load = {**self.load, "requests": self.requests, "repeats": self.repeats, "order": "Interleaved"}
        spec = {
            "model": {"name": "simulated"},
            "engine": {"kind": "external", "endpoints": endpoints, "dialect": "openai"},
            "workloads": [workload],
            "load": load,
            "results": {"s3": {"bucket": "results"}},
        }
        names = {"name": f"pair-{self.seed}", "namespace": "default"}
        return {"apiVersion": "specbench.io/v1alpha1", "kind": "SpecBenchRun", "metadata": names, "spec": spec}

    def drifting(self, share: float, repeats: int) -> EndpointPair:
        """Return the pair on machines that get slower by this share during so many repeats."""
        begin_to_end_s = sum(launch.duration_s for launch in launches_of(replace(self, repeats=repeats, noise=STEADY)))
        return replace(self, drift_per_s=share / begin_to_end_s)


def _alternating(plan: Plan) -> list[EngineGroup]:
    """Return the groups with the baseline first in every repeat."""
    ordered = sorted(plan.groups, key=lambda group: (group.points[0].repeat, group.arm != BASELINE_NAME))
    return [group.model_copy(update={"index": index}) for index, group in enumerate(ordered)]


@dataclass(frozen=True)
class MeasuredRepeats:
    """What is measured after some complete repeats."""

    plan: Plan
    points: list[MeasuredPoint]
    rows: Mapping[str, list[Table]]
    """Tidy rows of each point, by arm."""

    @property
    def repeats(self) -> int:
        return len(self.points) // len(self.plan.arms)

    def speedup(self, *, anytime: bool) -> PairedSpeedup:
        """Return the speed-up as in a cell. `anytime`: as if the measurement stopped when it is decided."""
        endpoint, baseline = (join_tables(list(self.rows[arm])) for arm in (ENDPOINT, BASELINE_NAME))
        pairs = replace(pair_requests(endpoint, baseline, self.plan), anytime=anytime)
        return paired_speedup(SPEEDUP, pairs, SEED)

    def cell(self) -> Cell:
        """Return the cell of the endpoint with every check, as in the summary of the run."""
        summaries = [each.summary(self.plan) for each in self.points]
        judged = evaluate_cells(self.plan, summaries, {each.point.hash: [each.table] for each in self.points})
        return next(each.cell for each in judged if each.cell.arm == ENDPOINT)


def measured_repeats(pair: EndpointPair) -> Iterator[MeasuredRepeats]:
    """Measure repeat by repeat, and yield what is there after each of them."""
    points: list[MeasuredPoint] = []
    rows_of: dict[str, list[Table]] = {arm.name: [] for arm in pair.plan.arms}
    for number, launch in enumerate(launches_of(pair), start=1):
        points += launch.measured
        tidied = (rows for each in launch.measured for rows in iter_tidy([each.table], each.point.hash))
        rows_of[launch.arm.name] += map(without_point_columns, tidied)
        if number % len(pair.plan.arms) == 0:
            yield MeasuredRepeats(pair.plan, list(points), {name: list(each) for name, each in rows_of.items()})


def true_speedup(pair: EndpointPair) -> float:
    """Return the speed-up over very many prompts, without noise and drift."""
    prompts = POPULATION // 10 if pair.drafted_acceptance is None else POPULATION  # without drafts all have one ratio
    many = replace(pair, prompts=prompts, requests=prompts, repeats=1, noise=STEADY, drift_per_s=0.0)
    (measured,) = measured_repeats(many)
    value = measured.speedup(anytime=False).figure.value
    assert value is not None
    return value


PAIRS: Mapping[str, EndpointPair] = {
    "equal": EndpointPair(),
    "3 % faster": EndpointPair(slower={ENDPOINT: 1 / 1.03}),
    "10 % faster": EndpointPair(slower={ENDPOINT: 1 / 1.1}),
    "drafter": EndpointPair(drafted_acceptance=0.5),
}


@dataclass(frozen=True)
class Outcome:
    """The end of one test: its speed-up with its interval, the conclusion, and after how many repeats."""

    speedup: Figure
    claimed: Verdict
    repeats: int

    @classmethod
    def of(cls, measured: MeasuredRepeats, *, anytime: bool) -> Outcome:
        """Return what the test would report if it ended here."""
        found = measured.speedup(anytime=anytime)
        return cls(found.figure, verdicts([found.effect])[0], measured.repeats)

    @property
    def settled(self) -> bool:
        """Whether a test with a stop rule ends here."""
        return self.repeats >= REPEATS_TO_DECIDE and self.repeats % 2 == 0 and is_settled(self.claimed, self.speedup)

    @property
    def width(self) -> float:
        """The width of the interval on the log scale."""
        bounds = self.speedup.interval
        return float("inf") if bounds is None else float(np.log(bounds.high / bounds.low))

    def holds(self, truth: float) -> bool:
        """Return whether the interval contains the true value; without an interval it is not excluded."""
        bounds = self.speedup.interval
        return bounds is None or bounds.low <= truth <= bounds.high

    def is_wrong(self, truth: float) -> bool:
        """Return whether the conclusion or the interval contradicts the true value, which is 1 for equal servers."""
        equal = abs(truth - 1) < EQUAL_WITHIN
        direction = Verdict.FASTER if truth > 1 else Verdict.SLOWER
        return (self.claimed.is_claim and (equal or self.claimed is not direction)) or not self.holds(truth)


def until_sure(pair: EndpointPair) -> dict[str, Outcome]:
    """Return the outcomes of `--until-sure`, and of looking at the ordinary interval after every second repeat."""
    methods, ended, last = {"sequence": True, "ordinary": False}, dict[str, Outcome](), dict[str, Outcome]()
    for measured in measured_repeats(pair):
        if measured.repeats >= REPEATS_TO_DECIDE and measured.repeats % 2 == 0:
            last |= {name: Outcome.of(measured, anytime=each) for name, each in methods.items() if name not in ended}
            ended |= {name: each for name, each in last.items() if name not in ended and each.settled}
        if len(ended) == len(methods):
            break
    return last | ended
