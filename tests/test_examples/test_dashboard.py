"""The Grafana dashboard: it uses metrics that the operator and the engines export, in PromQL that parses."""

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

FOLDER = Path(__file__).resolve().parents[2] / "examples/monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
HISTOGRAMS = {"time_to_first_token_seconds", "request_time_per_output_token_seconds"}
EXPORTED = {
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
    assert used == EXPORTED


PROMTOOL = shutil.which("promtool", path=f"{os.environ['PATH']}:{PEERS['promtool'].file.parent}")


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
