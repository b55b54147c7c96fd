"""hack/gpu-check: shapes, budget, specs, requirements, results and page. Nothing is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_check.page import render_page
from gpu_check.requirements import (
    IN_TORCH_IMAGES,
    BundleError,
    pinned,
    pins_for,
    unpack,
)
from gpu_check.results import arm_row, cell_row, complete_lines, memory_samples, stored_points
from gpu_check.steps import (
    DRAFTERS,
    LLAMA_1B,
    LLAMA_8B,
    RATIOS,
    EngineSetup,
    Step,
    corrected_ratio,
    fitting_repeats,
    llama_cpp_step,
    run_of,
    steps_of,
)
from specbench_api.outcome import layout
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.parsing import read_run
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import SyntheticRun

PATHS = {"target": "/models/target", "truncated": "/models/truncated", "medusa": "/models/heads.safetensors"}
ENGINE = EngineSetup("/usr/bin/python3", "/site:/client", "cuda")


def test_shapes_have_the_published_numbers_of_parameters() -> None:
    assert LLAMA_1B.parameters() == 1_235_814_400
    assert LLAMA_8B.parameters() == 8_030_261_248
    assert LLAMA_8B.parameters(0) == 2 * 128_256 * 4096 + 4096
    layer = (LLAMA_8B.parameters() - LLAMA_8B.parameters(0)) // LLAMA_8B.layers
    assert LLAMA_8B.parameters(4) == LLAMA_8B.parameters(0) + 4 * layer


@pytest.mark.parametrize("cpu", [False, True])
def test_all_steps_together_need_every_drafter_and_1_to_64_streams(cpu: bool) -> None:
    steps = steps_of(cpu=cpu)
    assert {arm for step in steps for arm in step.arms} == set(DRAFTERS)
    assert steps[0].arms == tuple(DRAFTERS), "the first step is the most valuable"
    assert {level for step in steps for level in step.levels} == {1, 8, 64}
    assert {step.dtype for step in steps} == {"bfloat16", "float32"}


def main_step() -> Step:
    return steps_of(cpu=False)[0]


def test_fewer_repeats_are_planned_if_the_time_is_short_and_none_if_it_is_too_short() -> None:
    step = main_step()
    for repeats in (1, 2, 3):
        assert fitting_repeats(step, step.estimated_s(repeats, built=True), 1.0, built=True) == repeats
    assert fitting_repeats(step, step.estimated_s(1, built=True) - 1, 1.0, built=True) == 0
    assert fitting_repeats(step, step.estimated_s(3, built=True) / 2, 0.5, built=True) == 3, "a faster machine"
    assert fitting_repeats(step, 520, 1.0, built=False) == 3, "the default budget"


def test_the_correction_by_measured_times_is_limited() -> None:
    assert corrected_ratio(30, 60) == 0.5
    assert corrected_ratio(1, 1000) == RATIOS[0]
    assert corrected_ratio(1000, 1) == RATIOS[1]


def planned(step: Step, repeats: int, engine: EngineSetup = ENGINE) -> Plan:
    document = yaml.safe_dump(run_of(step, repeats, PATHS, engine, "prompts.jsonl"))
    return expand(read_run(document))


@pytest.mark.parametrize("cpu", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_every_step_is_a_valid_run_with_all_its_points(number: int, cpu: bool) -> None:
    step = steps_of(cpu=cpu)[number]
    plan = planned(step, step.repeats)
    assert [arm.name for arm in plan.arms] == ["none", *step.arms]
    assert len(plan.points) == (len(step.arms) + 1) * len(step.levels) * step.repeats


def test_the_engine_is_started_on_the_gpu_in_the_steps_dtype_with_the_drafters_models() -> None:
    spec = run_of(main_step(), 3, PATHS, ENGINE, "prompts.jsonl")["spec"]
    assert {"--device=cuda", "--dtype=bfloat16"} <= set(spec["engine"]["args"])
    assert spec["engine"]["command"][0] == ENGINE.python
    assert {one["name"]: one.get("model") for one in spec["drafters"]} == {
        "ngram": None,
        "truncated": PATHS["truncated"],
        "medusa": PATHS["medusa"],
    }
    assert spec["load"]["order"] == "Interleaved"


def test_llama_cpp_is_measured_with_the_compiled_server_or_the_prebuilt_one() -> None:
    step = llama_cpp_step(cpu=False)
    plan = planned(step, 1, replace(ENGINE, llama_server="/build/bin/llama-server"))
    assert plan.engine.command == ["/build/bin/llama-server"]
    assert {"--gpu-layers=999", "--ctx-size=8192"} <= set(plan.engine.args)
    assert planned(step, 1).engine.command is None


def test_the_wheels_are_the_images_pins_without_what_torch_images_have() -> None:
    pins = pins_for("3.12", IN_TORCH_IMAGES, pinned())
    names = {pin.partition("==")[0] for pin in pins}
    assert {"pydantic", "pydantic-core", "orjson", "httptools", "transformers", "boto3"} <= names
    assert not names & {"torch", "numpy", "pandas", "triton", "nvidia-cublas", "cuda-toolkit", "colorama", "datasets"}
    assert all(" --hash=sha256:" in pin and ";" not in pin for pin in pins)


def test_pins_are_those_of_the_other_machines_python() -> None:
    text = "numpy==2.4.6 ; python_full_version < '3.12' \\\n    --hash=sha256:a\nnumpy==2.5.5 ; python_full_version >= '3.12' \\\n    --hash=sha256:b \\\n    --hash=sha256:c\n    # via us\n"  # noqa: E501
    assert pins_for("3.11", (), text) == ["numpy==2.4.6 --hash=sha256:a"]
    assert pins_for("3.12", (), text) == ["numpy==2.5.5 --hash=sha256:b --hash=sha256:c"]


def test_wheels_of_another_python_are_refused(tmp_path: Path) -> None:
    (tmp_path / "orjson-3.13.0-cp39-cp39-manylinux_2_17_x86_64.whl").write_bytes(b"")
    with pytest.raises(BundleError, match=r"hack/gpu-check bundle --python 3\.\d+"):
        unpack(tmp_path, tmp_path / "site")


SAMPLES = """\
timestamp, uuid, memory.used [MiB]
2026/11/26 12:00:00.000, GPU-0, 600 MiB
2026/11/26 12:00:10.500, GPU-0, 5321 MiB
2026/11/26 12:00:20.000, GPU-0, [N/A]
2026/11/26 12:00:3"""


def test_memory_is_the_most_while_the_arm_was_measured() -> None:
    samples = list(memory_samples(complete_lines(SAMPLES)))
    began = samples[0][0]
    assert [(round(at_s - began, 1), mib) for at_s, mib in samples] == [(0.0, 600.0), (10.5, 5321.0)]
    environment = {"arm": "ngram", "facts": {"weights_bytes": {"value": 7}}}
    counters = {"outputTokens": 176, "draftedTokens": 165, "acceptedTokens": 110}
    point = {"summary": {"counters": counters, "clientHealth": {"loopLagP99Ms": 1.5}}, "began_s": began + 5}
    point |= {"records": []}

    row = arm_row(environment, [{**point, "ended_s": began + 12}, {**point, "ended_s": began + 6}], samples)
    assert (row["peak_mib"], row["weights_bytes"], row["torch_bytes"]) == (5321.0, 7, None)
    assert row["engine"] == {"output": 352, "drafted": 330, "accepted": 220}
    assert row["loop_lag_p99_ms"] == 1.5

    outside = arm_row(environment, [{**point, "ended_s": began + 6}], samples)
    assert outside["peak_mib"] is None


def test_the_clients_counts_are_the_sums_of_its_records(tmp_path: Path) -> None:
    world = SyntheticRun(prompts=4, concurrency=(1,), repeats=2)
    plan = store_results(world, tmp_path, "01J9ZQ6M1M0000000000000000")
    records = [world.records(point) for point in plan.points if point.arm == "ngram"]
    frames = [frame[frame["phase"] != "warmup"] for frame in records]
    points = [
        point
        for point in stored_points(tmp_path / layout.run_root(plan.namespace, plan.name, plan.uid))
        if point["summary"]["arm"] == "ngram"
    ]
    assert (len(points), len(frames)) == (2, 2)
    row = arm_row({"arm": "ngram", "facts": {}}, points, [])
    columns = {"output": "output_tokens", "drafted": "drafted_tokens", "accepted": "accepted_tokens"}
    assert row["client"] == {
        name: sum(int(frame[column].sum()) for frame in frames) for name, column in columns.items()
    }
    assert row["client"]["accepted"] > 0
    assert all(len(frame) < len(whole) for frame, whole in zip(frames, records, strict=True))


def evidence(**changed: Any) -> dict[str, Any]:
    cell = {
        "arm": "ngram", "level": {"concurrency": 8}, "counts": {"requests": 10, "failedRequests": 1},
        "speedup": {"value": 1.5, "interval": {"low": 1.25, "high": 1.75}},
        "figures": {
            "acceptance_length_emitted_pooled": {"value": 2.5}, "acceptance_rate": {"value": 0.5},
            "step_ms_p50": {"value": 12.345},
        },
    }  # fmt: skip
    arm = {
        "arm": "ngram", "weights_bytes": 3 << 20, "drafter_weights_bytes": 0, "torch_bytes": None, "peak_mib": 5321.0,
        "client": {"output": 1760, "drafted": 165, "accepted": 110},
        "engine": {"output": 1760, "drafted": 165, "accepted": 111}, "loop_lag_p99_ms": 1.5, "coalesced_share": 0.0,
    }  # fmt: skip
    finding = {"check": "TooFewRepeats", "severity": "Warning", "arm": None, "load": None, "message": "one repeat"}
    result = {
        "headline": "ngram is faster", "trustworthy": False, "points": "8 of 8", "cells": [cell_row(cell)],
        "arms": [arm], "findings": [finding],
    }  # fmt: skip
    step = {"title": "Every drafter", "shows": "step times", "shape": "Llama 3.2 1B", "dtype": "bfloat16",
            "repeats": 3, "max_tokens": 48, "estimated_s": 300.0}  # fmt: skip
    return {
        "device": "cuda", "date": "2026-11-26", "commit": "f5c18c00", "command": "hack/gpu-check", "budget_s": 540.0,
        "used_s": 400.0, "machine": {"GPU": "NVIDIA H100 80GB HBM3", "torch": "2.11.0"}, "models": [],
        "steps": [
            {**step, "status": "Done", "seconds": 280.0, "result": result},
            {**step, "title": "A larger target", "status": "Skipped", "reason": "200 s needed, 90 s left"},
        ],
        **changed,
    }  # fmt: skip


def test_the_page_has_machine_figures_verdict_and_findings() -> None:
    page = render_page(evidence())
    assert page.startswith("# First GPU evidence\n")
    for line in (
        "| GPU | NVIDIA H100 80GB HBM3 |",
        "| ngram | 8 | 1.50 [1.25, 1.75] | 2.50 | 50% | 12.35 | – | – | – | – | 1 of 10 |",
        "| ngram | 3.0 | 0.0 | – | 5,321 | 1,760 | 165 | 110 / 111 | 1.5 | 0% |",
        "Verdict: **not trustworthy**; 8 of 8 points measured.",
        "- Warning, TooFewRepeats: one repeat",
        "State: skipped: 200 s needed, 90 s left.",
        "Budget: 540 s; used: 400 s.",
    ):
        assert line in page.splitlines()
    trial = render_page(evidence(device="cpu", machine={}, steps=[]))
    assert trial.startswith("# Trial of the GPU check on a CPU\n"), "also before anything is measured"


@pytest.mark.parametrize(
    ("client", "engine", "text"), [(None, None, "–"), (None, 0, "–"), (7, 7, "7"), (7, None, "7 / –"), (7, 8, "7 / 8")]
)
def test_equal_token_counts_are_shown_once(client: int | None, engine: int | None, text: str) -> None:
    given = evidence()
    (arm,) = given["steps"][0]["result"]["arms"]
    arm["client"]["drafted"], arm["engine"]["drafted"] = client, engine
    assert f"| 1,760 | {text} | 110 / 111 |" in render_page(given)
