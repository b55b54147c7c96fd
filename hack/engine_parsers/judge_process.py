"""Runs an engine's judge in the engine's Python, with cases and verdicts as JSON lines over pipes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from engine_parsers.cases import Case
from engine_parsers.environments import HACK, cache_folder

WORDS_MAX = 400
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "PYTHONWARNINGS": "ignore"}


@dataclass(frozen=True)
class Verdict:
    """A verdict. `words`: the engine's reason for rejecting, or the checks that an accepted case passed."""

    case: str
    accepted: bool
    words: str

    def __str__(self) -> str:
        """Return the verdict in one line."""
        text = " ".join(self.words.split())
        short = text if len(text) <= WORDS_MAX else f"{text[:WORDS_MAX]}…"
        return f"{'accepted' if self.accepted else 'rejected'}: {short}"


def ask(command: Sequence[str], cases: Sequence[Case]) -> Iterator[Verdict]:
    """Yield verdicts in the order of the cases. Raises CalledProcessError if the engine could not be run."""
    kept = {"VLLM_CACHE_ROOT": str(cache_folder() / "vllm-cache")}
    env = {**os.environ, **OFFLINE, **kept, "PYTHONPATH": str(HACK)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as judge:
        assert judge.stdin is not None
        assert judge.stdout is not None
        judge.stdin.write(json.dumps([asdict(case) for case in cases]))
        judge.stdin.close()
        heard = 0
        for line in judge.stdout:
            heard += 1
            yield Verdict(**json.loads(line))
    if judge.returncode or heard != len(cases):
        raise subprocess.CalledProcessError(judge.returncode or 1, command)
