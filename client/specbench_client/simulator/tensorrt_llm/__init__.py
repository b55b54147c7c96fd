"""TensorRT-LLM's HTTP. Nothing of it was recorded, and the source of 1.2.1 was not read.

It is known from sources of the 1.2 release candidates: fields and their order, the average of tokens an iteration, the
space after the first chunk of a chat, the usage chunk of a completion that calls itself a chat's, the refusal of every
field that is not known, and the metrics (statistics of iterations that are given out once; a Prometheus page without a
single token).

Imitated as in those candidates: the iteration that reads the prompt is one of them, and tokens beyond the end of an
answer are never made. A step without drafts cannot be told from one whose drafts were rejected, and is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_client.simulator.ask import Arrival, Ask, Kind
from specbench_client.simulator.config import VERSION, SimulatorConfig
from specbench_client.simulator.dialect import PROMETHEUS, Page, View, healthy, shown
from specbench_client.simulator.engine import Engine
from specbench_client.simulator.errors import RequestError
from specbench_client.simulator.tensorrt_llm.body import read_body
from specbench_client.simulator.tensorrt_llm.metrics import iteration_stats, render_metrics
from specbench_client.simulator.tensorrt_llm.wire import ChatWire, CompletionWire, TensorrtLlmWire


class TensorrtLlmDialect:
    """See ``simulator.dialect.Dialect``."""

    paths: Mapping[str, Kind] = {"/v1/chat/completions": Kind.CHAT, "/v1/completions": Kind.COMPLETION}
    commands: Mapping[str, View] = {}

    def __init__(self, config: SimulatorConfig) -> None:
        self._config = config
        self.pages: Mapping[str, View] = {
            "/health": healthy,
            "/version": lambda _engine: shown({"version": VERSION}),
            "/v1/models": _models,
            "/metrics": lambda engine: shown(iteration_stats(engine)),
            "/prometheus/metrics": lambda engine: Page(render_metrics(engine), PROMETHEUS),
        }

    def read(self, arrival: Arrival) -> Ask:
        return read_body(arrival)

    def wire(self, ask: Ask) -> TensorrtLlmWire:
        return (ChatWire if ask.kind is Kind.CHAT else CompletionWire)(ask)

    def error(self, refused: RequestError) -> dict[str, Any]:
        about = {"type": refused.kind, "param": None, "code": refused.status}
        return {"object": "error", "message": refused.message, **about}

    def lost(self, status: int, reason: str) -> dict[str, Any]:  # noqa: ARG002 -- it tells the reason alone
        return {"detail": reason}


def _models(engine: Engine) -> Page:
    """Return the one name that it has."""
    about = {"object": "model", "created": int(engine.counters.created_s), "owned_by": "specbench"}
    return shown({"object": "list", "data": [{"id": engine.config.model_names[0], **about}]})
