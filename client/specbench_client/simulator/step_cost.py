"""How long a step of the simulated engine takes.

The step-cost model is linear, so that the correct result of every comparison can be computed by hand. By default,
a baseline step takes about 5 ms for one stream, and verification gets more expensive as the batch grows: speculation
pays at low load and does not at high load, as on real hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench_client.simulator.errors import ConfigError


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
