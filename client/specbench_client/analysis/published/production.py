"""The tables of "Speculative Decoding Production Benchmark 2026": a blog whose numbers contradict each other."""

from __future__ import annotations

from typing import Any

from specbench_api.outcome.published import PublishedFigure
from specbench_client.analysis.published.table import Table

_WHERE: dict[str, Any] = {
    "model": "Llama-3.1-70B-Instruct",
    "engine": "vLLM 0.7.3",
    "hardware": "4 x A100 80GB",
    "dataset": "its own mix of 500 prompts",
}
_E2E = "a ratio of end-to-end times"
_METHODS = (
    ("draft_model", 0.62, 19.8, 1.95),
    ("medusa", 0.68, 17.1, 2.21),
    ("eagle", 0.73, 14.9, 2.52),
    ("eagle3", 0.81, 12.3, 2.89),
    ("ngram", 0.41, 28.5, 1.38),
)
_BY_BATCH = ((1, 2.89), (2, 2.71), (4, 2.43), (8, 1.98), (16, 1.52), (32, 1.18), (64, 0.95))
_BY_TEMPERATURE = (
    (0.0, 0.81, 2.89),
    (0.3, 0.76, 2.61),
    (0.5, 0.71, 2.38),
    (0.7, 0.64, 2.08),
    (1.0, 0.55, 1.72),
    (1.2, 0.47, 1.41),
    (1.5, 0.38, 1.15),
)
_BY_LENGTH = (
    (1, 0.91, 35.2, 1.20),
    (3, 0.86, 16.8, 2.52),
    (5, 0.81, 12.3, 2.89),
    (7, 0.76, 11.1, 3.02),
    (10, 0.69, 10.8, 2.95),
    (15, 0.58, 11.5, 2.71),
)


def _row(figure: str, value: float, **told: Any) -> PublishedFigure:
    return PublishedFigure.model_validate({**_WHERE, "figure": figure, "value": value, **told})


PRODUCTION = Table(
    "production-benchmark",
    "Acceptance, TPOT and speed-up by method, concurrency, temperature and draft length",
    "Speculative Decoding Production Benchmark 2026, youngju.dev, 4 March 2026",
    "copied from the tables",
    (
        _row("tpot_ms_p50", 42.3, method="none", batch=1, temperature=0.0),
        *(
            _row(figure, value, method=method, draft_tokens=5 if method == "eagle3" else None, batch=1, temperature=0.0)
            for method, rate, tpot, speedup in _METHODS
            for figure, value in (("acceptance_rate", rate), ("tpot_ms_p50", tpot), ("speedup", speedup))
        ),
        *(
            _row("speedup", value, method="eagle3", draft_tokens=5, batch=batch, temperature=0.0, note=_E2E)
            for batch, value in _BY_BATCH
        ),
        *(
            _row(figure, value, method="eagle3", draft_tokens=5, batch=1, temperature=temperature)
            for temperature, rate, speedup in _BY_TEMPERATURE
            for figure, value in (("acceptance_rate", rate), ("speedup", speedup))
        ),
        *(
            _row(figure, value, method="eagle3", draft_tokens=drafts, batch=1, temperature=0.0)
            for drafts, rate, tpot, speedup in _BY_LENGTH
            for figure, value in (("acceptance_rate", rate), ("tpot_ms_p50", tpot), ("speedup", speedup))
        ),
    ),
    "It contradicts itself: its step takes longer with one draft than with three, its speed-up is of end-to-end times"
    " in one row and of TPOT in others, and vLLM 0.7.3 had no EAGLE-3. Do not calibrate on it.",
)
