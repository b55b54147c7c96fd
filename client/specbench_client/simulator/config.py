"""Everything the simulated engine is made of, as one frozen value.

The step-cost model is linear on purpose: with a linear model the right answer of every comparison can be computed by
hand, so a wrong instrument has nowhere to hide. The defaults give a baseline step of about 5 ms for one stream, and a
verification that gets dearer as the batch grows: speculation pays at low load and stops paying at high load, as it does
on real hardware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from specbench_client.simulator.acceptance import Acceptance
from specbench_client.simulator.drafters import Drafter
from specbench_client.simulator.errors import ConfigError
from specbench_client.simulator.faults import Faults

MODEL_NAME = "simulated"
VERSION = "simulated-0.1.0"


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What one step of the batch has to compute."""

    batch_tokens: int
    kv_tokens: int
    draft_depth: int
    prefill_tokens: int


@dataclass(frozen=True, slots=True)
class StepCost:
    """Milliseconds of one step: base + a·batch tokens + b·KV tokens + c·draft depth + d·prefill tokens.

    Batch tokens are the tokens in verification: the sum over running requests of drafted + 1. Draft depth is the
    largest number of drafts of any request in the step: a drafter proposes for the whole batch at once, in depth
    passes.
    """

    base_ms: float = 4.8
    per_token_ms: float = 0.1
    per_kv_ms: float = 0.0005
    per_draft_ms: float = 0.0
    per_prefill_ms: float = 0.05

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 0:
                raise ConfigError(f"step cost {name} is {getattr(self, name)}: a cost is not negative")

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
    """One simulated engine. ``time_scale`` multiplies every step's duration; 0 does not wait at all."""

    seed: int = 0
    drafter: Drafter = field(default_factory=Drafter)
    acceptance: Acceptance = field(default_factory=Acceptance)
    cost: StepCost = field(default_factory=StepCost)
    faults: Faults = field(default_factory=Faults)
    max_num_seqs: int = 256
    max_model_len: int = 32768
    output_mean_tokens: float = 128.0
    time_scale: float = 1.0
    spec_detail: str = "detailed"
    served_model_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1 or self.max_model_len < 2 or self.output_mean_tokens < 1:
            raise ConfigError("max-num-seqs is at least 1, max-model-len at least 2, output-mean at least 1")
        if self.time_scale < 0:
            raise ConfigError(f"time scale is {self.time_scale}: 1 is real time, 0.1 ten times faster, 0 no waiting")

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names a request may ask for; the answer always says ``simulated``."""
        return (MODEL_NAME, *self.served_model_names)

    @property
    def fingerprint(self) -> str:
        """Short hash of the whole configuration: which engine answered."""
        return f"{VERSION}-{sha256(repr(self).encode()).hexdigest()[:8]}"
