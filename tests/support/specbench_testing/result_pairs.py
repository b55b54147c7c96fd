"""Builds pairs of results with a known difference: an arm with its baseline, or whole simulated runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specbench_client.analysis.compare.shared_requests import MeasuredArm
from specbench_client.documents.manifest import Manifest, PointProvenance
from specbench_client.metrics.pairing import Pairs, pair_requests
from specbench_client.metrics.rows import Table
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.run import Run
from specbench_testing.synthetic_records import (
    UNCORRUPTED,
    Corruptions,
    SyntheticRun,
    point_of,
    record_table,
    run_of_world,
)
from specbench_testing.tables import pairs_with, table_of

TOKENS = 50
BASE_MS, ARM_MS = 10.0, 6.0


@dataclass(frozen=True)
class TwoResults:
    """Prompts have a pace of their own that is the same on both sides; runs are faster or slower as a whole."""

    prompts: int = 20
    repeats: int = 3
    run_noise: float = 0.01
    jitter: float = 0.03
    spread: float = 0.3
    slower: float = 1.0
    """The factor by which the arm is slower after the change: 1.15 is 15 % more time."""
    own: float = 0.0
    """The spread of the change between prompts."""

    def measured(self, seed: int) -> tuple[MeasuredArm, MeasuredArm]:
        """The measured arm before and after."""
        rng = np.random.default_rng(seed)
        character = np.exp(rng.normal(0, self.spread, self.prompts))
        own = np.exp(rng.normal(0, self.own, self.prompts))
        return self._side(rng, character), self._side(rng, character * own * self.slower)

    def _side(self, rng: np.random.Generator, pace: np.ndarray) -> MeasuredArm:
        prompt, repeat = (
            np.tile(np.arange(self.prompts), self.repeats),
            np.repeat(np.arange(self.repeats), self.prompts),
        )
        runs = np.exp(rng.normal(0, self.run_noise, (2, self.repeats)))
        noise = np.exp(rng.normal(0, self.jitter, (2, prompt.size)))
        base = BASE_MS * runs[0][repeat] * noise[0]
        return measured_of(
            prompt, repeat, {"baseline": base, "arm": ARM_MS * pace[prompt] * runs[1][repeat] * noise[1]}
        )


def measured_of(prompt: np.ndarray, repeat: np.ndarray, pace_ms: dict[str, np.ndarray]) -> MeasuredArm:
    """Pairs of one turn each; pace in ms per token."""
    arm, baseline = (_requests(prompt, repeat, pace_ms[side]) for side in ("arm", "baseline"))
    pairs = _pairs(tuple(prompt.tolist()), tuple(repeat.tolist()))
    return MeasuredArm(arm, pairs_with(pairs, arm, baseline))


def _requests(prompt: np.ndarray, repeat: np.ndarray, pace_ms: np.ndarray) -> Table:
    columns: dict[str, object] = {"repeat": repeat.astype(float), "prompt_id": [f"p{each}" for each in prompt]}
    columns |= {"turn": 0.0, "point": [f"h{each}" for each in repeat], "conversation_id": prompt, "category": "c"}
    columns |= {"input_tokens": 100.0, "tokens": float(TOKENS), "steps": float(TOKENS - 1), "intended_ns": 0.0}
    columns |= {"finish_reason": "stop", "output_sha256": 1.0, "steady": True}
    return table_of(
        pd.DataFrame(
            {**columns, "timing_fault": 0, "first_token_ns": pace_ms * 1e6, "last_token_ns": pace_ms * 1e6 * TOKENS}
        )
    )


@cache
def _pairs(prompt: tuple[int, ...], repeat: tuple[int, ...]) -> Pairs:
    """The pairs of these requests. They do not depend on the pace, so thousands of results have the same."""
    requests = _requests(np.array(prompt), np.array(repeat), np.ones(len(prompt)))
    return pair_requests(requests, requests, None)


def run_in_memory(**contents: Any) -> Run:
    """A run whose attributes have these values instead of being read."""
    run = Run(FolderStore(Path("results/run")))
    for name, value in {"uri": "results/run", **contents}.items():
        setattr(run, name, value)
    return run


CONTENTS = ("plan", "summary", "manifests", "point_summaries", "records", "launches")


def replaced(run: Run, **changes: Any) -> Run:
    """A run in memory with other values of some attributes."""
    return run_in_memory(**{name: getattr(run, name) for name in CONTENTS} | changes)


def result_of(world: SyntheticRun, corruptions: Corruptions = UNCORRUPTED, **observed: Any) -> Run:
    """A synthetic run as a stored result; `observed` replaces values of its manifests."""
    plan = world.plan
    measured = {point.hash: point_of(world, point, corruptions) for point in plan.points if corruptions.measured(point)}
    provenance = {
        "dataset_fingerprint": "f",
        "prompts": world.prompts,
        "client_version": "0",
        "launch": "0-a",
        **observed,
    }
    return run_in_memory(
        plan=plan,
        summary=run_of_world(world, corruptions),
        manifests=manifests_of(dict.fromkeys(measured, PointProvenance(**provenance))),
        point_summaries={point: summary for point, (summary, _) in measured.items()},
        records={point: [record_table(frame)] for point, (_, frame) in measured.items()},
        launches=corruptions.launches,
    )


def manifests_of(observed: Mapping[str, PointProvenance]) -> dict[str, Manifest]:
    """Manifests with this provenance, by hash."""
    times = {"started_monotonic_ns": 0, "started_wall": "", "ended_wall": ""}
    return {
        point: Manifest(hash=point, attempt="1", files=[], observed=each, **times) for point, each in observed.items()
    }


def without_records(result: Run) -> Run:
    """The same result with its summary only."""
    return replaced(result, manifests={}, point_summaries={}, records={}, launches=())
