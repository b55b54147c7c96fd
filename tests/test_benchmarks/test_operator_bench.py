"""benchmarks/operator: what its figures are computed from. The phases themselves need a cluster of their own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from operator_bench.audit_log import count_requests
from operator_bench.figures import BenchmarkFigures, PhaseFigures
from operator_bench.phases import CREATIONS, IDLE, STEADY
from operator_bench.population import Mix, RunState, campaigns, run_spec, runs_of
from operator_bench.reactions import Latencies, Reaction, Reactions, percentile
from operator_bench.site import value_for
from operator_bench.table import markdown
from operator_bench.usage import MIB, ProcessUse, Sample, Usage
from operator_bench.users import EDIT
from specbench_api.campaign.expansion import expand_campaign
from specbench_api.spec.parsing import parse_campaign
from specbench_testing.charts import Helm
from specbench_testing.resources import Resource
from specbench_testing.shared_cluster import program

SPEC = run_spec({"gpus": 1}, {"bucket": "results"})


# -- the operator's environment


def test_every_variable_of_the_charts_deployment_has_a_value_outside_a_pod() -> None:
    deployment = Helm(program("helm")).template({}).one("Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert all(value_for(variable) for variable in container["env"])


# -- runs


@pytest.mark.parametrize(("runs", "waiting", "active", "finished"), [(100, 48, 2, 50), (10_000, 4800, 200, 5000)])
def test_the_mix_of_runs(runs: int, waiting: int, active: int, finished: int) -> None:
    mix = Mix.of(runs)
    assert (mix.waiting, mix.active, mix.finished) == (waiting, active, finished)
    assert Counter(mix.states()) == {
        RunState.WAITING: waiting,
        RunState.ACTIVE: active,
        RunState.FINISHED: finished,
    }


def created(campaign: Resource) -> Resource:
    """The campaign as the API server returns it."""
    meta = {**campaign["metadata"], "uid": "11111111-2222-3333-4444-555555555555", "namespace": "bench"}
    return {**campaign, "metadata": meta}


@pytest.mark.draws
@pytest.mark.parametrize(("runs", "sizes"), [(40, [40]), (520, [256, 256, 8])])
def test_the_campaigns_have_exactly_these_runs(runs: int, sizes: list[int]) -> None:
    planned = [runs_of(created(campaign)) for campaign in campaigns(runs, SPEC)]
    assert [len(rows) for rows in planned] == sizes
    names = [run["metadata"]["name"] for rows in planned for run in rows]
    assert len(set(names)) == runs
    assert all(run["metadata"]["ownerReferences"][0]["controller"] for rows in planned for run in rows)


@pytest.mark.draws
def test_the_runs_are_those_that_the_operator_would_create() -> None:
    campaign = created(campaigns(100, SPEC)[0])
    expected = {row.name: row.resource for row in expand_campaign(parse_campaign(campaign)).runs}
    for run in runs_of(campaign):
        meta = {name: value for name, value in run["metadata"].items() if name != "ownerReferences"}
        assert {**run, "metadata": meta} == expected[run["metadata"]["name"]]


# -- reactions


def test_a_reaction_lasts_from_the_answer_to_the_first_arrival_of_the_write() -> None:
    reactions = Reactions(lambda: 1.0)
    reaction = reactions.began(reactions.expect("edit", ("runs", "a"), lambda run: run["generation"] == 2))
    for name, generation, at_s in (("a", 1, 1.5), ("b", 2, 1.6), ("a", 2, 1.75), ("a", 2, 9.0)):
        reactions.observed(("runs", name), {"generation": generation}, at_s)
    assert reaction.latency_s == 0.75


def test_a_write_that_arrives_before_the_answer_counts_as_immediate() -> None:
    reactions = Reactions(lambda: 1.0)
    reaction = reactions.expect("edit", ("runs", "a"), lambda _: True)
    reactions.observed(("runs", "a"), {}, 0.5)
    assert reactions.began(reaction).latency_s == 0.0


def test_reactions_that_did_not_arrive_are_counted_and_not_averaged() -> None:
    arrived = [Reaction("edit", bool, 0.0, float(second)) for second in range(1, 101)]
    found = Latencies.of([*arrived, Reaction("edit", bool, 0.0)])
    assert found == Latencies(100, 1, 50.0, 99.0, 100.0)
    assert Latencies.of([Reaction("edit", bool, 0.0)]).text == "none of 1 arrived"


@pytest.mark.parametrize(("percent", "value"), [(0, 1.0), (50, 2.0), (51, 3.0), (99, 4.0), (100, 4.0)])
def test_percentiles_are_nearest_ranks(percent: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], percent) == value


# -- requests


def event(verb: str, stage: str, resource: str = "pods", subresource: str = "") -> dict[str, Any]:
    return {"verb": verb, "stage": stage, "objectRef": {"resource": resource, "subresource": subresource}}


def test_each_request_counts_once() -> None:
    events = [
        event("list", "ResponseComplete"),
        event("list", "ResponseComplete"),
        event("watch", "ResponseStarted"),
        event("watch", "ResponseComplete"),
        event("patch", "ResponseComplete", "specbenchruns", "status"),
        {"verb": "get", "stage": "ResponseComplete"},
    ]
    assert count_requests(events) == {"list pods": 2, "watch pods": 1, "patch specbenchruns/status": 1, "get none": 1}


# -- use of CPU and memory


def sample(at: float, pid: int, cpu_s: float, rss_mib: int = 100, depth: float | None = 0) -> Sample:
    return Sample(at, ProcessUse(pid, cpu_s, rss_mib * MIB), ProcessUse(9, at / 2, 0), depth)


def test_use_of_a_phase() -> None:
    found = Usage.of([sample(0, 1, 5.0, 100, 4), sample(1, 1, 5.5, 300, None), sample(2, 1, 6.0, 200, 0)])
    assert found == Usage(0.5, 0.5, 300.0, 4, 2.0)


def test_a_restarted_process_counts_from_its_start() -> None:
    assert Usage.of([sample(0, 1, 5.0), sample(2, 1, 6.0), sample(3, 2, 0.5), sample(4, 2, 1.0)]).cores == 0.5


# -- the table


def figures(runs: int, *phases: PhaseFigures) -> BenchmarkFigures:
    return BenchmarkFigures(runs, Mix.of(runs), 1.0, 10.0, 0, 0, {phase.name: phase for phase in phases})


def test_the_table_has_a_column_per_number_of_runs_and_the_aims() -> None:
    use = Usage(0.05, 0.2, 123.0, 3, 1.0)
    idle = PhaseFigures(IDLE, 60.0, use, {"watch pods": 6, "list pods": 60})
    steady = PhaseFigures(STEADY, 10.0, use, {}, {EDIT: Latencies(100, 2, 0.1, 0.9, 1.0)})
    storm = PhaseFigures(CREATIONS, 10.0, use, {}, settled_s=None, settle_limit_s=60.0)
    text = markdown([figures(100, idle, steady), figures(1000, idle, storm)])
    rows = {cells[0]: cells[1:] for line in text.splitlines() if (cells := [c.strip() for c in line.split("|")[1:-1]])}
    assert rows["figure"] == ["aim", "100 runs", "1,000 runs"]
    assert rows["idle: CPU of the operator, cores"] == ["< 0.1", "0.05", "0.05"]
    assert rows["idle: requests per run and minute"] == ["flat", "0.66", "0.07"]
    assert rows[f"steady: {EDIT}, p50 / p99"] == ["p99 < 1 s", "0.10 / 0.90 s (n = 100, 2 missing)", "–"]
    assert rows["storm of creations: settled after"] == ["", "–", "> 60 s"]
    assert rows["list pods"] == ["1.00", "1.00"]
