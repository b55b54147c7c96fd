"""The configuration of the simulated engine.

The step-cost model is linear, so that the correct result of every comparison can be computed by hand. By default,
a baseline step takes about 5 ms for one stream, and verification gets more expensive as the batch grows: speculation
pays at low load and does not at high load, as on real hardware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from specbench_client.simulator.errors import ConfigError
from specbench_client.simulator.faults import Faults
from specbench_client.simulator.speculation import AcceptanceProbabilities, SimulatedDrafter

MODEL_NAME = "simulated"
VERSION = "simulated-0.1.0"


@dataclass(frozen=True, slots=True)
class StepLoad:
    """The work of one batch step."""

    batch_tokens: int
    kv_tokens: int
    draft_depth: int
    prefill_tokens: int


@dataclass(frozen=True, slots=True)
class SimulatedStepCost:
    """Milliseconds of one step: base + a·batch tokens + b·KV tokens + c·draft depth + d·prefill tokens.

    Batch tokens are the tokens to verify: the sum of drafted + 1 over running requests. Draft depth is the largest
    number of draft tokens of any request in the step: a drafter proposes for the whole batch at once, one pass per
    position.
    """

    base_ms: float = 4.8
    per_token_ms: float = 0.1
    per_kv_ms: float = 0.0005
    per_draft_ms: float = 0.0
    per_prefill_ms: float = 0.05

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 0:
                raise ConfigError(f"step cost {name} is {getattr(self, name)}: a cost must be 0 or more")

    def milliseconds(self, load: StepLoad) -> float:
        return (
            self.base_ms
            + self.per_token_ms * load.batch_tokens
            + self.per_kv_ms * load.kv_tokens
            + self.per_draft_ms * load.draft_depth
            + self.per_prefill_ms * load.prefill_tokens
        )


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """One simulated engine. ``time_scale`` multiplies the duration of every step; with 0 nothing waits."""

    seed: int = 0
    drafter: SimulatedDrafter = field(default_factory=SimulatedDrafter)
    acceptance: AcceptanceProbabilities = field(default_factory=AcceptanceProbabilities)
    cost: SimulatedStepCost = field(default_factory=SimulatedStepCost)
    faults: Faults = field(default_factory=Faults)
    max_num_seqs: int = 256
    max_model_len: int = 32768
    prefix_cache_tokens: int = 0
    """Capacity of the prefix cache; 0: none."""
    output_mean_tokens: float = 128.0
    time_scale: float = 1.0
    spec_detail: str = "detailed"
    served_model_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1 or self.max_model_len < 2 or self.output_mean_tokens < 1:
            raise ConfigError("--max-num-seqs must be at least 1, --max-model-len at least 2, --output-mean at least 1")
        if self.time_scale < 0:
            raise ConfigError(
                f"--time-scale {self.time_scale}: give 0 or more (1: real time, 0.1: ten times faster, 0: no waiting)"
            )

    @property
    def model_names(self) -> tuple[str, ...]:
        """Model names that requests may use; answers always name ``simulated``."""
        return (MODEL_NAME, *self.served_model_names)

    @property
    def kv_room_tokens(self) -> int:
        """The cache that the engine claims to have: room for every request at full length."""
        return self.max_num_seqs * self.max_model_len

    @property
    def fingerprint(self) -> str:
        """A short hash of the whole configuration, to identify the engine that answered."""
        return f"{VERSION}-{sha256(repr(self).encode()).hexdigest()[:8]}"
