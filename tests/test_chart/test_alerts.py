"""The chart's alerts use metrics that the operator exposes, and fire when they should (checked with promtool)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
import yaml

from specbench_operator.telemetry import Telemetry
from specbench_testing.charts import Helm
from specbench_testing.shared_cluster import program

pytestmark = pytest.mark.cluster

JOB = 'namespace="team",job="bench-specbench-metrics"'


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    """The rule groups in the format of Prometheus."""
    enabled = {"metrics": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}}
    spec: dict[str, Any] = Helm(program("helm")).template(enabled).one("PrometheusRule")["spec"]
    return spec


def test_alerts_use_only_metrics_that_the_operator_exposes(rules: dict[str, Any]) -> None:
    telemetry = Telemetry()
    telemetry.counted_runs([], lambda _namespace, _name: None)
    exposed = set(
        re.findall(r"^(\w+)[ {]", prometheus_client.generate_latest(telemetry.registry).decode(), re.MULTILINE)
    )
    used = {name for rule in rules["groups"][0]["rules"] for name in re.findall(r"\bspecbench_\w+", rule["expr"])}
    assert used
    assert used <= exposed


SCENARIOS: tuple[tuple[str, str, dict[str, str], set[str]], ...] = (
    ("runs make progress", "3h", {"up": "1x300", "running": "1x300", "points": "0+1x300", "gpus": "0+240x300"}, set()),
    ("no run is active", "3h", {"up": "1x300", "running": "0x300", "points": "9x300", "gpus": "99x300"}, set()),
    ("the operator is down", "10m", {"up": "0x300"}, {"SpecbenchOperatorDown"}),
    ("the operator was never scraped", "10m", {}, {"SpecbenchOperatorDown"}),
    ("a replica leads", "10m", {"up": "1x300", "leader": "1x300", "standby": "0x300"}, set()),
    ("no replica leads", "10m", {"up": "1x300", "leader": "0x300", "standby": "0x300"}, {"SpecbenchNoLeader"}),
    (
        "a run completes no point",
        "2h",
        {"up": "1x300", "running": "1x300", "points": "5x300", "gpus": "0+240x300"},
        {"SpecbenchRunStalled"},
    ),
    (
        "GPUs are held without a run",
        "40m",
        {"up": "1x300", "running": "0x300", "points": "5x300", "gpus": "0+240x300"},
        {"SpecbenchGpusHeldIdle"},
    ),
    (
        "the operator reports a bug",
        "10m",
        {"up": "1x300", "running": "0x300", "bugs": "0x8 1x300"},
        {"SpecbenchOperatorBug"},
    ),
)
SERIES = {
    "up": f"up{{{JOB}}}",
    "running": f'specbench_runs{{{JOB},phase="Running"}}',
    "points": f"specbench_points_measured_total{{{JOB}}}",
    "gpus": f"specbench_gpu_held_seconds_total{{{JOB}}}",
    "leader": f'specbench_leader{{{JOB},pod="a"}}',
    "standby": f'specbench_leader{{{JOB},pod="b"}}',
    "bugs": f'specbench_reconcile_duration_seconds_count{{{JOB},result="Bug"}}',
}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH, so alerts cannot be tested")
def test_each_alert_fires_exactly_in_its_scenario(rules: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    names = [rule["alert"] for rule in rules["groups"][0]["rules"]]
    tests = [
        {
            "name": why,
            "interval": "1m",
            "input_series": [{"series": SERIES[name], "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                    "eval_time": eval_time,
                    "exp_samples": [{"labels": "{}", "value": int(name in firing)}],
                }
                for name in names
            ],
        }
        for why, eval_time, series, firing in SCENARIOS
    ]
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
