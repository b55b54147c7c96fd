"""Engines on several nodes: one command line for all of them, and unsupported engines."""

from __future__ import annotations

import pytest

from specbench_api.launch.launcher import LaunchSpec
from specbench_api.launch.registry import SINGLE_NODE_ENGINES
from specbench_api.spec.engine import EngineKind
from specbench_testing.planned_launches import launch_of, refusal_of, refusals_of

MANY = {"spec.placement": {"gpus": 8, "nodes": 2}}
MULTI_NODE_ENGINES = [kind for kind in EngineKind if kind not in SINGLE_NODE_ENGINES]


def launch(kind: str, nodes: int) -> LaunchSpec:
    engine = {"kind": kind, "tensorParallelSize": 8 * nodes}
    return launch_of({"spec.engine": engine, "spec.placement": {"gpus": 8, "nodes": nodes}}, "ngram")


@pytest.mark.parametrize(
    ("kind", "flags", "further"),
    [
        (
            "vllm",
            {"--nnodes": "2", "--node-rank": "$(LWS_WORKER_INDEX)", "--master-addr": "$(LWS_LEADER_ADDRESS)"},
            ("--headless",),
        ),
        (
            "sglang",
            {
                "--nnodes": "2",
                "--node-rank": "$(LWS_WORKER_INDEX)",
                "--dist-init-addr": "$(LWS_LEADER_ADDRESS):20000",
            },
            (),
        ),
    ],
)
def test_each_node_has_the_same_arguments(kind: str, flags: dict[str, str], further: tuple[str, ...]) -> None:
    found = launch(kind, 2)
    assert found.worker_args == (*found.args, *further)
    assert {name: found.args[found.args.index(name) + 1] for name in flags} == flags
    assert "--headless" not in found.args


def test_simulator_workers_follow_the_leader() -> None:
    assert launch("simulator", 2).worker_args == ("simulate", "--follow", "http://$(LWS_LEADER_ADDRESS):8000")


@pytest.mark.parametrize("kind", MULTI_NODE_ENGINES)
def test_a_single_node_launch_has_no_multi_node_arguments(kind: EngineKind) -> None:
    found = launch(str(kind), 1)
    assert found.worker_args is None
    assert not [argument for argument in found.args if "LWS" in argument or "nnodes" in argument]


@pytest.mark.parametrize("kind", [kind for kind in SINGLE_NODE_ENGINES if kind is not EngineKind.EXTERNAL])
def test_a_single_node_engine_is_rejected_with_the_reason(kind: EngineKind) -> None:
    problem = refusal_of({**MANY, "spec.engine": {"kind": str(kind)}})
    assert problem.startswith("spec.placement.nodes: ")
    assert "is only supported on one node: " in problem


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("vllm", ["--nnodes=3"]),
        ("vllm", ["-n", "2"]),
        ("vllm", ["--headless"]),
        ("sglang", ["--node-rank", "1"]),
        ("sglang", ["--nccl-init-addr=x:1"]),
        ("simulator", ["--follow=http://x:1"]),
    ],
)
def test_rejects_multi_node_flags_in_engine_args(kind: str, args: list[str]) -> None:
    assert "spec.engine.args[0]: " in str(refusals_of({**MANY, "spec.engine": {"kind": kind, "args": args}}))


@pytest.mark.parametrize(
    ("kind", "size", "args", "expected"),
    [
        ("vllm", 1, [], "1 processes (tensorParallelSize × --pipeline-parallel-size × --data-parallel-size"),
        ("vllm", 3, [], "3 processes (tensorParallelSize"),
        ("vllm", 1, ["--prefill_context_parallel_size=3"], "3 processes"),
        ("sglang", 1, [], "1 processes (tensorParallelSize × --pp-size)"),
        ("sglang", 3, [], "3 processes"),
    ],
)
def test_processes_that_cannot_be_divided_among_the_nodes_are_rejected(
    kind: str, size: int, args: list[str], expected: str
) -> None:
    edits = {**MANY, "spec.engine": {"kind": kind, "tensorParallelSize": size, "args": args}}
    assert refusal_of(edits).startswith(f"spec.placement.nodes: {expected}")


@pytest.mark.parametrize(
    ("kind", "size", "args"),
    [
        ("vllm", 16, []),
        ("vllm", 3, ["-pp", "2"]),
        ("vllm", 1, ["--data-parallel-size=2"]),
        ("sglang", 3, ["--pipeline-parallel-size", "2"]),
    ],
)
def test_processes_that_can_be_divided_may_span_the_gpus_of_all_nodes(kind: str, size: int, args: list[str]) -> None:
    assert launch_of({**MANY, "spec.engine": {"kind": kind, "tensorParallelSize": size, "args": args}}).worker_args
