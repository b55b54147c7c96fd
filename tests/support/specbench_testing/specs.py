"""Builders of specs: a small valid run, with edits of a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

CATEGORIES = ("coding", "math", "writing", "extraction")


def prompts_file(folder: Path, count: int = 8, two_turns: int = 2) -> Path:
    """A prompts file of `count` rows over four categories, the first `two_turns` of them with two turns."""
    rows = []
    for number in range(count):
        category = CATEGORIES[number % len(CATEGORIES)]
        question = f"Question {number} about {category}: what would you do with {number + 3} of them, and why?"
        content = {"turns": [question, "And what next?"]} if number < two_turns else {"prompt": question}
        rows.append({"id": f"{category}-{number}", "category": category, **content})
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def simulated_run(**spec: Any) -> dict[str, Any]:
    """A run on a fast simulator: baseline and one drafter; keywords replace fields of the spec."""
    return {
        "apiVersion": "specbench.io/v1alpha1",
        "kind": "SpecBenchRun",
        "metadata": {"name": "small"},
        "spec": {
            "model": {"name": "simulated"},
            "engine": {"kind": "simulator", "args": ["--time-scale=0.05", "--output-mean=40"]},
            "drafters": [{"name": "eagle3", "method": "eagle3", "model": "e", "args": ["--acceptance=0.7"]}],
            "workloads": [
                {
                    "name": "mixed",
                    "dataset": {"source": "jsonl", "uri": "prompts.jsonl"},
                    "output": {"maxTokens": 48},
                }
            ],
            "load": {"concurrency": [2], "repeats": 1, "warmupRequests": 1},
            "results": {"s3": {"bucket": "bench-results"}},
            **spec,
        },
    }


def write_run(folder: Path, resource: dict[str, Any]) -> Path:
    """Write the run as a file, with its prompts next to it."""
    prompts_file(folder)
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(resource))
    return path


def simulated_campaign(**spec: Any) -> dict[str, Any]:
    """The same run with two dialects at two temperatures, except one combination; keywords replace fields."""
    run = simulated_run()
    return {
        "apiVersion": run["apiVersion"],
        "kind": "SpecBenchCampaign",
        "metadata": run["metadata"],
        "spec": {
            "template": {"spec": run["spec"]},
            "axes": [
                {"path": "engine.dialect", "values": ["vllm", "sglang"]},
                {"path": "workloads[0].sampling.temperature", "values": [0, 1]},
            ],
            "exclude": [{"dialect": "sglang", "temperature": 1}],
            **spec,
        },
    }


def write_campaign(folder: Path, **spec: Any) -> str:
    """Write the campaign as a file, with its prompts next to it; return its path."""
    prompts_file(folder)
    path = folder / "campaign.yaml"
    path.write_text(yaml.safe_dump(simulated_campaign(**spec)))
    return str(path)
