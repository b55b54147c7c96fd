"""A simulated world: a run's spec, the engine that serves it, and the true values of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.parsing import parse_run
from specbench_client.simulator import (
    AcceptanceProbabilities,
    PromptCategories,
    SimulatedDrafter,
    SimulatedStepCost,
    SimulatorConfig,
    make_drafter,
)
from specbench_client.simulator.generated_text import VOCABULARY, expected_number
from specbench_client.simulator.speculation import DRAFTER_PROFILES, SimulatedMethod
from specbench_client.workload.prompts import load_workload
from specbench_client.workload.row_parsing import Prompt
from virtual_time.noise import Drift, Machine, Noise
from virtual_time.response import TransportFaults

WORKLOAD = "chat"
DATASET: Mapping[str, Any] = {"source": "jsonl", "uri": "s3://virtual/prompts.jsonl"}
CACHE_TOKENS = 1_000_000
"""Capacity of the prompt cache where it is on: nothing is evicted."""
DEADLINE_S = 2 * 86_400
NO_FAULTS: Mapping[str, float] = {}


@dataclass(frozen=True)
class World:
    """`faults`, `between` and `limits` (maximum context tokens) are keyed by arm name, and empty for a clean run."""

    seed: int = 0
    dialect: str = "vllm"
    methods: tuple[str, ...] = ("eagle3",)
    drafts: int = 3
    load: Mapping[str, Any] = field(default_factory=lambda: {"concurrency": [4]})
    repeats: int = 3
    order: str = "Interleaved"
    prompts: int = 40
    different: int | None = None
    """Number of distinct prompts; the others are duplicates with their own ids. None: all are distinct."""
    turns: int = 1
    categories: tuple[str, ...] = ("code", "chat", "math", "news")
    acceptance: float = 0.65
    temperature: float = 0.0
    output_mean: float = 60.0
    max_tokens: int = 160
    cost: SimulatedStepCost = field(default_factory=SimulatedStepCost)
    noise: Noise = field(default_factory=Noise)
    faults: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    between: Mapping[str, TransportFaults] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    slower: Mapping[str, float] = field(default_factory=dict)
    """Factor on the step time of an arm's machine, by arm name."""
    drift_per_s: float = 0.0
    """By how much all machines get slower in each second of the run, as a share of their speed at its beginning."""
    foreign: bool = False
    """Whether another client also sends sequential requests to the engine."""
    caches: bool = False
    """Whether the prompt cache is on."""
    shared_tokens: tuple[int, ...] = ()
    """Lengths of the prefixes that prompts share, one after the other."""
    system_tokens: int = 0
    """Length of the system prompt."""
    think_s: float = 0.0
    """Mean time between the turns of a conversation."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """What the answers are checked for; with `expected`, prompts are questions that the simulator can answer."""

    @cached_property
    def plan(self) -> Plan:
        """Return the run's plan."""
        return expand(parse_run(self.resource))

    @cached_property
    def rows(self) -> tuple[Prompt, ...]:
        """The prompts as the client loads them: 20 to 200 words of the vocabulary per turn."""
        rng, different = self.rng("prompts"), self.different or self.prompts
        texts = [self._turns(rng, self._prefix(number)) for number in range(different)]
        if "expected" in self.answers:
            texts = [[f"{text} {' '.join(map(str, rng.integers(1, 100, 3)))} ?" for text in turns] for turns in texts]
        lines = (json.dumps(self._row(number, texts[number % different])) for number in range(self.prompts))
        workload = self.plan.workload(WORKLOAD)
        here = workload.model_copy(update={"dataset": workload.dataset.model_copy(update={"uri": "prompts.jsonl"})})
        with TemporaryDirectory() as folder:
            (Path(folder) / "prompts.jsonl").write_text("\n".join(lines))
            return load_workload(here, Path(folder)).rows

    @cached_property
    def known(self) -> PromptCategories:
        """The category of each prompt, which determines acceptance."""
        texts = {message.content: row.category or "" for row in self.rows for turn in row.turns for message in turn}
        return PromptCategories(texts)

    def config(self, arm: Arm, launch: int, since_s: float = 0.0) -> SimulatorConfig:
        """The engine configuration of one launch, with the arm's drafter and its machine's speed."""
        running, drift = self.drafter_of(arm), Drift(self.drift_per_s, since_s)
        slower = self.slower.get(arm.name, 1.0)
        per_draft_ms = DRAFTER_PROFILES[running.method].per_draft_ms * slower
        base, token, kv, _, prefill = (slower * value for value in astuple(self.cost))
        return SimulatorConfig(
            seed=self.seed,
            drafter=running,
            acceptance=self.acceptance_of(running),
            cost=SimulatedStepCost(base, token, kv, per_draft_ms, prefill),
            faults=Machine(
                self.faults.get(arm.name, NO_FAULTS), self.noise, self.rng("machine", arm.name, launch), drift
            ),
            max_model_len=self.limits.get(arm.name, 32768),
            output_mean_tokens=self.output_mean,
            prefix_cache_tokens=CACHE_TOKENS if self.caches else 0,
        )

    def drafter_of(self, arm: Arm) -> SimulatedDrafter:
        """Return the drafter of the arm's engine."""
        if arm.drafter is None:
            return make_drafter(SimulatedMethod.NONE, 0)
        return make_drafter(SimulatedMethod(arm.drafter.method), arm.drafter.num_speculative_tokens)

    def rng(self, *purpose: object) -> np.random.Generator:
        """An independent random generator for each purpose."""
        digest = hashlib.sha256(repr((self.seed, *purpose)).encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "little"))

    def acceptance_of(self, running: SimulatedDrafter) -> AcceptanceProbabilities:
        """Acceptance probability by category, shifted slightly for each drafter."""
        rng = self.rng("acceptance", running.method)
        shifts = {name: float(rng.uniform(-0.15, 0.15)) for name in self.categories}
        by_category = {name: (float(np.clip(self.acceptance + shift, 0.05, 0.95)),) for name, shift in shifts.items()}
        return AcceptanceProbabilities({"default": (self.acceptance,), **by_category})

    def _prefix(self, number: int) -> list[str]:
        """The words that this prompt shares with others."""
        length = self.shared_tokens[number % len(self.shared_tokens)] if self.shared_tokens else 0
        return [str(word) for word in self.rng("prefix", length).choice(VOCABULARY, length)]

    def _row(self, number: int, turns: list[str]) -> dict[str, Any]:
        row = {"id": f"p{number}", "category": self.categories[number % len(self.categories)], "turns": turns}
        return {**row, "answer": str(expected_number(turns[-1]))} if "expected" in self.answers else row

    def _turns(self, rng: np.random.Generator, prefix: list[str]) -> list[str]:
        words = [list(rng.choice(VOCABULARY, int(rng.integers(20, 200)))) for _ in range(self.turns)]
        words[0] = prefix + words[0]
        return [" ".join(each) for each in words]

    @property
    def resource(self) -> dict[str, Any]:
        """The run's resource, as a user writes it."""
        drafters = [
            {"name": method.replace("_", "-"), "method": method, "numSpeculativeTokens": self.drafts, **_needs(method)}
            for method in self.methods
        ]
        workload = {
            "name": WORKLOAD,
            "dataset": DATASET,
            "sampling": {"temperature": self.temperature, "seed": self.seed},
            "output": {"maxTokens": self.max_tokens},
            **({"answers": self.answers} if self.answers else {}),
            **({"systemPrompt": {"tokens": self.system_tokens}} if self.system_tokens else {}),
            **({"thinkTime": {"seconds": self.think_s}} if self.think_s else {}),
        }
        spec: dict[str, Any] = {
            "model": {"name": "simulated"},
            "engine": {"kind": "simulator", "dialect": self.dialect},
            "drafters": drafters,
            "workloads": [workload],
            "load": {**self.load, "repeats": self.repeats, "order": self.order},
            "results": {"s3": {"bucket": "results"}},
            **({"promptCache": "AsServed"} if self.caches else {}),
            **({"activeDeadlineSeconds": DEADLINE_S} if self.order == "Soak" else {}),
        }
        names = {"name": f"world-{self.seed}", "namespace": "default"}
        return {"apiVersion": "specbench.io/v1alpha1", "kind": "SpecBenchRun", "metadata": names, "spec": spec}


def _needs(method: str) -> dict[str, Any]:
    """The fields that the API requires for a method besides its draft length."""
    if method == SimulatedMethod.NGRAM:
        return {"promptLookupMax": 4}
    return (
        {"model": "acme/drafter"}
        if method in (SimulatedMethod.EAGLE3, SimulatedMethod.DRAFT_MODEL, SimulatedMethod.EAGLE)
        else {}
    )
