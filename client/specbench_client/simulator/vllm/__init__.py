"""vLLM's HTTP, as recorded from vLLM 0.32 and read in 0.33: bodies in, streams out, the Prometheus page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_client.simulator.ask import Arrival, Ask, Kind
from specbench_client.simulator.config import VERSION, SimulatorConfig
from specbench_client.simulator.dialect import PROMETHEUS, Page, View, healthy, shown
from specbench_client.simulator.engine import Engine
from specbench_client.simulator.errors import RequestError
from specbench_client.simulator.vllm.body import read_body
from specbench_client.simulator.vllm.metrics import render_metrics
from specbench_client.simulator.vllm.wire import ChatWire, CompletionWire, VllmWire


class VllmDialect:
    """See ``simulator.dialect.Dialect``."""

    paths: Mapping[str, Kind] = {"/v1/chat/completions": Kind.CHAT, "/v1/completions": Kind.COMPLETION}

    commands: Mapping[str, View] = {}

    def __init__(self, config: SimulatorConfig) -> None:
        self._config = config
        self.pages: Mapping[str, View] = {
            "/health": healthy,
            "/v1/models": _models,
            "/version": lambda _engine: shown({"version": VERSION}),
            "/metrics": lambda engine: Page(render_metrics(engine), PROMETHEUS),
        }

    def read(self, arrival: Arrival) -> Ask:
        return read_body(self._config, arrival)

    def wire(self, ask: Ask) -> VllmWire:
        return (ChatWire if ask.kind is Kind.CHAT else CompletionWire)(self._config, ask)

    def error(self, refused: RequestError) -> dict[str, Any]:
        return _error(refused.status, refused.kind, refused.message, refused.param)

    def lost(self, status: int, reason: str) -> dict[str, Any]:
        return _error(status, reason, reason, None)


def _error(status: int, kind: str, message: str, param: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def _models(engine: Engine) -> Page:
    config, created = engine.config, int(engine.counters.created_s)
    about = {"owned_by": "specbench", "root": "simulated", "parent": None, "max_model_len": config.max_model_len}
    names = [{"id": name, "object": "model", "created": created, **about} for name in config.model_names]
    return shown({"object": "list", "data": names})
