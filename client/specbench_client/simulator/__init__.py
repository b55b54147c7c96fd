"""The engine with the known truth: a real HTTP server that imitates an engine with speculative decoding.

It is what the instrument is calibrated against: the acceptance, the step times and every lie are configured, so the
right answer is known beforehand and written to the truth file request by request. Its answers are marked as simulated
wherever an answer can be marked. The core (``process``, ``batch``, ``text``, ``counters``) is pure and runs without a
clock; ``engine`` drives it, ``server`` and a dialect put it on the wire.
"""

from specbench_client.simulator.acceptance import Acceptance, parse_acceptance
from specbench_client.simulator.config import MODEL_NAME, SimulatorConfig, StepCost
from specbench_client.simulator.drafters import HABITS, Drafter, Method, drafter
from specbench_client.simulator.engine import Engine
from specbench_client.simulator.errors import ConfigError, SimulatorError
from specbench_client.simulator.faults import FAULTS, Fault, Faults, describe_faults, parse_faults
from specbench_client.simulator.follower import follow
from specbench_client.simulator.prompts import Categories, read_categories
from specbench_client.simulator.serve import Place, run_simulator, serve
from specbench_client.simulator.server import Server, choose_dialect
from specbench_client.simulator.truth import TruthFile

__all__ = [
    "FAULTS",
    "HABITS",
    "MODEL_NAME",
    "Acceptance",
    "Categories",
    "ConfigError",
    "Drafter",
    "Engine",
    "Fault",
    "Faults",
    "Method",
    "Place",
    "Server",
    "SimulatorConfig",
    "SimulatorError",
    "StepCost",
    "TruthFile",
    "choose_dialect",
    "describe_faults",
    "drafter",
    "follow",
    "parse_acceptance",
    "parse_faults",
    "read_categories",
    "run_simulator",
    "serve",
]
