"""A prior for the speed of an engine that was never measured: from the model's size and the GPU's class.

    seconds of a decode step = weights in bytes / (GPUs × memory bandwidth × efficiency) + fixed overhead
                             + batch × 2 × active parameters / (GPUs × FLOPS × efficiency)
    seconds of a prompt token = 2 × active parameters / (GPUs × FLOPS × efficiency)

This is the roofline of a decoder, without attention and communication: the efficiencies are wide ranges. It is good for
the cost of a run, and for nothing else: no measured figure is compared with it. The expected efficiencies are those of
published measurements of Llama-3.1-8B on A100 and H100, which `tests/test_client/test_gpu_hours.py` lists.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from specbench_client.documents.assumptions import AssumedRange, Assumptions


@dataclass(frozen=True)
class Span:
    """A plausible range of a positive quantity, with the expected value."""

    low: float
    expected: float
    high: float

    @staticmethod
    def of(assumed: AssumedRange) -> Span:
        """Return the range of an assumption."""
        return Span(assumed.low, assumed.expected, assumed.high)

    @staticmethod
    def exactly(value: float) -> Span:
        """Return a range without width."""
        return Span(value, value, value)

    def __add__(self, other: Span) -> Span:
        """Return the sum of two quantities that are high together, as two points of the same engine are."""
        return Span(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def scaled(self, factor: float) -> Span:
        """Return the range times a positive number."""
        return Span(self.low * factor, self.expected * factor, self.high * factor)

    def times(self, other: Span) -> Span:
        """Return the product of two independent quantities.

        Their distances from the expected value, in logarithms, add in quadrature: both are rarely extreme at once.
        """
        expected = self.expected * other.expected
        low = math.hypot(_log(self.expected, self.low), _log(other.expected, other.low))
        high = math.hypot(_log(self.high, self.expected), _log(other.high, other.expected))
        return Span(expected * math.exp(-low), expected, expected * math.exp(high))

    def inverse(self) -> Span:
        """Return the range of 1 over the quantity."""
        return Span(1 / self.high, 1 / self.expected, 1 / self.low)


def _log(larger: float, smaller: float) -> float:
    return math.log(larger / smaller) if smaller > 0 else 0.0


@dataclass(frozen=True)
class GpuClass:
    """Data sheet of a GPU: memory bandwidth in TB/s, and dense BF16 (FP16 where it has no BF16) TFLOPS."""

    name: str
    memory_tb_s: float
    tflops: float


GPU_CLASSES = (
    GpuClass("B200", 8.0, 2250),
    GpuClass("GH200", 4.0, 989),
    GpuClass("H200", 4.8, 989),
    GpuClass("H100 PCIe", 2.0, 756),
    GpuClass("H100 NVL", 3.9, 835),
    GpuClass("H100", 3.35, 989),
    GpuClass("A100 40GB", 1.555, 312),
    GpuClass("A100", 2.0, 312),
    GpuClass("MI300X", 5.3, 1307),
    GpuClass("L40S", 0.864, 362),
    GpuClass("A10", 0.6, 125),
    GpuClass("RTX 4090", 1.008, 165),
    GpuClass("L4", 0.3, 121),
    GpuClass("V100", 0.9, 125),
    GpuClass("T4", 0.32, 65),
)
"""From the data sheets of NVIDIA and AMD, with dense (not sparse) FLOPS. The more specific name is first."""
UNKNOWN_MEMORY_TB_S = Span(0.3, 2.0, 8.0)
"""Memory bandwidth of an unknown GPU: from L4 to B200, expected an A100."""
UNKNOWN_TFLOPS = Span(121, 312, 2250)
UNKNOWN_PARAMETERS_B = Span(1, 8, 70)
"""Billions of parameters of a model whose name has no size."""
STEP_OVERHEAD_S = Span(0.0003, 0.001, 0.01)
"""Seconds of a step beside the weights: scheduling, sampling, kernel launches. It dominates for models below 1B."""


def gpu_class(product: str | None) -> GpuClass | None:
    """Return the class of a product such as `NVIDIA-A100-SXM4-80GB`; None if it is not in the table."""
    words = set(re.split(r"[^a-z0-9]+", (product or "").lower().replace("a10g", "a10")))
    return next((each for each in GPU_CLASSES if set(each.name.lower().split()) <= words), None)


_EXPERTS = re.compile(r"(?<![\w.])(\d+)x(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.IGNORECASE)
_ACTIVE = re.compile(r"(?<![a-z0-9.])a(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)
_EXPERTS_SHARED = 0.84
"""Parameters of a `NxMB` mixture over N × M: Mixtral-8x7B has 46.7B of 56."""
_EXPERTS_ACTIVE = 2
"""Experts that one token uses in a `NxMB` mixture."""


def model_parameters_b(name: str) -> tuple[float, float] | None:
    """Return the billions of all and of active parameters from a model's name; None if it has no size."""
    experts = _EXPERTS.search(name)
    if experts:
        each = float(experts[2])
        return int(experts[1]) * each * _EXPERTS_SHARED, _EXPERTS_ACTIVE * each * _EXPERTS_SHARED
    size, active = _SIZE.search(name), _ACTIVE.search(name)
    if size is None:
        return None
    every = float(size[1]) / (1 if size[2].lower() == "b" else 1000)
    return every, min(float(active[1]), every) if active else every


_QUANTIZED = (
    (0.55, re.compile(r"awq|gptq|int4|w4a16|nvfp4|mxfp4|fp4|q4_|4[-_]?bit|gpt-oss", re.IGNORECASE)),
    (1.05, re.compile(r"fp8|int8|w8a8|q8_|8[-_]?bit", re.IGNORECASE)),
)
"""Bytes per parameter, with scales, and what in a name or an argument means them."""
_BYTES_UNQUANTIZED = 2.0


def bytes_per_parameter(text: str) -> float:
    """Return the bytes of one weight. `text`: the model's name and the engine's arguments."""
    return next((size for size, pattern in _QUANTIZED if pattern.search(text)), _BYTES_UNQUANTIZED)


@dataclass(frozen=True)
class DecodeSpeed:
    """Speed of one engine without a drafter, in seconds, and in words what it is derived from."""

    step_fixed: Span
    step_per_request: Span
    prompt_token: Span
    words: str

    def step(self, batch: float) -> Span:
        """Return the seconds of a decode step of this many requests."""
        return self.step_fixed + self.step_per_request.scaled(batch)


def decode_speed(model: str, arguments: str, product: str | None, gpus: int, assumed: Assumptions) -> DecodeSpeed:
    """Return the prior speed of an engine on `gpus` GPUs. `arguments`: the engine's, for its quantisation."""
    hardware = gpu_class(assumed.gpu or product)
    memory = Span.exactly(hardware.memory_tb_s) if hardware else UNKNOWN_MEMORY_TB_S
    flops = Span.exactly(hardware.tflops) if hardware else UNKNOWN_TFLOPS
    size = model_parameters_b(model)
    every, active = (Span.exactly(size[0]), Span.exactly(size[1])) if size else (UNKNOWN_PARAMETERS_B,) * 2
    if assumed.model_parameters_b is not None:
        every = active = Span.exactly(assumed.model_parameters_b)
    if assumed.active_parameters_b is not None:
        active = Span.exactly(assumed.active_parameters_b)
    width = assumed.bytes_per_parameter or bytes_per_parameter(f"{model} {arguments}")
    # Billions of bytes over TB/s are milliseconds; billions of operations over TFLOPS too.
    reading, computing = Span.of(assumed.memory_efficiency), Span.of(assumed.compute_efficiency)
    weights = every.scaled(width / 1000 / gpus).times(memory.times(reading).inverse())
    token = active.scaled(2 / 1000 / gpus).times(flops.times(computing).inverse())
    if active.expected < every.expected:  # a small batch reads only its experts
        weights = Span(weights.low * active.expected / every.expected, weights.expected, weights.high)
    fixed, each = weights + STEP_OVERHEAD_S, token
    known = hardware.name if hardware else "an unknown GPU (give --assume gpu=H100)"
    sized = "a model of unknown size (give --assume modelParametersB=8)"
    if size or assumed.model_parameters_b:
        sized = f"{every.expected:.3g}B parameters"
    words = f"{sized} at {width:g} bytes each on {gpus} x {known}"
    if assumed.stream_tokens_per_second is not None:
        fixed, words = Span.of(assumed.stream_tokens_per_second).inverse(), "the assumed streamTokensPerSecond"
    if assumed.engine_tokens_per_second is not None:
        each = Span.of(assumed.engine_tokens_per_second).inverse()
    return DecodeSpeed(fixed, each, token, words)
