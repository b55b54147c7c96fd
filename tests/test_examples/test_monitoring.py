"""The Prometheus rules: they use metrics that the engines export, and fire as expected (simulated by promtool)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from peers.registry import PEERS

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/monitoring/drift.rules.yaml"
RULES: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
EXPORTED = {
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:generation_tokens_total",
    "sglang:spec_verify_calls_total",
    "sglang:generation_tokens_total",
    "sglang:num_requests_total",
}
"""Exported by vLLM 0.33.0 (v1/spec_decode/metrics.py, v1/metrics/loggers.py) and SGLang (metrics_collector.py)."""
STEP_MIN = 10
DAY = 24 * 60 // STEP_MIN
WEEKS = 9 * DAY


def test_rules_use_only_exported_metrics_and_recorded_series() -> None:
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    used = {name for rule in rules for name in re.findall(r"\b(?:vllm|sglang|model):[\w:]+", rule["expr"])}
    assert used == EXPORTED | (recorded - {"model:spec_acceptance_rate:rate1h"})


PROMTOOL = shutil.which("promtool", path=f"{os.environ['PATH']}:{PEERS['promtool'].file.parent}")
WITH_PROMTOOL = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: `hack/peer promtool` builds it")


def counter(*pieces: tuple[float, int]) -> str:
    """A counter in promtool's notation, from pairs of slope per step and number of steps."""
    value, words = 0.0, []
    for slope, steps in pieces:
        words.append(f"{value:g}+{slope:g}x{steps - 1}")
        value += slope * steps
    return " ".join(words)


def vllm(accepted: str, steps: str, tokens: str) -> dict[str, str]:
    labels = '{job="llm",model_name="m",engine="0"}'
    names = ("spec_decode_num_accepted_tokens", "spec_decode_num_drafts", "generation_tokens")
    series = dict(zip(names, (accepted, steps, tokens), strict=True))
    series["spec_decode_num_draft_tokens"] = steps
    return {f"vllm:{name}_total{labels}": values for name, values in series.items()}


def sglang(tokens: str, requests: str, steps: str) -> dict[str, str]:
    labels = '{job="llm",model_name="m",tp_rank="0"}'
    names = ("generation_tokens", "num_requests", "spec_verify_calls")
    return {
        f"sglang:{name}_total{labels}": values for name, values in zip(names, (tokens, requests, steps), strict=True)
    }


GROUPS = [group["name"] for group in yaml.safe_load(FILE.read_text())["groups"]]
"""The order of evaluation. Without it, promtool uses a random order, and alerts may see values one step late."""
EVEN, LATE = counter((6000, WEEKS)), 8 * DAY
WORSE = counter((9000, LATE), (7200, WEEKS - LATE))
SCENARIOS: tuple[tuple[str, dict[str, str], set[str]], ...] = (
    ("acceptance is stable", vllm(counter((9000, WEEKS)), EVEN, counter((15000, WEEKS))), set()),
    ("acceptance drops by a fifth", vllm(WORSE, EVEN, counter((15000, WEEKS))), {"SpecAcceptanceDrifted"}),
    ("acceptance drops slightly", vllm(
        counter((9000, LATE), (8700, WEEKS - LATE)), EVEN, counter((15000, WEEKS))
    ), set()),
    ("traffic drops and acceptance is stable", vllm(
        counter((9000, LATE), (900, WEEKS - LATE)), counter((6000, LATE), (600, WEEKS - LATE)), EVEN
    ), set()),
    ("traffic is too low for an alert", vllm(
        counter((9000, LATE), (72, WEEKS - LATE)), counter((6000, LATE), (60, WEEKS - LATE)), EVEN
    ), set()),
    ("drafting stops", vllm(
        counter((9000, LATE), (0, WEEKS - LATE)), counter((6000, LATE), (0, WEEKS - LATE)), counter((15000, WEEKS))
    ), {"SpecDecodingStopped"}),
    ("traffic stops", vllm(*[counter((6000, LATE), (0, WEEKS - LATE))] * 3), set()),
    ("SGLang, acceptance is stable", sglang(counter((15600, WEEKS)), counter((600, WEEKS)), EVEN), set()),
    ("SGLang, acceptance drops by a fifth", sglang(
        counter((15600, LATE), (13800, WEEKS - LATE)), counter((600, WEEKS)), EVEN
    ), {"SpecAcceptanceDrifted"}),
    ("the engine does not speculate", {'vllm:generation_tokens_total{job="llm",model_name="m"}': EVEN}, set()),
    ("the metric has less than a day of history", vllm(
        counter((9000, DAY // 2)), counter((6000, DAY // 2)), counter((15000, DAY // 2))
    ), set()),
)  # fmt: skip


def promtool_test(name: str, series: dict[str, str], firing: set[str]) -> dict[str, Any]:
    """A promtool test of which alerts fire nine hours after the change."""
    return {
        "name": name,
        "interval": f"{STEP_MIN}m",
        "input_series": [{"series": series_name, "values": values} for series_name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": f"{(LATE * STEP_MIN) + 9 * 60}m",
                "exp_samples": [{"labels": "{}", "value": int(alert in firing)}],
            }
            for alert in ALERTS
        ],
    }


def promtool_accepts(folder: Path, tests: list[dict[str, Any]]) -> None:
    """Run these tests of the rules in the folder."""
    shutil.copy(FILE, folder / "rules.yaml")
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{STEP_MIN}m",
        "group_eval_order": GROUPS,
        "tests": tests,
    }
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run([str(PROMTOOL), *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
@WITH_PROMTOOL
def test_each_alert_fires_exactly_in_its_scenario(tmp_path: Path) -> None:
    promtool_accepts(tmp_path, [promtool_test(name, series, firing) for name, series, firing in SCENARIOS])


@pytest.mark.process
@WITH_PROMTOOL
def test_the_recorded_acceptance_length_matches_the_engines_formula(tmp_path: Path) -> None:
    """vLLM: 1 + 9000 accepted / 6000 steps = 2.5. SGLang: (15600 tokens − 600 requests) / 6000 steps = 2.5."""
    tests = [
        {
            "interval": f"{STEP_MIN}m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": "round(model:spec_acceptance_length:avg6h, 0.001)",
                    "eval_time": "12h",
                    "exp_samples": [{"labels": f'{{job="llm",model_name="m",serving="{serving}"}}', "value": 2.5}],
                }
            ],
        }
        for serving, series in {"vllm": SCENARIOS[0][1], "sglang": SCENARIOS[7][1]}.items()
    ]
    promtool_accepts(tmp_path, tests)
