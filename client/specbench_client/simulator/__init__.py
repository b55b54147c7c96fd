"""A simulated engine with known results: an HTTP server that imitates an engine with speculative decoding.

The measuring client is calibrated against it. Acceptance, step times and faults are configured, so the correct result
is known in advance and written to the truth file request by request. All responses are marked as simulated. The core
(``speculation``, ``batch``, ``generated_text``) is pure and has no clock; ``engine`` runs it in real time,
and ``server`` with a dialect serves it over HTTP.
"""

from specbench_client.simulator.config import (
    MODEL_NAME,
    PromptCategories,
    SimulatorConfig,
    read_categories,
)
from specbench_client.simulator.engine import SimulatedEngine
from specbench_client.simulator.errors import ConfigError
from specbench_client.simulator.faults import FAULTS, Faults, describe_faults, parse_faults
from specbench_client.simulator.server import (
    SimulatorServer,
    TruthFile,
    choose_dialect,
    follow_leader,
    run_simulator,
)
from specbench_client.simulator.speculation import (
    DRAFTER_PROFILES,
    AcceptanceProbabilities,
    SimulatedDrafter,
    SimulatedMethod,
    make_drafter,
    parse_acceptance,
)
from specbench_client.simulator.step_cost import SimulatedStepCost

__all__ = [
    "DRAFTER_PROFILES",
    "FAULTS",
    "MODEL_NAME",
    "AcceptanceProbabilities",
    "ConfigError",
    "Faults",
    "PromptCategories",
    "SimulatedDrafter",
    "SimulatedEngine",
    "SimulatedMethod",
    "SimulatedStepCost",
    "SimulatorConfig",
    "SimulatorServer",
    "TruthFile",
    "choose_dialect",
    "describe_faults",
    "follow_leader",
    "make_drafter",
    "parse_acceptance",
    "parse_faults",
    "read_categories",
    "run_simulator",
]
