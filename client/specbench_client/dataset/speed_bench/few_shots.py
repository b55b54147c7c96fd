"""HLE in SPEED-Bench's throughput configs: a question behind as many solved ones as its length asks for.

Which ones is drawn by one generator over all such rows in the data set's order, so all of them are made together, also
where most were resolved before. Split, draws and cut are those of SPEED-Bench's own preparation
(NVIDIA/Model-Optimizer, examples/specdec_bench, datasets/speed.py): half of HLE is asked, and of the other half those
questions are shown that have no picture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specbench_client.dataset.length.ruler import Ruler
from specbench_client.dataset.speed_bench.origins import Records
from specbench_client.dataset.speed_bench.row import SpeedBenchRow, Unresolved

SEED = 42
_OPENING = (
    "Please answer the question below.\n\n"
    "Here are some examples of question and answer pairs in the category of {category}:\n\n"
)


def few_shot_prompts(rows: Sequence[SpeedBenchRow], target: int, hle: Records, ruler: Ruler) -> dict[str, str]:
    """By question_id, of rows in the data set's order. `target`: tokens of o200k_base. Raises Unresolved."""
    shown, asked = _halves(hle)
    solved = _solved(shown, ruler)
    by_id = {row["id"]: row for row in asked}
    draws = np.random.default_rng(SEED)
    found = {}
    for row in rows:
        if row.src_id not in by_id:
            raise Unresolved(f"hle has no row whose id is {row.src_id!r} in its asked half: is it of another revision?")
        question = by_id[row.src_id]
        found[row.question_id] = _prompt(question, solved[question["category"]], target, ruler, draws)
    return found


def _halves(hle: Records) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """As the `datasets` library's train_test_split parts it: (shown, asked)."""
    import datasets  # noqa: PLC0415  two seconds, which `--help` need not pay

    places = datasets.Dataset.from_dict({"place": list(range(hle.size))})
    parted = places.train_test_split(test_size=0.5, shuffle=True, seed=SEED)
    shown, asked = ([hle.at(place) for place in parted[half]["place"]] for half in ("train", "test"))
    return shown, asked


def _solved(shown: Sequence[Mapping[str, Any]], ruler: Ruler) -> Mapping[str, list[list[int]]]:
    """Tokens of every question with its reasoned answer, by category."""
    found: defaultdict[str, list[list[int]]] = defaultdict(list)
    for row in shown:
        if row["image"] == "":
            text = f"Question: {row['question']}\n\nAnswer: {row['rationale']}\n\n"
            found[row["category"]].append(ruler.encode_ordinary(text))
    return found


def _prompt(
    question: Mapping[str, Any], solved: list[list[int]], target: int, ruler: Ruler, draws: np.random.Generator
) -> str:
    """Cut between the examples and the question, wherever that is: one token longer than asked, as published."""
    last = ruler.encode_ordinary(question["question"])
    tokens = ruler.encode_ordinary(_OPENING.format(category=question["category"]))
    while len(tokens) + len(last) < target:
        if not solved:
            raise Unresolved(f"hle has no solved question of category {question['category']!r}: is it complete?")
        tokens += solved[int(draws.choice(len(solved), size=1, replace=False)[0])]
    return ruler.decode_bytes(tokens[: target - len(last) + 1] + last).decode("utf-8", errors="replace")
