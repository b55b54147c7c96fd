"""Requests before a launch's first point: as long as the measured ones, and never the very same.

A prompt that was sent before may lie in the engine's prompt cache or in a drafter's memory of past text, and would be
measured too well. So a warm-up request is a prompt with its words in reverse order: its length and its vocabulary are
the workload's, its prefix and its n-grams are not.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.workload.reading import Prompt


def warmup_prompts(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """`count` prompts of one turn, each with a name of its own."""
    return [_warmup_prompt(prompts[index % len(prompts)], f"warmup-{index}") for index in range(count)]


def _warmup_prompt(prompt: Prompt, name: str) -> Prompt:
    return Prompt(name, prompt.category, (tuple(message.reversed() for message in prompt.turns[0]),))
