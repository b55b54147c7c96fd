"""The estimate of a plan's hours: units, monotony, published speeds, and measured durations within its range."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import Budget
from specbench_client.analysis.decision.decode_speed import (
    DecodeSpeed,
    Span,
    bytes_per_parameter,
    decode_speed,
    gpu_class,
    model_parameters_b,
)
from specbench_client.analysis.decision.gpu_hours import (
    DurationBasis,
    HoursEstimate,
    MeasuredDurations,
    PointDuration,
    PromptSizes,
    estimate_hours,
    parallel_arms,
)
from specbench_client.documents.assumptions import AssumedRange, Assumptions
from specbench_testing.resources import external_engine, run_of

BUDGET = Budget(launch_seconds=100, point_seconds=10)
EXACT = Assumptions(
    answer_share=AssumedRange(low=1, expected=1, high=1), speed_up=AssumedRange(low=2, expected=2, high=2)
)
TEN_MS = DecodeSpeed(Span.exactly(0.010), Span.exactly(0), Span.exactly(0), "ten milliseconds a step")


def plan(load: dict[str, Any], gpus: int = 1, **edits: Any) -> Plan:
    return expand(run_of({"spec.load": load, "spec.placement": {"gpus": gpus}, **edits}))


def estimated(planned: Plan, **given: Any) -> HoursEstimate:
    rest = {"budget": BUDGET, "prompts": {}, **given}
    return estimate_hours(planned, rest.pop("speed", TEN_MS), rest.pop("assumed", EXACT), **rest)


COUNTED = {"concurrency": [4], "repeats": 1, "requests": 40, "warmupRequests": 0}


def test_seconds_are_requests_by_tokens_by_step_over_batch_and_gpu_hours_count_every_gpu() -> None:
    planned = plan(COUNTED, gpus=3)
    arms = len(planned.arms)
    longest = planned.workloads[0].output.max_tokens
    found = estimated(planned)
    baseline = 40 * longest * 0.010 / 4
    expected = arms * 100 + baseline + (arms - 1) * baseline / 2
    assert found.engine_seconds.expected == pytest.approx(expected)
    assert found.engine_hours.expected == pytest.approx(expected / 3600)
    assert found.gpu_hours.expected == pytest.approx(3 * expected / 3600)
    assert found.bases == {DurationBasis.PRIOR: arms}


def test_warmup_is_part_of_each_launch() -> None:
    without, with_warmup = (estimated(plan({**COUNTED, "warmupRequests": count})) for count in (0, 8))
    longest = plan(COUNTED).workloads[0].output.max_tokens
    assert with_warmup.engine_seconds.expected - without.engine_seconds.expected == pytest.approx(
        (1 + 1 / 2) * 1.5 * 8 * longest * 0.010 / 4
    )


@pytest.mark.parametrize(
    ("load", "basis"),
    [
        ({"concurrency": [4], "repeats": 1, "durationSeconds": 60}, DurationBasis.LOAD),
        ({"rate": [2], "slots": 4, "repeats": 1, "requests": 120}, DurationBasis.LOAD),
        ({"concurrency": [4], "repeats": 1}, DurationBasis.ASSUMED),
    ],
    ids=str,
)
def test_a_points_seconds_follow_from_its_load_or_are_assumed(load: dict[str, Any], basis: DurationBasis) -> None:
    planned = plan({**load, "warmupRequests": 0})
    found = estimated(planned)
    assert found.bases == {basis: len(planned.points)}
    points = found.engine_seconds.low - found.launches * found.launch_seconds.low
    assert points == pytest.approx(len(planned.points) * (60 if basis is DurationBasis.LOAD else 0.2 * 10))


def test_a_running_endpoint_is_not_launched() -> None:
    served = plan(COUNTED).model_copy(update={"engine": external_engine()})
    points = estimated(plan(COUNTED)).engine_seconds.expected - len(plan(COUNTED).groups) * 100
    assert estimated(served).engine_seconds.expected == pytest.approx(points)


def test_an_overloaded_engine_takes_longer_than_its_arrivals() -> None:
    crowded = plan({"rate": [100], "slots": 1, "repeats": 1, "requests": 1000, "warmupRequests": 0})
    longest = crowded.workloads[0].output.max_tokens
    assert estimated(crowded).engine_seconds.high > 1000 * longest * 0.010


def test_measured_points_and_finished_launches_cost_nothing() -> None:
    planned = plan({**COUNTED, "repeats": 2, "order": "Sequential"})
    group = planned.groups[0]
    left = estimated(planned, done={point.hash for point in group.points})
    assert (left.launches, left.points) == (len(planned.groups) - 1, len(planned.points) - len(group.points))
    nothing = estimated(planned, done={point.hash for point in planned.points})
    assert nothing.engine_seconds == Span.exactly(0)


def measured(planned: Plan, seconds: float, *, repeat_of: bool, **changes: Any) -> MeasuredDurations:
    """The plan's first point, measured; `changes` replace its fields."""
    point = planned.points[0]
    known = {
        "arm": point.arm, "workload": point.workload, "level": point.level, "requests": 40,
        "max_tokens": planned.workloads[0].output.max_tokens,
    }  # fmt: skip
    return MeasuredDurations([PointDuration(**{**known, **changes}, seconds=seconds, repeat_of=repeat_of)], [50.0])


def test_an_earlier_repeat_of_the_same_point_is_preferred_and_launches_are_learnt() -> None:
    planned = plan({**COUNTED, "repeats": 3})
    found = estimated(planned, measured=measured(planned, 70.0, repeat_of=True), speed=None)
    same = [point for point in planned.points if point.arm == planned.points[0].arm]
    assert found.bases[DurationBasis.SAME_POINT] == len(same)
    assert found.launch_seconds == Span(40, 50, pytest.approx(62.5))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "factor"),
    [({}, 1), ({"requests": 20}, 2), ({"max_tokens": 1}, None), ({"workload": "other"}, 1)],
    ids=str,
)
def test_a_similar_point_is_scaled_to_the_planned_requests(changes: dict[str, Any], factor: float | None) -> None:
    planned = plan(COUNTED)
    learnt = estimated(planned, measured=measured(planned, 70.0, repeat_of=False, **changes), speed=None)
    longest = planned.workloads[0].output.max_tokens
    first = 70.0 * (longest if factor is None else factor)
    others = (len(planned.arms) - 1) * first / 2
    assert learnt.bases == {DurationBasis.SIMILAR_POINT: len(planned.points)}
    points = learnt.engine_seconds.expected - learnt.launches * 50
    assert points == pytest.approx(first + others)


def test_each_difference_of_a_similar_point_widens_the_range() -> None:
    planned = plan(COUNTED)
    ranges = [
        estimated(planned, measured=measured(planned, 70.0, repeat_of=False, **changes)).engine_seconds
        for changes in ({}, {"workload": "other"})
    ]
    widths = [each.high / each.low for each in ranges]
    assert widths == sorted(widths)
    assert widths[0] < widths[1]


loads = st.fixed_dictionaries(
    {
        "concurrency": st.integers(1, 64).map(lambda each: [each]),
        "repeats": st.integers(1, 4),
        "requests": st.integers(1, 500),
        "warmupRequests": st.integers(0, 16),
    }
)
GROWTH = {
    "requests": lambda load: {**load, "requests": load["requests"] * 2},
    "repeats": lambda load: {**load, "repeats": load["repeats"] + 1},
    "levels": lambda load: {**load, "concurrency": [load["concurrency"][0], load["concurrency"][0] + 1]},
}


@given(load=loads, what=st.sampled_from(sorted(GROWTH)))
def test_hours_grow_with_requests_repeats_and_levels(load: dict[str, Any], what: str) -> None:
    speed = decode_speed("llama-8B", "", "H100", 1, Assumptions())
    less, more = (
        estimated(plan(each), assumed=Assumptions(), speed=speed).engine_seconds for each in (load, GROWTH[what](load))
    )
    assert 0 < less.low < less.expected < less.high
    assert (less.low, less.expected, less.high) < (more.low, more.expected, more.high)
    assert less.low < more.low
    assert less.high < more.high


@given(tokens=st.integers(1, 4000), prompt=st.floats(1, 4000), gpus=st.integers(1, 8))
def test_hours_grow_with_answers_prompts_and_arms(tokens: int, prompt: float, gpus: int) -> None:
    speed = decode_speed("llama-8B", "", "H100", gpus, Assumptions())

    def seconds(longest: int, mean_tokens: float, drafters: int = 1) -> float:
        drafted = [{"name": f"d{n}", "method": "ngram", "numSpeculativeTokens": 3 + n} for n in range(drafters)]
        planned = plan(COUNTED, gpus, **{"spec.workloads[0].output.maxTokens": longest, "spec.drafters": drafted})
        sizes = {planned.workloads[0].name: PromptSizes([1] * 8, mean_tokens)}
        return estimated(planned, assumed=Assumptions(), speed=speed, prompts=sizes).engine_seconds.expected

    less = seconds(tokens, prompt)
    assert less < min(seconds(tokens + 1, prompt), seconds(tokens, prompt * 2), seconds(tokens, prompt, 2))


# Published speeds: tokens per second of all requests together, without a drafter, in BF16.

PUBLISHED = [
    # vLLM 0.23.0, 1,024 tokens of input: https://johnmusgrave.com/p/vllm-throughput-latency-sweep-on
    ("meta-llama/Llama-3.1-8B-Instruct", "NVIDIA-A100-SXM4-40GB", 1, 75.0),
    ("meta-llama/Llama-3.1-8B-Instruct", "NVIDIA-A100-SXM4-40GB", 8, 6.6 * 75),
    # SGLang, MT-Bench: table of the EAGLE-3 paper, arXiv 2503.01840
    ("meta-llama/Llama-3.1-8B-Instruct", "NVIDIA-H100-80GB-HBM3", 1, 158.3),
    # vLLM, the fit of step times that `published-h100` has, without cached tokens
    ("meta-llama/Llama-3.1-8B-Instruct", "NVIDIA-H100-80GB-HBM3", 32, 32 / (0.005886 + 32 * 21.01e-6 + 0.001207)),
]


@pytest.mark.parametrize(("model", "product", "batch", "tokens_per_second"), PUBLISHED)
def test_published_speeds_are_within_the_prior_and_near_its_expected_value(
    model: str, product: str, batch: int, tokens_per_second: float
) -> None:
    step = decode_speed(model, "", product, 1, Assumptions()).step(batch)
    assert step.low < batch / tokens_per_second < step.high
    assert step.expected == pytest.approx(batch / tokens_per_second, rel=0.25)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", (70, 70)),
        ("Qwen/Qwen3-30B-A3B", (30, 3)),
        ("Qwen/Qwen2.5-0.5B-Instruct", (0.5, 0.5)),
        ("HuggingFaceTB/SmolLM2-135M", (0.135, 0.135)),
        ("mistralai/Mixtral-8x7B-v0.1", (pytest.approx(46.7, rel=0.02), pytest.approx(12.9, rel=0.1))),
        ("openai/gpt-oss-120b", (120, 120)),
        ("deepseek-ai/DeepSeek-V3", None),
    ],
)
def test_size_of_a_model_follows_from_its_name(name: str, size: object) -> None:
    assert model_parameters_b(name) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("Llama-3.1-8B", 2),
        ("Llama-3.3-70B-FP8", 1.05),
        ("Qwen2.5-7B-Instruct-AWQ", 0.55),
        ("a --quantization=fp8", 1.05),
    ],
)
def test_bytes_of_a_weight_follow_from_names_and_arguments(text: str, size: float) -> None:
    assert bytes_per_parameter(text) == size


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("NVIDIA-H100-PCIe", "H100 PCIe"),
        ("NVIDIA-A100-SXM4-80GB", "A100"),
        ("NVIDIA-A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA-GeForce-RTX-4090", "RTX 4090"),
        ("NVIDIA-A10G", "A10"),
        ("h200", "H200"),
        ("Tesla-T4", "T4"),
        ("NVIDIA-A1000", None),
        (None, None),
    ],
)
def test_class_of_a_gpu_follows_from_its_product(product: str | None, name: str | None) -> None:
    found = gpu_class(product)
    assert (found and found.name) == name


def test_an_unknown_gpu_or_model_widens_the_range_around_every_known_one() -> None:
    unknown = decode_speed("mystery", "", None, 1, Assumptions())
    for product in ("B200", "L4"):
        assert unknown.step(1).low < decode_speed("x-8B", "", product, 1, Assumptions()).step(1).expected
        assert unknown.step(1).high > decode_speed("x-8B", "", product, 1, Assumptions()).step(1).expected
    assert "--assume gpu=H100" in unknown.words
    assert "--assume modelParametersB=8" in unknown.words


@pytest.mark.parametrize(("gpus", "idle", "at_once"), [(1, 7, 2), (4, 4, 2), (5, None, None), (8, None, None)], ids=str)
def test_arms_in_parallel_would_divide_the_hours(gpus: int, idle: int | None, at_once: int | None) -> None:
    planned = plan(COUNTED, gpus=gpus)
    found = estimated(planned)
    would = parallel_arms(planned, found, node_gpus=8)
    assert (would and (would.idle_gpus, would.arms_at_once)) == (at_once and (idle, at_once))
    if would is not None:
        assert would.engine_hours == pytest.approx(found.engine_hours.expected / would.arms_at_once)
