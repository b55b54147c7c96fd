"""vLLM's HTTP, as recorded from vLLM 0.32 and read in 0.33: bodies in, streams out, the Prometheus page."""

from __future__ import annotations

from collections.abc import Mapping

from specbench_client.simulator.ask import Ask, Kind
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.engine import Engine
from specbench_client.simulator.vllm.body import read_body
from specbench_client.simulator.vllm.metrics import render_metrics
from specbench_client.simulator.vllm.wire import ChatWire, CompletionWire, VllmWire


class VllmDialect:
    """The dialect's three methods (``simulator.dialect.Dialect``)."""

    paths: Mapping[str, Kind] = {"/v1/chat/completions": Kind.CHAT, "/v1/completions": Kind.COMPLETION}

    def __init__(self, config: SimulatorConfig) -> None:
        self._config = config

    def read(self, kind: Kind, body: bytes, request_id: str, received_ns: int) -> Ask:
        return read_body(self._config, kind, body, request_id, received_ns)

    def wire(self, ask: Ask) -> VllmWire:
        return (ChatWire if ask.kind is Kind.CHAT else CompletionWire)(self._config, ask)

    def scrape(self, engine: Engine) -> str:
        return render_metrics(engine)
