"""Prometheus rules and Grafana dashboard: they use exported metrics, parse, and fire as expected (by promtool)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from peers.registry import PEERS
from specbench_operator.telemetry import Telemetry

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


FOLDER = Path(__file__).resolve().parents[2] / "examples/monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
HISTOGRAMS = {"time_to_first_token_seconds", "request_time_per_output_token_seconds"}
DASHBOARD_EXPORTED = {
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_cached_total",
    "vllm:num_preemptions_total",
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "sglang:generation_tokens_total",
    "sglang:num_requests_total",
    "sglang:spec_verify_calls_total",
    "sglang:spec_accept_rate",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:token_usage",
} | {f"{engine}:{name}_bucket" for engine in ("vllm", "sglang") for name in HISTOGRAMS}
"""Exported by vLLM 0.33.0 (v1/spec_decode/metrics.py, v1/metrics/loggers.py) and SGLang (metrics_collector.py)."""


def test_operator_metrics_in_expressions_are_exported_by_the_operator() -> None:
    named = {each.name: each.type for each in Telemetry().definitions}
    exposed = {name for name, kind in named.items() if kind != "histogram"}
    exposed |= {f"{name}_{part}" for name, kind in named.items() if kind == "histogram" for part in ("bucket", "count")}
    used = {name for expr in EXPRESSIONS for name in re.findall(r"\b(?<!_)specbench_(?!io_)\w+", expr)}
    assert len(used) > 8
    assert used <= exposed


def test_engine_metrics_in_expressions_are_exported_by_the_engines() -> None:
    used = {name for expr in EXPRESSIONS for name in re.findall(r"\b(?:vllm|sglang):\w+", expr)}
    assert used == DASHBOARD_EXPORTED


@pytest.mark.process
@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: `hack/peer promtool` builds it")
def test_promtool_parses_every_expression() -> None:
    for expr in EXPRESSIONS:
        command = [str(PROMTOOL), "--experimental", "promql", "format", expr.replace("$__rate_interval", "5m")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{expr}: {done.stderr}"


def test_the_dashboard_defines_every_variable_it_uses() -> None:
    defined = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert used - {"__rate_interval", "__all"} == defined


def test_panels_have_title_description_and_unit_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
    for one, other in combinations((panel["gridPos"] for panel in DASHBOARD["panels"]), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
        assert one["x"] + one["w"] <= 24


def test_engine_pods_have_the_labels_and_ports_of_the_pod_monitor_and_dashboard() -> None:
    monitor = yaml.safe_load((FOLDER / "podmonitor.yaml").read_text(encoding="utf-8"))["spec"]
    golden = FOLDER.parents[1] / "tests/test_operator/golden/engine-simulator.yaml"
    pod = yaml.safe_load(golden.read_text(encoding="utf-8"))["spec"]["template"]
    labels, ports = pod["metadata"]["labels"], [port for c in pod["spec"]["containers"] for port in c.get("ports", [])]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert set(monitor["podTargetLabels"]) <= set(labels)
    assert {end["port"] for end in monitor["podMetricsEndpoints"]} <= {port["name"] for port in ports}
    scraped = {re.sub(r"\W", "_", label) for label in monitor["podTargetLabels"]}
    used = {name for expr in EXPRESSIONS for name in re.findall(r"\bspecbench_io_\w+", expr)}
    assert used == scraped
