"""The operator's metrics: names by the Prometheus conventions, and series of single runs that stay bounded."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from peers.registry import PEERS
from specbench_operator.errors import Changed, Retry, Stop
from specbench_operator.telemetry import RESULTS, MetricDefinition, RunRow, Telemetry
from specbench_testing.ports import free_port

UNITS = {"seconds", "ratio", "bytes"}
"""Base units, which end a name (before `_total`)."""
OTHER_UNITS = {"hours", "minutes", "milliseconds", "ms", "percent", "percentage", "kilobytes", "gigabytes"}
BOUND = 3


def run(name: str, phase: str, time: str, namespace: str = "bench", **status: Any) -> dict[str, Any]:
    """A run that has this phase since a day of January."""
    meta = {"namespace": namespace, "name": name}
    return {"metadata": meta, "since": f"2026-01-{time}T00:00:00Z", "status": {"phase": phase, **status}}


def count(telemetry: Telemetry, runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Count the runs as the resync does. Returns the names of those that are read."""
    known = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in runs}
    rows = [RunRow(*key, each["status"]["phase"], each["since"]) for key, each in known.items()]
    read: list[str] = []

    def reading(namespace: str, name: str) -> Mapping[str, Any]:
        read.append(name)
        return known[namespace, name]

    telemetry.counted_runs(rows, reading)
    return read


def row(arm: str, value: float, load: str = "8", **fields: Any) -> dict[str, Any]:
    speedup = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return {"arm": arm, "workload": "chat", "load": load, "speedup": speedup, **fields}


def filled() -> Telemetry:
    """All metrics with at least one series."""
    telemetry = Telemetry(BOUND)
    count(telemetry, [run("a", "Running", "01"), run("b", "Succeeded", "01", arms=[row("ngram", 1.2)])])
    campaign = {"metadata": {"namespace": "bench", "name": "c"}, "spec": {"budget": {"gpuHours": 2}}}
    telemetry.counted_campaigns([campaign])
    telemetry.requests.labels("GET").inc()
    telemetry.set_forbidden([("Job", "bench")])
    return telemetry


def exposed(telemetry: Telemetry) -> str:
    return prometheus_client.generate_latest(telemetry.registry).decode()


def series(telemetry: Telemetry, name: str) -> dict[str, float]:
    """The value of each run's series of a metric."""
    samples = (sample for family in telemetry.registry.collect() for sample in family.samples if sample.name == name)
    return {f"{sample.labels['namespace']}/{sample.labels['run']}": sample.value for sample in samples}


@pytest.mark.parametrize("metric", Telemetry().definitions, ids=lambda metric: metric.name)
def test_names_and_labels_follow_the_prometheus_conventions(metric: MetricDefinition) -> None:
    assert re.fullmatch(r"specbench(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") is (metric.type == "counter")
    words = metric.name.removesuffix("_total").split("_")
    assert not OTHER_UNITS & set(words), "not a base unit"
    assert not UNITS & set(words[:-1]), "the unit is not at the end"
    assert metric.type != "histogram" or words[-1] in UNITS
    assert not {"count", "sum", "bucket", "info", metric.type} & set(words), "reserved for parts or types of metrics"
    assert metric.help.endswith(".")
    for label in metric.labels:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", label)
        assert label not in ("le", "quantile", "job", "instance"), "reserved"


def test_the_definitions_are_what_is_exposed() -> None:
    telemetry = filled()
    families = [
        family for family in text_string_to_metric_families(exposed(telemetry)) if not family.name.endswith("_created")
    ]
    found = {
        family.name + ("_total" if family.type == "counter" else ""): (family.type, family.documentation)
        for family in families
    }
    assert found == {each.name: (each.type, each.help) for each in telemetry.definitions}
    labels = {each.name.removesuffix("_total"): set(each.labels) for each in telemetry.definitions}
    for family in families:
        assert family.samples
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels[family.name]


def promtool() -> str | None:
    """The path of promtool: from PATH, or built by hack/peer."""
    return shutil.which("promtool") or (str(PEERS["promtool"].file) if PEERS["promtool"].file.exists() else None)


@pytest.mark.process
@pytest.mark.skipif(promtool() is None, reason="promtool is not installed, so only the rules above are checked")
def test_promtool_finds_nothing_to_improve() -> None:
    telemetry = filled()
    done = subprocess.run(
        [str(promtool()), "check", "metrics"], input=exposed(telemetry), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("phase", "name"),
    [("Running", "specbench_run_points_planned"), ("Succeeded", "specbench_run_trustworthy")],
)
def test_only_the_newest_runs_of_each_namespace_have_series(phase: str, name: str) -> None:
    telemetry = Telemetry(BOUND)
    runs = [run(f"run-{day}", phase, f"{day:02}") for day in range(1, 29)]
    read = count(telemetry, [*reversed(runs), run("alone", phase, "01", namespace="other")])
    assert sorted(read) == ["alone", "run-26", "run-27", "run-28"], "parsing all runs would be expensive"
    assert set(series(telemetry, name)) == {"bench/run-28", "bench/run-27", "bench/run-26", "other/alone"}
    count(telemetry, runs[:1])
    assert set(series(telemetry, name)) == {"bench/run-1"}, "a deleted run keeps its series"


@pytest.mark.parametrize(("host", "address"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_the_page_is_served_in_the_family_of_its_host(host: str, address: str) -> None:
    port = free_port()
    Telemetry().serve(host, port)
    with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=60) as answer:
        assert b"specbench_leader" in answer.read()


def test_no_run_has_series_if_the_limit_is_zero() -> None:
    telemetry = Telemetry(0)
    count(telemetry, [run("a", "Running", "01"), run("b", "Succeeded", "01", arms=[row("ngram", 1.2)])])
    assert 'run="' not in exposed(telemetry)
    assert 'specbench_runs{phase="Running"} 1.0' in exposed(telemetry)


def test_progress_is_reported_while_a_run_is_in_progress() -> None:
    telemetry = Telemetry(BOUND)
    count(telemetry, [run("a", "Running", "01", points={"total": 18, "measured": 7})])
    assert series(telemetry, "specbench_run_points_planned") == {"bench/a": 18}
    assert series(telemetry, "specbench_run_points_measured") == {"bench/a": 7}
    count(telemetry, [run("a", "Succeeded", "01", points={"total": 18, "measured": 18})])
    assert series(telemetry, "specbench_run_points_planned") == {}


def test_the_speed_up_is_that_of_the_best_valid_row_with_an_interval() -> None:
    telemetry = Telemetry(BOUND)
    rows = [row("ngram", 1.2), row("eagle3", 1.8, "32"), row("medusa", 2.5, valid=False), {"arm": "mtp"}]
    count(
        telemetry,
        [
            run("a", "Succeeded", "01", arms=rows, trust="Trustworthy"),
            run("b", "Succeeded", "02", arms=[row("medusa", 2.5, valid=False)], trust="Untrustworthy"),
            run("c", "Failed", "03", arms=rows),
        ],
    )
    labels = {"namespace": "bench", "run": "a", "arm": "eagle3", "workload": "chat", "load": "32"}
    value = telemetry.registry.get_sample_value
    assert value("specbench_run_speedup_ratio", labels) == 1.8
    assert value("specbench_run_speedup_low_ratio", labels) == pytest.approx(1.7)
    assert value("specbench_run_speedup_high_ratio", labels) == pytest.approx(1.9)
    assert set(series(telemetry, "specbench_run_speedup_ratio")) == {"bench/a"}
    assert series(telemetry, "specbench_run_trustworthy") == {"bench/a": 1, "bench/b": 0}


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (None, "Success"),
        (Changed("Conflict", "x"), "Conflict"),
        (Retry("Away", "x"), "Retry"),
        (Stop("Refused", "x"), "Stop"),
        (KeyError("x"), "Bug"),
    ],
)
def test_a_reconciliation_is_counted_by_kind_and_result(error: Exception | None, result: str) -> None:
    telemetry = Telemetry()

    def reconcile() -> None:
        with telemetry.timed("SpecBenchCampaign"):
            if error:
                raise error

    if error:
        with pytest.raises(type(error)):
            reconcile()
    else:
        reconcile()
    counts = {
        (kind, each): telemetry.registry.get_sample_value(
            "specbench_reconcile_duration_seconds_count", {"kind": kind, "result": each}
        )
        for kind in ("SpecBenchRun", "SpecBenchCampaign")
        for each in RESULTS
    }
    assert {key for key, count in counts.items() if count} == {("SpecBenchCampaign", result)}
    assert 0 in counts.values(), "increase() misses the first count of a series that did not exist"
