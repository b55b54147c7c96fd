"""Random worlds without faults, with varying dialects, drafters, loads, arms, repeats, prompts and noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from specbench_client.simulator import SimulatedStepCost
from virtual_time.noise import Noise
from virtual_time.world import World

DIALECTS = ("vllm", "sglang", "tensorrt-llm")
METHODS = ("eagle3", "ngram", "draft_model")
LOADS: tuple[Mapping[str, Any], ...] = (
    {"concurrency": [1, 4]},
    {"concurrency": [8]},
    {"concurrency": [16]},
    {"rate": [4.0], "slots": 64},
    {"rate": [5.0], "slots": 64, "arrival": {"process": "Gamma", "burstiness": 0.5}},
    {"rate": [3.0], "slots": 64, "arrival": {"process": "Constant"}},
)


def honest_world(number: int) -> World:
    """Return the world with this number, which is the seed of all its random choices.

    Loads alternate with each number, and dialects after each round of loads, so that all combinations occur.
    """
    rng = np.random.default_rng((number, 0x5EED))
    load = LOADS[number % len(LOADS)]
    arms = 1 + int(rng.random() < 0.15)
    return World(
        seed=number,
        dialect=DIALECTS[number // len(LOADS) % len(DIALECTS)],
        methods=tuple(str(each) for each in rng.permutation(METHODS)[:arms]),
        drafts=int(rng.integers(2, 7)),
        load=load,
        repeats=int(rng.choice([3, 3, 3, 3, 3, 3, 3, 5])),
        order=str(rng.choice(["Interleaved", "Interleaved", "Sequential"])),
        prompts=int(rng.integers(24, 37)),
        turns=int(rng.choice([1, 1, 1, 1, 1, 2])),
        acceptance=float(rng.uniform(0.3, 0.85)),
        temperature=float(rng.choice([0.0, 0.0, 0.0, 0.7])),
        output_mean=float(rng.uniform(25, 55)),
        max_tokens=int(rng.choice([64, 96, 160])),
        cost=SimulatedStepCost(base_ms=float(rng.uniform(4, 25)), per_token_ms=float(rng.uniform(0.02, 0.3))),
        noise=Noise(run=float(rng.uniform(0.002, 0.03)), step=float(rng.uniform(0.01, 0.08))),
    )


SHARED_TOKENS = ((), (), (512,), (0, 256), (64, 512, 1536))


def honest_cached_world(number: int) -> World:
    """Return the world of this number with the prompt cache on: with a system prompt, shared beginnings or sessions."""
    rng = np.random.default_rng((number, 0xCAC4E))
    return replace(
        honest_world(number),
        caches=True,
        turns=int(rng.choice([1, 1, 2, 3])),
        system_tokens=int(rng.choice([0, 50, 200, 1000])),
        shared_tokens=SHARED_TOKENS[int(rng.integers(len(SHARED_TOKENS)))],
        think_s=float(rng.choice([0.0, 0.0, 1.0])),
    )


def words(world: World) -> str:
    """Return a description of the world for tables."""
    level = ", ".join(f"{name} {value}" for name, value in world.load.items() if name in ("concurrency", "rate"))
    text = f"{world.dialect}, {' and '.join(world.methods)} k={world.drafts}, {level}, {world.repeats} repeats"
    text += f", {world.prompts} prompts of {world.turns} turns, temperature {world.temperature:g}"
    if not world.caches:
        return text
    thinks = f", {world.think_s:g} s between turns" if world.think_s and world.turns > 1 else ""
    return f"{text}, caches on, system prompt of {world.system_tokens}, shared {world.shared_tokens}{thinks}"
