"""Flags of `specbench measure` in place of fields of a SpecBenchRun, which its users never see."""

from __future__ import annotations

import re

FLAG_OF_FIELD = {
    "metadata.name": "--name",
    "model.name": "--model",
    "engine.endpoints": "--endpoint",
    "engine.dialect": "--dialect",
    "dataset.uri": "--dataset",
    "systemPrompt.tokens": "--system-prompt-tokens",
    "systemPrompt": "--system-prompt-tokens",
    "sampling.temperature": "--temperature",
    "sampling.topP": "--top-p",
    "sampling.seed": "--seed",
    "output.maxTokens": "--max-tokens",
    "output.ignoreEos": "--ignore-eos",
    "output.stream": "--no-stream",
    "chatTemplate.tokenizer": "--tokenizer",
    "chatTemplate.appliedBy: Client": "--tokenizer",
    "set chatTemplate.appliedBy: Engine": "leave --tokenizer out",
    "extraBody": "--extra-body",
    "answers.jsonSchema": "--answers jsonSchema",
    "answers.tools": "--answers tools",
    "answers.expected": "--answers expected",
    "promptCache: AsServed": "--prompt-cache as-served",
    "promptCache: Disabled": "--prompt-cache disabled",
    "promptCache": "--prompt-cache",
    "the spec's folder": "the working directory",
    "load.concurrency": "--concurrency",
    "load.rate": "--rate",
    "load.requests": "--requests",
    "load.durationSeconds": "--duration",
    "load.warmupRequests": "--warmup",
    "load.repeats": "--repeats",
    "load.clients": "--workers",
    "load.arrival.process": "--arrival",
    "load.arrival.burstiness": "--burstiness",
    "load.arrival.uri": "--trace",
    "load.arrival.maxInFlight": "--max-in-flight",
    "load.arrival.seed": "--seed",
}
"""Field of the spec → the flag that sets it."""
_NAMES = "|".join(map(re.escape, FLAG_OF_FIELD))
_FIELD = re.compile(
    rf"(?<![\w./-])(?:(?:spec\.)?(?:workloads\[0\]\.)?(?P<field>{_NAMES})(?!\w)|spec\.(?=(?:engine|load|model|workloads)\b))"
)


def with_flag_names(text: str) -> str:
    """Return a text with every field replaced by the flag that sets it; `spec.load` without one becomes `load`."""
    return _FIELD.sub(lambda found: FLAG_OF_FIELD[found["field"]] if found["field"] else "", text)
