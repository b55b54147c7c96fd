"""Compares the turns in Spec-Bench's file with committed records, without using specbench's own readers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pandas as pd

MEASURED = "phase != 'warmup' and not prompt_id.str.startswith('filler-')"


def count_records(questions: Path, count: int, family: Path) -> int:
    """Print one line per point in `family`; return 1 if a turn does not have exactly one record."""
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines() if line.strip()]
    turns = {str(row["question_id"]): len(row["turns"]) for row in rows}
    wrong = 0
    for manifest in sorted(family.rglob("manifest.json")):
        compacted = manifest.with_name("compacted.json")  # lists the files that replace the parts of the manifest
        listed = json.loads((compacted if compacted.exists() else manifest).read_text())["files"]
        parts = [file["key"] for file in listed if "records/" in file["key"]]
        root = manifest.parents[2]
        frame = pd.concat(pd.read_parquet(root / key) for key in parts).query(MEASURED)
        seen = Counter(zip(frame["prompt_id"].astype(str), frame["turn"], strict=True))
        prompts = set(frame["prompt_id"].astype(str))
        expected = {(prompt, turn) for prompt in prompts for turn in range(turns[prompt])}
        good = len(prompts) == min(count, len(rows)) and seen.keys() == expected and set(seen.values()) == {1}
        failed = int(frame["error_class"].notna().sum())
        wrong += not good
        print(
            f"{manifest.parent.name[:12]}: {len(prompts)} questions, {len(expected)} turns, {len(frame)} records,"
            f" {failed} failed requests: {'every turn has its record' if good else 'RECORDS AND TURNS DIFFER'}"
        )
    return 1 if wrong else 0
