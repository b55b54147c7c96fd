"""SGLang's HTTP. Nothing of it was recorded: it is known from the source of 0.5.23 and of versions next to it.

Read in 0.5.23: the routes, the question for drafts and its answer, the counters and gauges with their labels, and when
each counts. Read in neighbours, and perhaps spelled a little otherwise in 0.5.23: which keys of a chunk are null and
which are left out, and the error objects.

Imitated beside its chunks: `/health` generates a token, `/ready` does not; the drafts found correct are counted before
an answer is cut at its end; what was proposed is the verifications times the length it was started with;
`/server_info` has the average since the last `/flush_cache`; a cache hit is told in the usage, as with
`--enable-cache-report`. Not imitated: SGLang verifies padding where n-grams found nothing, and a step without drafts
is no verification here; its counters move when a request ends, these with each step; all count as streamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from specbench_client.simulator.ask import Arrival, Ask, Kind
from specbench_client.simulator.config import MODEL_NAME, VERSION, SimulatorConfig
from specbench_client.simulator.counters import Counters
from specbench_client.simulator.dialect import PROMETHEUS, Page, View, healthy, shown
from specbench_client.simulator.drafters import Method
from specbench_client.simulator.engine import Engine
from specbench_client.simulator.errors import InvalidBody, RequestError
from specbench_client.simulator.process import StepOutcome
from specbench_client.simulator.sglang.body import read_body
from specbench_client.simulator.sglang.metrics import render_metrics
from specbench_client.simulator.sglang.wire import ChatWire, CompletionWire, SglangWire

ALGORITHMS = {
    Method.EAGLE: "EAGLE",
    Method.EAGLE3: "EAGLE3",
    Method.MTP: "NEXTN",
    Method.DRAFT_MODEL: "STANDALONE",
}
"""The others are called by their names in capitals."""
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)


class SglangDialect:
    """See ``simulator.dialect.Dialect``."""

    paths: Mapping[str, Kind] = {"/v1/chat/completions": Kind.CHAT, "/v1/completions": Kind.COMPLETION}

    def __init__(self, config: SimulatorConfig) -> None:
        self._config = config
        self._flushed = Counters(created_s=0.0)
        self._counted: Counters | None = None
        self.pages: Mapping[str, View] = {
            "/health": _generating,
            "/health_generate": _generating,
            "/ready": healthy,
            "/v1/models": _models,
            "/model_info": _model_info,
            "/server_info": self._server_info,
            "/metrics": lambda engine: Page(render_metrics(engine), PROMETHEUS),
        }
        self.commands: Mapping[str, View] = {"/flush_cache": self._flush}

    def read(self, arrival: Arrival) -> Ask:
        return read_body(arrival)

    def wire(self, ask: Ask) -> SglangWire:
        return (ChatWire if ask.kind is Kind.CHAT else CompletionWire)(self._config, ask)

    def error(self, refused: RequestError) -> dict[str, Any]:
        kind = HTTPStatus.BAD_REQUEST.phrase if isinstance(refused, InvalidBody) else refused.kind
        about = {"type": kind, "param": refused.param, "code": refused.status}
        return {"object": "error", "message": refused.message, **about}

    def lost(self, status: int, reason: str) -> dict[str, Any]:  # noqa: ARG002 -- it tells the reason alone
        return {"detail": reason}

    def _flush(self, engine: Engine) -> Page:
        """Start the average anew; refused while anything runs."""
        if engine.running or engine.waiting:
            return Page(b"Flush cache failed.\n", status=HTTPStatus.BAD_REQUEST)
        counted = engine.counters
        self._counted = counted
        self._flushed = Counters(created_s=0.0, drafts=counted.drafts, accepted=counted.accepted)
        return Page(FLUSHED.encode())

    def _server_info(self, engine: Engine) -> Page:
        """Return its arguments, as far as they matter here, and the average of the drafts since the last flush."""
        drafter, counted = engine.config.drafter, engine.counters
        before = self._flushed if self._counted is counted else Counters(created_s=0.0)
        verified = counted.drafts - before.drafts
        correct = counted.accepted - before.accepted
        average = {"avg_spec_accept_length": 1 + correct / verified} if verified else {}
        depth = drafter.num_speculative_tokens if drafter.speculates else None
        return shown(
            {
                "model_path": MODEL_NAME,
                "served_model_name": MODEL_NAME,
                "context_length": engine.config.max_model_len,
                "max_running_requests": engine.config.max_num_seqs,
                "max_total_num_tokens": engine.config.max_num_seqs * engine.config.max_model_len,
                "disable_radix_cache": True,
                "random_seed": engine.config.seed,
                "speculative_algorithm": _algorithm(drafter.method),
                "speculative_num_steps": depth,
                "speculative_eagle_topk": None if depth is None else 1,
                "speculative_num_draft_tokens": None if depth is None else depth + 1,
                "internal_states": [average],
                "version": VERSION,
            }
        )


def _algorithm(method: Method) -> str | None:
    return None if method is Method.NONE else ALGORITHMS.get(method, method.upper())


def _generating(engine: Engine) -> Page:
    """Prove itself alive by a token, where nobody else has one generated."""
    if not engine.running and not engine.waiting:
        engine.counters.admitted(1, 0)
        engine.counters.stepped(StepOutcome(tokens=1, prefill=True))
    return Page()


def _models(engine: Engine) -> Page:
    about = {"object": "model", "created": int(engine.counters.created_s), "owned_by": "specbench"}
    length = engine.config.max_model_len
    names = [
        {"id": name, **about, "root": name, "parent": None, "max_model_len": length}
        for name in engine.config.model_names
    ]
    return shown({"object": "list", "data": names})


def _model_info(engine: Engine) -> Page:  # noqa: ARG001 -- the model is the same for every engine
    return shown({"model_path": MODEL_NAME, "tokenizer_path": MODEL_NAME, "is_generation": True})
