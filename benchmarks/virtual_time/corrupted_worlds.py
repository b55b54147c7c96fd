"""Worlds with one fault each: the fault, the affected arm, and the checks that must report it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench_client.simulator import Fault, SimulatedStepCost
from virtual_time.response import TransportFaults
from virtual_time.world import World

ARM, BASELINE = "eagle3", "none"
SMALL: Mapping[str, Any] = {"concurrency": [4]}
SLOW = SimulatedStepCost(base_ms=40.0, per_token_ms=2.0)
READING = SimulatedStepCost(per_prefill_ms=0.3)
COPYING = "ngram"
OPEN: Mapping[str, Any] = {"rate": [4.0], "slots": 64}


@dataclass(frozen=True)
class CorruptedWorld:
    """`checks`: all that must be among the findings above a note; others may follow from them."""

    words: str
    checks: tuple[str, ...]
    world: World


def _faulty(fault: Fault, value: float, *arms: str) -> Mapping[str, Mapping[Fault, float]]:
    return {arm: {fault: value} for arm in arms or (ARM, BASELINE)}


def _at(**changes: Any) -> World:
    return World(seed=7, prompts=32, load=changes.pop("load", SMALL), **changes)


def _long(**changes: Any) -> World:
    """Points of half a minute, with prompts enough in each third of them."""
    return World(seed=7, prompts=48, load=SMALL, categories=("code", "chat"), cost=SLOW, **changes)


CORRUPTED_WORLDS: Mapping[str, CorruptedWorld] = {
    "late-client": CorruptedWorld(
        "the client begins conversations 60 ms late", ("ClientSaturated",),
        _at(load=OPEN, between=dict.fromkeys((ARM, BASELINE), TransportFaults(dawdling_ns=60_000_000))),
    ),
    "merged-chunks": CorruptedWorld(
        "the engine sends a chunk every four steps", ("MultiStepChunks",),
        _at(faults=_faulty(Fault.MERGE_CHUNKS, 4)),
    ),
    "buffering-proxy": CorruptedWorld(
        "a proxy hands over eight chunks in one write", ("ChunksCoalesced",),
        _at(between=dict.fromkeys((ARM, BASELINE), TransportFaults(chunks_at_once=8))),
    ),
    "late-end": CorruptedWorld(
        "the drafter's arm ends its streams 60 ms after the last token", ("LateStreamEnd",),
        _at(between={ARM: TransportFaults(late_end_ns=60_000_000)}),
    ),
    "miscounted": CorruptedWorld(
        "usage counts three tokens more than were sent", ("TokenCountMismatch",),
        _at(faults=_faulty(Fault.MISCOUNT, 3)),
    ),
    "truncated": CorruptedWorld(
        "the drafter's arm sends 70 % of each answer and says stop", ("OutputLengthsDiffer",),
        _at(faults=_faulty(Fault.TRUNCATE, 0.7, ARM)),
    ),
    "own-limit": CorruptedWorld(
        "the engine cuts all answers after 32 tokens", ("PrematureLengthStop",),
        _at(faults=_faulty(Fault.OWN_LIMIT, 32)),
    ),
    "diverging": CorruptedWorld(
        "with a drafter, every second prompt gets another text", ("GreedyDivergence",),
        _at(faults=_faulty(Fault.DIVERGE, 0.5, ARM)),
    ),
    "sampled": CorruptedWorld(
        "the engine samples although temperature 0 is asked for", ("TemperatureNotApplied",),
        _at(faults=_faulty(Fault.TEMPERATURE, 1.0), max_tokens=96),
    ),
    "not-sampled": CorruptedWorld(
        "the engine is greedy although temperature 1 is asked for", ("TemperatureNotApplied",),
        _at(faults=_faulty(Fault.TEMPERATURE, 0.0), temperature=1.0),
    ),
    "prompt-cache": CorruptedWorld(
        "nine tenths of each prompt come from a cache", ("PromptCacheHit",),
        _at(faults=_faulty(Fault.PROMPT_CACHE, 0.9)),
    ),
    "never-drafting": CorruptedWorld(
        "the drafter starts and never drafts", ("NeverDrafted",),
        _at(faults=_faulty(Fault.NEVER_DRAFT, 1, ARM)),
    ),
    "remembering": CorruptedWorld(
        "the drafter remembers answers, and a launch asks each prompt at two loads", ("DrafterCarryover",),
        _at(faults=_faulty(Fault.DRAFTER_MEMORY, 0.95, ARM), load={"concurrency": [2, 4]}),
    ),
    "cold": CorruptedWorld(
        "steps begin six times as slow and warm up over a minute", ("WarmupNotSteady", "StepTimeDrift"),
        _long(faults=_faulty(Fault.COLD, 6)),
    ),
    "throttled": CorruptedWorld(
        "steps get slower by 5 % for each second of engine time", ("StepTimeDrift",),
        _long(faults=_faulty(Fault.THROTTLE, 0.05)),
    ),
    "restarted": CorruptedWorld(
        "the engine restarts behind the client's back", ("EngineRestarted",),
        _at(faults=_faulty(Fault.RESTART_COUNTERS, 44)),
    ),
    "foreign-traffic": CorruptedWorld(
        "somebody else asks the engine too, one request after the other", ("ForeignTraffic",),
        _at(foreign=True),
    ),
    "failing": CorruptedWorld(
        "one request in ten is answered by 500", ("RequestsFailed",),
        _at(faults=_faulty(Fault.HTTP_500, 0.1, ARM)),
    ),
    "smaller-context": CorruptedWorld(
        "the drafter's engine has a smaller context and rejects the longer prompts",
        ("RequestsFailed", "ArmEnvironmentsDiffer"),
        _at(limits={ARM: 260}),
    ),
    "overloaded": CorruptedWorld(
        "more arrives than the engine can do", ("Overloaded",),
        _at(load={"rate": [8.0], "slots": 64, "requests": 90}, cost=SLOW, max_tokens=48, repeats=1),
    ),
    "silent-cache": CorruptedWorld(
        "prompts of the drafter's arm come from a cache, and a gateway hides it", ("TtftBelowBaseline",),
        _at(load={"concurrency": [1]}, cost=READING, faults=_faulty(Fault.PROMPT_CACHE, 0.9, ARM),
            between={ARM: TransportFaults(silent_cache=True)}),
    ),
    "slower-baseline": CorruptedWorld(
        "the baseline runs on a machine that is 30 % slower", ("StepsFasterThanBaseline", "TtftBelowBaseline"),
        _at(load={"concurrency": [1]}, methods=(COPYING,), slower={BASELINE: 1.3}),
    ),
    "slower-baseline-loaded": CorruptedWorld(
        "the same at four streams", ("StepsFasterThanBaseline",),
        _at(methods=(COPYING,), slower={BASELINE: 1.5}),
    ),
    "answer-cache": CorruptedWorld(
        "answers of the drafter's arm are played back from a cache", ("StepsFasterThanBaseline",),
        _at(slower={ARM: 0.2}),
    ),
    "preamble": CorruptedWorld(
        "a gateway puts a system prompt in front, on the drafter's arm alone", ("PromptTokensDiffer",),
        _at(between={ARM: TransportFaults(preamble="You are a helpful assistant.")}),
    ),
    "few-prompts": CorruptedWorld("four prompts", ("TooFewPrompts",),
                                 World(seed=7, prompts=4, load={"concurrency": [1]})),
    "alike-prompts": CorruptedWorld("32 prompts of which 16 repeat the others",
                                   ("DuplicatePrompts",), _at(different=16)),
}  # fmt: skip
