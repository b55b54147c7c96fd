"""The Grafana dashboard: it asks for what the operator and the engines export, in PromQL that parses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import prometheus_client
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
"""By vLLM 0.33.0 (v1/spec_decode/metrics.py, v1/metrics/loggers.py) and SGLang (metrics_collector.py)."""
FUNCTIONS = {"sum", "avg", "max", "rate", "increase", "histogram_quantile", "time"}
WORDS = {"by", "ignoring", "group_left"}
RUNS = re.compile(r'"[^"]*"|[A-Za-z_$][\w:$]*|[\d.]+|=~|[-+*/(){}\[\],=<>]|\s+')


def test_every_metric_of_the_operator_is_one_that_it_has() -> None:
    telemetry = Telemetry()
    telemetry.counted([])
    telemetry.failed("Bug")
    campaign = {"metadata": {"namespace": "n", "name": "c"}, "spec": {"budget": {"gpuHours": 1}}}
    telemetry.counted_campaigns([campaign])
    known = set(re.findall(r"^(\w+)[ {]", prometheus_client.generate_latest(telemetry.registry).decode(), re.MULTILINE))
    asked = {name for expr in EXPRESSIONS for name in re.findall(r"\b(?<!_)specbench_(?!io_)\w+", expr)}
    assert len(asked) > 8
    assert asked <= known


def test_every_metric_of_an_engine_is_one_that_it_exports() -> None:
    asked = {name for expr in EXPRESSIONS for name in re.findall(r"\b(?:vllm|sglang):\w+", expr)}
    assert asked == EXPORTED


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_every_expression_is_made_of_whole_words_and_closed_brackets(expr: str) -> None:
    words = [word for word in RUNS.findall(expr) if not word.isspace()]
    assert "".join(words) == re.sub(r"\s", "", expr), "a sign that no expression here has"
    called = {word for word, after in pairwise(words) if after == "(" and word[0].isalpha()}
    assert called <= FUNCTIONS | WORDS
    waiting = []
    for word in words:
        if word in "({[":
            waiting.append({"(": ")", "{": "}", "[": "]"}[word])
        elif word in ")}]":
            assert waiting.pop() == word
    assert waiting == []


def promtool() -> str | None:
    """On PATH, or as hack/peer built it."""
    built = PEERS["promtool"].file if "promtool" in PEERS else None
    return shutil.which("promtool") or (str(built) if built and built.exists() else None)


@pytest.mark.process
@pytest.mark.skipif(promtool() is None, reason="promtool is not here: expressions are only looked over")
def test_promtool_reads_every_expression() -> None:
    for expr in EXPRESSIONS:
        command = [str(promtool()), "--experimental", "promql", "format", expr.replace("$__rate_interval", "5m")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{expr}: {done.stderr}"


def test_every_variable_is_one_of_the_dashboards() -> None:
    told = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    asked = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert asked - {"__rate_interval", "__all"} == told


def test_every_panel_says_what_it_shows_and_none_lies_on_another() -> None:
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


def test_engines_bear_the_labels_that_the_dashboard_asks_for() -> None:
    monitor = yaml.safe_load((FOLDER / "podmonitor.yaml").read_text(encoding="utf-8"))["spec"]
    golden = FOLDER.parents[1] / "tests/test_operator/golden/engine-simulator.yaml"
    pod = yaml.safe_load(golden.read_text(encoding="utf-8"))["spec"]["template"]
    labels, ports = pod["metadata"]["labels"], [port for c in pod["spec"]["containers"] for port in c.get("ports", [])]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert set(monitor["podTargetLabels"]) <= set(labels)
    assert {end["port"] for end in monitor["podMetricsEndpoints"]} <= {port["name"] for port in ports}
    asked = {re.sub(r"\W", "_", label) for label in monitor["podTargetLabels"]}
    used = {name for expr in EXPRESSIONS for name in re.findall(r"\bspecbench_io_\w+", expr)}
    assert used == asked
