"""Worlds with one fault each: the fault, the affected arm, and the checks that must report it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench_client.simulator import SimulatedStepCost
from virtual_time.response import TransportFaults
from virtual_time.world import World

ARM, BASELINE = "eagle3", "none"
SMALL: Mapping[str, Any] = {"concurrency": [4]}
SLOW = SimulatedStepCost(base_ms=40.0, per_token_ms=2.0)
READING = SimulatedStepCost(per_prefill_ms=0.3)
COPYING = "ngram"
JSON = {
    "jsonSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "count": {"type": "integer"}, "notes": {"type": "string"}},
        "required": ["name", "count", "notes"],
        "additionalProperties": False,
    }
}
NUMBERS = {"expected": {"match": "Number"}}
OPEN: Mapping[str, Any] = {"rate": [4.0], "slots": 64}


@dataclass(frozen=True)
class CorruptedWorld:
    """`checks`: the findings above severity Info that must be reported; others may result from them."""

    words: str
    checks: tuple[str, ...]
    world: World


def _faulty(fault: str, value: float, *arms: str) -> Mapping[str, Mapping[str, float]]:
    return {arm: {fault: value} for arm in arms or (ARM, BASELINE)}


def _at(**changes: Any) -> World:
    return World(seed=7, prompts=32, load=changes.pop("load", SMALL), **changes)


def _long(**changes: Any) -> World:
    """Points of half a minute, with enough prompts in each third."""
    return World(seed=7, prompts=48, load=SMALL, categories=("code", "chat"), cost=SLOW, **changes)


CORRUPTED_WORLDS: Mapping[str, CorruptedWorld] = {
    "late-client": CorruptedWorld(
        "the client starts conversations 60 ms late", ("ClientSaturated",),
        _at(load=OPEN, between=dict.fromkeys((ARM, BASELINE), TransportFaults(dawdling_ns=60_000_000))),
    ),
    "paused-client": CorruptedWorld(
        "the client pauses once for a second, in a closed loop", ("ClientSaturated",),
        _at(between={BASELINE: TransportFaults(pause_ns=(3_000_000_000, 4_000_000_000))}),
    ),
    "merged-chunks": CorruptedWorld(
        "the engine sends a chunk every four steps", ("MultiStepChunks",),
        _at(faults=_faulty("merge-chunks", 4)),
    ),
    "buffering-proxy": CorruptedWorld(
        "a proxy forwards eight chunks in one write", ("ChunksCoalesced",),
        _at(between=dict.fromkeys((ARM, BASELINE), TransportFaults(chunks_at_once=8))),
    ),
    "late-end": CorruptedWorld(
        "the drafter's arm ends its streams 60 ms after the last token", ("LateStreamEnd",),
        _at(between={ARM: TransportFaults(late_end_ns=60_000_000)}),
    ),
    "miscounted": CorruptedWorld(
        "usage reports three tokens more than were sent", ("TokenCountConflict",),
        _at(faults=_faulty("miscount", 3)),
    ),
    "truncated": CorruptedWorld(
        "the drafter's arm sends 70 % of each answer with finish reason stop", ("OutputLengthsDiffer",),
        _at(faults=_faulty("truncate", 0.7, ARM)),
    ),
    "own-limit": CorruptedWorld(
        "the engine cuts all answers after 32 tokens", ("PrematureLengthStop",),
        _at(faults=_faulty("own-limit", 32)),
    ),
    "diverging": CorruptedWorld(
        "with a drafter, every second prompt has another answer", ("GreedyDivergence",),
        _at(faults=_faulty("diverge", 0.5, ARM)),
    ),
    "sampled": CorruptedWorld(
        "the engine samples although the request has temperature 0", ("TemperatureNotApplied",),
        _at(faults=_faulty("temperature", 1.0), max_tokens=96),
    ),
    "not-sampled": CorruptedWorld(
        "the engine decodes greedily although the request has temperature 1", ("TemperatureNotApplied",),
        _at(faults=_faulty("temperature", 0.0), temperature=1.0),
    ),
    "prompt-cache": CorruptedWorld(
        "nine tenths of each prompt are read from a prefix cache", ("PromptCacheHit",),
        _at(faults=_faulty("prompt-cache", 0.9)),
    ),
    "lost-reuse": CorruptedWorld(
        "with a drafter, 70 % of each hit of the prompt cache is computed again", ("ReuseLost",),
        _at(caches=True, shared_tokens=(0, 512, 1536), faults=_faulty("reuse-lost", 0.7, ARM)),
    ),
    "decaying": CorruptedWorld(
        "acceptance falls by half within ten minutes", ("AcceptanceDecays",),
        World(seed=7, prompts=200, order="Soak", repeats=10, load={"concurrency": [1], "durationSeconds": 60},
              cost=SimulatedStepCost(base_ms=400), faults=_faulty("acceptance-decay", 36, ARM)),
    ),
    "corrupt-json": CorruptedWorld(
        "with a drafter and three requests or more, JSON ends or begins again in its middle", ("AnswersWorse",),
        _at(answers=JSON, faults=_faulty("corrupt-json", 3, ARM)),
    ),
    "wrong-numbers": CorruptedWorld(
        "with more than four draft tokens, half of the answers are wrong", ("AnswersWorse",),
        _at(answers=NUMBERS, drafts=5, faults=_faulty("wrong-deep", 4, ARM)),
    ),
    "never-drafting": CorruptedWorld(
        "the drafter starts and never drafts", ("NeverDrafted",),
        _at(faults=_faulty("never-draft", 1, ARM)),
    ),
    "remembering": CorruptedWorld(
        "the drafter caches answers, and a launch sends each prompt at two loads", ("DrafterCarryover",),
        _at(faults=_faulty("drafter-memory", 0.95, ARM), load={"concurrency": [2, 4]}),
    ),
    "cold": CorruptedWorld(
        "steps take six times as long at first and warm up over a minute", ("WarmupNotSteady", "StepTimeDrift"),
        _long(faults=_faulty("cold", 6)),
    ),
    "throttled": CorruptedWorld(
        "steps get slower by 5 % for each second of engine time", ("StepTimeDrift",),
        _long(faults=_faulty("throttle", 0.05)),
    ),
    "restarted": CorruptedWorld(
        "the engine restarts during the measurement", ("EngineRestarted",),
        _at(faults=_faulty("restart-counters", 44)),
    ),
    "foreign-traffic": CorruptedWorld(
        "another client sends sequential requests to the engine", ("ForeignTraffic",),
        _at(foreign=True),
    ),
    "failing": CorruptedWorld(
        "one request in ten fails with status 500", ("RequestsFailed",),
        _at(faults=_faulty("http-500", 0.1, ARM)),
    ),
    "smaller-context": CorruptedWorld(
        "the drafter's engine has a smaller context and rejects the longer prompts",
        ("RequestsFailed", "ArmEnvironmentsDiffer"),
        _at(limits={ARM: 260}),
    ),
    "overloaded": CorruptedWorld(
        "the arrival rate exceeds the engine's capacity", ("Overloaded",),
        _at(load={"rate": [8.0], "slots": 64, "requests": 90}, cost=SLOW, max_tokens=48, repeats=1),
    ),
    "silent-cache": CorruptedWorld(
        "prompts of the drafter's arm are cached, and a gateway hides the cached tokens", ("TtftBelowBaseline",),
        _at(load={"concurrency": [1]}, cost=READING, faults=_faulty("prompt-cache", 0.9, ARM),
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
        "answers of the drafter's arm are replayed from a cache", ("StepsFasterThanBaseline",),
        _at(slower={ARM: 0.2}),
    ),
    "preamble": CorruptedWorld(
        "a gateway adds a system prompt on the drafter's arm only", ("PromptTokensDiffer",),
        _at(between={ARM: TransportFaults(preamble="You are a helpful assistant.")}),
    ),
    "few-prompts": CorruptedWorld("four prompts", ("TooFewPrompts",),
                                 World(seed=7, prompts=4, load={"concurrency": [1]})),
    "alike-prompts": CorruptedWorld("32 prompts, 16 of them duplicates",
                                   ("DuplicatePrompts",), _at(different=16)),
}  # fmt: skip
