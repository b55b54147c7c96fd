"""Engines on several nodes: one command line for all of them, and unsupported engines."""

from __future__ import annotations

import pytest

from specbench_api.errors import InvalidSpec
from specbench_api.launch.launcher import LaunchSpec
from specbench_api.launch.registry import LAUNCHERS, SINGLE_NODE_ENGINES
from specbench_api.plan.expansion import expand, launch_order
from specbench_api.spec.engine import EngineKind
from specbench_testing.resources import run_of

MANY = {"spec.placement": {"gpus": 8, "nodes": 2}}
MULTI_NODE_ENGINES = [kind for kind in EngineKind if kind not in SINGLE_NODE_ENGINES]


def launch(kind: EngineKind, nodes: int) -> LaunchSpec:
    engine = {"kind": kind.value, "tensorParallelSize": 8 * nodes}
    plan = expand(run_of({"spec.engine": engine, "spec.placement": {"gpus": 8, "nodes": nodes}}))
    return LAUNCHERS[kind].launch(launch_order(plan, plan.arms[1]))


def flag(args: tuple[str, ...], name: str) -> str:
    return args[args.index(name) + 1]


def test_vllm_has_the_same_arguments_on_each_node_and_workers_are_headless() -> None:
    found = launch(EngineKind.VLLM, 2)
    assert found.worker_args == (*found.args, "--headless")
    assert "--headless" not in found.args
    flags = {name: flag(found.args, name) for name in ("--nnodes", "--node-rank", "--master-addr")}
    assert flags == {
        "--nnodes": "2", "--node-rank": "$(LWS_WORKER_INDEX)", "--master-addr": "$(LWS_LEADER_ADDRESS)",
    }  # fmt: skip


def test_sglang_has_the_same_arguments_on_each_node() -> None:
    found = launch(EngineKind.SGLANG, 2)
    assert found.worker_args == found.args
    assert flag(found.args, "--nnodes") == "2"
    assert flag(found.args, "--node-rank") == "$(LWS_WORKER_INDEX)"
    assert flag(found.args, "--dist-init-addr") == "$(LWS_LEADER_ADDRESS):20000"


def test_simulator_workers_follow_the_leader() -> None:
    assert launch(EngineKind.SIMULATOR, 2).worker_args == (
        "simulate", "--follow", "http://$(LWS_LEADER_ADDRESS):8000",
    )  # fmt: skip


@pytest.mark.parametrize("kind", MULTI_NODE_ENGINES)
def test_a_single_node_launch_has_no_multi_node_arguments(kind: EngineKind) -> None:
    found = launch(kind, 1)
    assert found.worker_args is None
    assert not [argument for argument in found.args if "LWS" in argument or "nnodes" in argument]


@pytest.mark.parametrize("kind", [kind for kind in SINGLE_NODE_ENGINES if kind is not EngineKind.EXTERNAL])
def test_a_single_node_engine_is_rejected_with_the_reason(kind: EngineKind) -> None:
    with pytest.raises(
        InvalidSpec,
        match=r"spec\.placement\.nodes: .* is only supported on one node: .*set it to 1, or use engine vllm",
    ):
        expand(run_of({**MANY, "spec.engine": {"kind": kind.value}}))


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        (EngineKind.VLLM, ["--nnodes=3"]),
        (EngineKind.VLLM, ["-n", "2"]),
        (EngineKind.VLLM, ["--headless"]),
        (EngineKind.SGLANG, ["--node-rank", "1"]),
        (EngineKind.SGLANG, ["--nccl-init-addr=x:1"]),
        (EngineKind.SIMULATOR, ["--follow=http://x:1"]),
    ],
)
def test_rejects_multi_node_flags_in_engine_args(kind: EngineKind, args: list[str]) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.engine\.args\[0\]"):
        expand(run_of({**MANY, "spec.engine": {"kind": kind.value, "args": args}}))


def test_tensor_parallel_size_may_span_the_gpus_of_all_nodes_but_not_more() -> None:
    engine = {"kind": "vllm", "tensorParallelSize": 16}
    assert expand(run_of({**MANY, "spec.engine": engine})).points
    with pytest.raises(InvalidSpec, match="times nodes"):
        run_of({**MANY, "spec.engine": {**engine, "tensorParallelSize": 17}})


@pytest.mark.parametrize(
    ("kind", "size", "args", "expected"),
    [
        ("vllm", 1, [], "1 processes (tensorParallelSize × --pipeline-parallel-size × --data-parallel-size"),
        ("vllm", 3, [], "3 processes (tensorParallelSize"),
        ("vllm", 3, ["-pp", "2"], ""),
        ("vllm", 1, ["--data-parallel-size=2"], ""),
        ("vllm", 1, ["--prefill_context_parallel_size=3"], "3 processes"),
        ("sglang", 1, [], "1 processes (tensorParallelSize × --pp-size)"),
        ("sglang", 3, [], "3 processes"),
        ("sglang", 3, ["--pipeline-parallel-size", "2"], ""),
    ],
)
def test_processes_that_cannot_be_divided_among_the_nodes_are_rejected(
    kind: str, size: int, args: list[str], expected: str
) -> None:
    run = run_of({**MANY, "spec.engine": {"kind": kind, "tensorParallelSize": size, "args": args}})
    if not expected:
        assert expand(run).points
        return
    with pytest.raises(InvalidSpec) as rejected:
        expand(run)
    (problem,) = map(str, rejected.value.problems)
    assert problem.startswith(f"spec.placement.nodes: {expected}")
    assert problem.endswith(
        "cannot be divided evenly among 2 nodes (set spec.engine.tensorParallelSize to a multiple of 2)"
    )
