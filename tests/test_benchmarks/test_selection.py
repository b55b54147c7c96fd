"""benchmarks/selection: prints one line of results per size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "selection"


@pytest.mark.process
def test_refined_selection_is_no_worse_than_greedy_and_greedy_beats_random() -> None:
    command = [sys.executable, str(SCRIPT), "--sizes", "300", "600", "--dimensions", "32", "--count", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["candidates"] for line in lines] == [300, 600]
    for line in lines:
        assert line["refined"] <= line["greedy"] < line["random"]
