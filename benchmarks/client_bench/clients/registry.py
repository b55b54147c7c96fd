"""All clients, and the peers' environments."""

from __future__ import annotations

from client_bench.clients.aiperf import Aiperf
from client_bench.clients.client import Client
from client_bench.clients.guidellm import Guidellm
from client_bench.clients.ours import Specbench
from client_bench.clients.sglang import SglangBench
from client_bench.clients.venv import Venv
from client_bench.clients.vllm import VllmBench

CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (Specbench(), SglangBench(), VllmBench(), Aiperf(), Guidellm(), Specbench("specbench-2", workers=2))
}
MAIN = [name for name in CLIENTS if name != "specbench-2"]
"""The clients compared by default. specbench-2 measures the cost of a second worker: both share the core."""
PY_SPY = Venv("py_spy", "0.4.3")
"""The profiler."""
VENVS = {
    "sglang": SglangBench.venv, "vllm": VllmBench.venv, "aiperf": Aiperf.venv, "guidellm": Guidellm.venv,
    "py-spy": PY_SPY,
}  # fmt: skip
