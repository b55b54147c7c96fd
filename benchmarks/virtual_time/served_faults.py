"""Faults that users of engines reported from production, each injected into a world, with the truth of its effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from random import Random
from typing import Any

import pandas as pd

from specbench_client.documents.summary import Cell, RunSummary, Trend
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.simulator import SimulatedStepCost
from specbench_client.simulator.prefix_cache import BLOCK_TOKENS
from specbench_client.simulator.speculation import DraftVerifyProcess
from virtual_time.corrupted_worlds import ARM, BASELINE, JSON, NUMBERS
from virtual_time.world import World
from virtual_time.world_run import Launch, launches_of, summary_of

PROMPTS, REPEATS = 66, 3
"""198 requests per arm."""
REQUEST = ["prompt_id", "turn", "repeat"]
S_PER_HOUR = 3600.0
LENGTH_DRAWS = 10
"""Draws of each answer's steps of which the true acceptance length is the mean."""


@dataclass(frozen=True)
class Effect:
    """The size of a fault's effect as the report states it, its interval, and what it really is."""

    name: str
    found: float
    truth: float
    interval: tuple[float, float] | None = None

    @property
    def error(self) -> float:
        """The relative error."""
        return self.found / self.truth - 1


@dataclass(frozen=True)
class ServedRun:
    """A measured world, with what its engines really did."""

    world: World

    @cached_property
    def launches(self) -> list[Launch]:
        return list(launches_of(self.world))

    @cached_property
    def checks(self) -> set[tuple[str, str | None]]:
        """The findings, as check and load."""
        return {(finding.check, finding.load) for finding in self.summary.findings if finding.arm == ARM}

    @cached_property
    def summary(self) -> RunSummary:
        return summary_of(self.world, self.launches)

    @property
    def cell(self) -> Cell:
        """The drafter's cell at the highest load."""
        cells = [cell for cell in self.summary.cells if cell.arm == ARM]
        return max(cells, key=lambda cell: cell.level.order)

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """What really happened to the requests of the cell's pairs: the suffix of the baseline's columns is `_b`."""
        mine, theirs = (pd.concat(self._requests(arm)) for arm in (ARM, BASELINE))
        return mine.merge(theirs, on=REQUEST, suffixes=("", "_b"))

    def _requests(self, arm: str) -> Sequence[pd.DataFrame]:
        measured = (each for launch in self.launches if launch.arm.name == arm for each in launch.measured)
        frames = []
        for each in measured:
            if each.point.level != self.cell.level:
                continue
            rows = each.table.select(["request_id", "prompt_id", "turn", "phase"]).to_pandas()
            rows = rows[rows["phase"] == "steady"].assign(repeat=each.point.repeat)
            served = [each.served[name] for name in rows["request_id"]]
            frames.append(
                rows.assign(
                    tokens=[stream.ask.prompt.tokens for stream in served],
                    cached=[stream.cached_tokens for stream in served],
                    damaged=[bool(stream.answer.faults) for stream in served],
                )
            )
        return frames

    @property
    def trend(self) -> Trend:
        """How the acceptance length changed."""
        return next(trend for trend in self.cell.trends if trend.name == EMITTED_POOLED.name)


@dataclass(frozen=True)
class ServedFault:
    """A fault. `issue`: the reports on which it is modelled.

    `quiet`: the world in which the reporter did not see it, and the check must not find it.
    """

    words: str
    issue: str
    check: str
    world: Callable[[int], World]
    effects: Callable[[ServedRun], list[Effect]]
    quiet: Callable[[int], World] | None = None


def _reuse(run: ServedRun) -> list[Effect]:
    """The ratio of computed tokens, and the hits that are left."""
    ((fault, value),), rows, found = run.world.faults[ARM].items(), run.pairs, run.cell.reuse
    assert found is not None
    hits = rows["cached_b"]
    lost = BLOCK_TOKENS * (hits > 0) if fault == "reuse-last-block" else (hits * value).round()
    left = hits - lost
    computed = (rows["tokens"] - left).sum() / (rows["tokens"] - hits).sum()
    effects = [Effect("computed tokens ratio", _known(found.computed_ratio.value), computed)]
    share = rows["cached"].sum() / rows["tokens"].sum()
    return [*effects, Effect("hit share", _known(found.hit_share.value), share)] if share else effects


def _known(value: float | None) -> float:
    assert value is not None
    return value


def _decay(run: ServedRun) -> list[Effect]:
    """The fitted acceptance length in the first and last window, and its fall."""
    (launch,) = (each for each in run.launches if each.arm.name == ARM)
    windows_s = [each.watch.duration_s or 0.0 for each in launch.measured]
    first_s = launch.duration_s - sum(windows_s) + windows_s[0] / 2
    trend = run.trend
    start, end = (_acceptance_length(launch, at_s) for at_s in (first_s, first_s + trend.hours * S_PER_HOUR))
    bounds = trend.change.interval
    assert bounds is not None
    falls = [-each * trend.start for each in (bounds.high, bounds.low)]
    return [
        Effect("last acceptance length", trend.end, end),
        Effect("fall of the acceptance length", trend.start - trend.end, start - end, (falls[0], falls[1])),
    ]


def _acceptance_length(launch: Launch, engine_s: float) -> float:
    """The mean tokens per step of the launch's answers if all of them were generated at this time."""
    config, rng, tokens, steps = launch.config, Random(1), 0, 0  # noqa: S311 -- a simulation
    for stream in (each for point in launch.measured for each in point.served.values()):
        positions = config.acceptance.positions(stream.category, config.drafter.num_speculative_tokens)
        left = config.faults.decayed(positions, engine_s, caches=bool(config.prefix_cache_tokens))
        for _ in range(LENGTH_DRAWS):
            process = DraftVerifyProcess(len(stream.answer.words), config.drafter, left, rng)
            process.advance()
            while not process.finished:
                tokens, steps = tokens + process.advance().tokens, steps + 1
    return tokens / steps


def _flaws(run: ServedRun) -> list[Effect]:
    """The share of answers that are flawed."""
    judged = run.cell.judged
    assert judged is not None
    return [Effect("share of flawed answers", judged.flawed / judged.pairs, float(run.pairs["damaged"].mean()))]


def _world(seed: int, fault: str, value: float, **changes: Any) -> World:
    settings: Mapping[str, Any] = {"prompts": PROMPTS, "repeats": REPEATS, "caches": True, **changes}
    return World(seed=seed, faults={ARM: {fault: value}}, **settings)


CALLS = {"tools": [{"type": "function", "function": {"name": "book", "parameters": JSON["jsonSchema"]}}]}
TWO_LOADS: Mapping[str, Any] = {"load": {"concurrency": [1, 16]}, "prompts": PROMPTS // 2}
"""The same number of requests per arm."""
SOAK: Mapping[str, Any] = {"repeats": 24, "order": "Soak", "prompts": 1200}
"""24 windows. Steps of the engine take longer than on a GPU, so that the run has fewer requests."""


HOURS_12: Mapping[str, Any] = {
    **SOAK, "load": {"concurrency": [1], "durationSeconds": 1800}, "cost": SimulatedStepCost(base_ms=2000),
    "acceptance": 0.85, "drafts": 6,
}  # fmt: skip
HOURS_2: Mapping[str, Any] = {
    **SOAK, "load": {"concurrency": [1], "durationSeconds": 300}, "cost": SimulatedStepCost(base_ms=400),
    "acceptance": 0.8, "drafts": 4,
}  # fmt: skip


SLOWER = "vllm#53670, vllm#54360, vllm#47930"
NOT_REPORTED = "–"
"""A variant of reported faults."""
SERVED_FAULTS: Mapping[str, ServedFault] = {
    "half-lost": ServedFault(
        "with a drafter, hits fall from 97 to about 45 %", "sglang#32459", "ReuseLost",
        partial(_world, fault="reuse-lost", value=0.54, system_tokens=2000), _reuse,
    ),
    "all-lost": ServedFault(
        "with a drafter, nothing is reused", SLOWER, "ReuseLost",
        partial(_world, fault="reuse-lost", value=1.0, prompts=PROMPTS // 2, turns=2, system_tokens=500), _reuse,
    ),
    "last-block": ServedFault(
        "with a drafter, the last block of each hit is computed again", SLOWER, "ReuseLost",
        partial(_world, fault="reuse-last-block", value=1.0, prompts=PROMPTS // 2, turns=2, system_tokens=200),
        _reuse,
    ),
    "decay-12h": ServedFault(
        "with the cache on, the acceptance length falls by 22 % in 12 hours", "vllm#41838", "AcceptanceDecays",
        partial(_world, fault="acceptance-decay-cached", value=0.28, **HOURS_12), _decay,
        partial(_world, fault="acceptance-decay-cached", value=0.28, **{**HOURS_12, "caches": False}),
    ),
    "decay-2h": ServedFault(
        "the acceptance length falls from 3.3 to 1.9 in 2 hours", "sglang#28771", "AcceptanceDecays",
        partial(_world, fault="acceptance-decay", value=3.65, **HOURS_2), _decay,
        partial(_world, fault="acceptance-decay", value=0.0, **HOURS_2),
    ),
    "corrupt-json-8": ServedFault(
        "JSON is corrupt in 75 to 100 % of the answers at 8 to 32 streams", "vllm#44993", "AnswersWorse",
        partial(_world, fault="corrupt-json", value=8, answers=JSON, **TWO_LOADS), _flaws,
        partial(_world, fault="corrupt-json", value=8, answers=JSON, load={"concurrency": [4]}),
    ),
    "corrupt-json-1": ServedFault(
        "JSON is corrupt at one stream too", NOT_REPORTED, "AnswersWorse",
        partial(_world, fault="corrupt-json", value=1, answers=JSON, load={"concurrency": [1]}), _flaws,
    ),
    "wrong-numbers": ServedFault(
        "right answers of GSM8K fall from 96 to 1 %", "vllm#46834", "AnswersWorse",
        partial(_world, fault="diverge", value=0.99, answers=NUMBERS), _flaws,
    ),
    "half-of-tasks": ServedFault(
        "18 of 39 tasks are solved instead of 39", "vllm#43650", "AnswersWorse",
        partial(_world, fault="diverge", value=0.54, answers=NUMBERS), _flaws,
    ),
    "wrong-deep": ServedFault(
        "answers are wrong with more than 4 draft tokens", NOT_REPORTED, "AnswersWorse",
        partial(_world, fault="wrong-deep", value=4, answers=NUMBERS, drafts=5), _flaws,
        partial(_world, fault="wrong-deep", value=4, answers=NUMBERS, drafts=4),
    ),
    "restored-damage": ServedFault(
        "answers are wrong, the more the longer the restored prefix", NOT_REPORTED, "AnswersWorse",
        partial(_world, fault="restored-damage", value=0.5, answers=NUMBERS, shared_tokens=(0, 512, 1024)), _flaws,
        partial(_world, fault="restored-damage", value=0.5, answers=NUMBERS, caches=False,
                shared_tokens=(0, 512, 1024)),
    ),
    "tool-calls": ServedFault(
        "the arguments of tool calls are no JSON", "vllm#35800, vllm#41967", "AnswersWorse",
        partial(_world, fault="broken-tool-calls", value=0.3, answers=CALLS), _flaws,
    ),
    "loops": ServedFault(
        "answers loop until the limit", "vllm#47087", "AnswersWorse",
        partial(_world, fault="loops", value=0.25, system_tokens=500), _flaws,
    ),
    "empty": ServedFault(
        "answers are empty", NOT_REPORTED, "AnswersWorse",
        partial(_world, fault="empty", value=0.25, system_tokens=500), _flaws,
    ),
    "aborted": ServedFault(
        "answers end with an unexpected finish reason", NOT_REPORTED, "AnswersWorse",
        partial(_world, fault="finish-reason", value=0.25, system_tokens=500), _flaws,
    ),
}  # fmt: skip
