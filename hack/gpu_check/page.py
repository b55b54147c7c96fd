"""Renders the evidence as a page for the documentation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Json = dict[str, Any]
MISSING = "–"
MIB = 1 << 20
STATUS = {
    "Done": "done",
    "CutOff": "cut off: the points that had finished count",
    "Failed": "failed",
    "Skipped": "skipped",
    "Running": "running when this page was written",
}

CELL_COLUMNS = (
    "arm", "streams", "speed-up [95 %]", "AL", "accepted", "step ms", "TPOT ms", "TTFT ms", "tok/s",
    "answers that differ", "failed",
)  # fmt: skip
ARM_COLUMNS = (
    "arm", "weights MiB", "drafter MiB", "torch MiB", "nvidia-smi MiB", "output tokens", "drafted", "accepted",
    "client late ms", "coalesced chunks",
)  # fmt: skip
SHOWS = """\
- Time per step and per token, and memory of a model of this shape, which do not depend on the weights' values.
- What a draft costs: the step time of each drafter beside the baseline's, at the acceptance that occurred.
- That our client, the research runtime and its counters agree on a GPU, and which checks found something.
"""
SHOWS_NOT = """\
- **The acceptance of real models.** The truncated draft model agrees with the target because the target's later layers
  were damped until it did; the Medusa heads are random; what the n-gram drafter finds are repetitions of random text.
- **A speed-up that anyone would get.** It follows from that acceptance, and from a runtime that is bound by starting
  kernels, not by the GPU: it has no CUDA graphs and no fused kernels.
- **Batching.** The research runtime generates one answer at a time; at several streams the others wait.
- **Anything about vLLM, SGLang, TensorRT-LLM or llama.cpp**, unless a section above is about it.
"""


def render_page(evidence: Json) -> str:
    """Return the page. `evidence`: what hack/gpu-check writes to evidence.json."""
    title = "# First GPU evidence" if evidence["device"] == "cuda" else "# Trial of the GPU check on a CPU"
    parts = [title, "", *_introduction(evidence), "", "## Machine", ""]
    parts += _table(("", ""), [(name, str(value)) for name, value in evidence["machine"].items()])
    parts += ["", "## Models", "", *_models(evidence["models"])]
    for step in evidence["steps"]:
        parts += ["", f"## {step['title']}", "", *_step(step)]
    parts += ["", "## What this shows", "", SHOWS, "## What this does not show", "", SHOWS_NOT]
    parts += ["## Steps and their times", "", *_times(evidence), "", "## Repeat it", ""]
    return "\n".join([*parts, "```console", f"$ {evidence['command']}", "```", ""])


def _introduction(evidence: Json) -> Iterator[str]:
    where = f"on one {evidence['machine'].get('GPU')}" if evidence["device"] == "cuda" else "on a CPU"
    yield f"`hack/gpu-check` ran the research runtime (Hugging Face transformers) {where}, on {evidence['date']},"
    yield f"at commit {evidence['commit']}. `specbench run` measured every step. The models have **random weights**;"
    yield "the prompts are those of `examples/demo-prompts.jsonl`. Client and engine shared the machine."
    if evidence["device"] == "cpu":
        yield "The shapes are small: this only tries the program, and the figures mean nothing."


def _models(models: Sequence[Json]) -> Iterator[str]:
    head = ("shape", "layers × hidden", "vocabulary", "target", "truncated draft model", "Medusa heads", "agreement")
    rows = [
        (
            one["title"],
            f"{one['layers']} × {one['hidden']:,}",
            f"{one['vocabulary']:,}",
            _parameters(one["parameters"]),
            f"{_parameters(one['draft_parameters'])}, {one['draft_layers']} layers",
            f"{_parameters(one['medusa_parameters'])}, {one['medusa_heads']} heads",
            _percent(one.get("agreement")),
        )
        for one in models
    ]
    yield from _table(head, rows)
    yield ""
    yield "Agreement: share of positions, in random tokens, at which target and truncated model prefer the same token."


def _step(step: Json) -> Iterator[str]:
    count = f"{step['repeats']} repeat{'' if step['repeats'] == 1 else 's'}"
    reason = f": {step['reason']}" if step.get("reason") else ""
    yield f"Shows {step['shows']}."
    yield f"{step['shape']}, {step['dtype']}, {count}, {step['max_tokens']} tokens per answer."
    yield f"State: {STATUS[step['status']]}{reason}."
    result = step.get("result")
    if not result:
        return
    verdict = "trustworthy" if result["trustworthy"] else "not trustworthy"
    yield ""
    yield f"> {result['headline']}"
    yield ""
    yield f"Verdict: **{verdict}**; {result['points']} points measured."
    yield ""
    yield from _table(CELL_COLUMNS, [_cell(row) for row in result["cells"]])
    yield ""
    yield "Medians, except tok/s. AL: tokens per step."
    yield ""
    yield from _table(ARM_COLUMNS, [_arm(row) for row in result["arms"]])
    yield ""
    yield "Tokens: one number if the client's sum equals the engine's counter, else client / engine. Client late: p99"
    yield "of its event loop. torch: memory that the engine had reserved; nvidia-smi: the most that the GPU had in use."
    yield ""
    yield from _findings(result["findings"])


def _cell(row: Json) -> tuple[str, ...]:
    return (
        row["arm"],
        row["load"],
        _speedup(row),
        _number(row["acceptance_length"], 2),
        _percent(row["acceptance_rate"]),
        *(_number(row[name], 2) for name in ("step_ms", "tpot_ms", "ttft_ms")),
        _number(row["output_tps"], 1),
        _percent(row["differing_answers"]),
        f"{row['failed']} of {row['requests']}",
    )


def _speedup(row: Json) -> str:
    value, low, high = row["speedup"]
    if row["arm"] == "none":
        return "baseline" if row["valid"] else "baseline, invalid"
    interval = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    return MISSING if value is None else f"{value:.2f}{interval}{'' if row['valid'] else ', invalid'}"


def _arm(row: Json) -> tuple[str, ...]:
    return (
        row["arm"],
        *(_mebibytes(row[name]) for name in ("weights_bytes", "drafter_weights_bytes", "torch_bytes")),
        _number(row["peak_mib"], 0),
        *(_pair(row["client"][name], row["engine"][name]) for name in ("output", "drafted", "accepted")),
        _number(row["loop_lag_p99_ms"], 1),
        _percent(row["coalesced_share"]),
    )


def _findings(findings: Sequence[Json]) -> Iterator[str]:
    if not findings:
        yield "No check found anything."
        return
    yield "Findings:"
    yield ""
    for one in findings:
        where = " at ".join(str(part) for part in (one["arm"], one["load"]) if part)
        yield f"- {one['severity']}, {one['check']}{f' ({where})' if where else ''}: {one['message']}"


def _times(evidence: Json) -> Iterator[str]:
    rows = [
        (step["title"], STATUS[step["status"]], _number(step.get("estimated_s"), 0), _number(step.get("seconds"), 0))
        for step in evidence["steps"]
    ]
    yield from _table(("step", "state", "estimated s", "took s"), rows)
    yield ""
    yield f"Budget: {evidence['budget_s']:.0f} s; used: {evidence['used_s']:.0f} s."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


def _pair(client: int | None, engine: int | None) -> str:
    if (client or None) == (engine or None):  # an arm without drafts: the client has none, a counter may be 0
        return f"{client:,}" if client else MISSING
    return f"{MISSING if client is None else f'{client:,}'} / {MISSING if engine is None else f'{engine:,}'}"


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0%}"


def _mebibytes(value: int | None) -> str:
    return MISSING if value is None else f"{value / MIB:,.1f}"


def _parameters(count: int) -> str:
    return f"{count / 1e9:.2f} B" if count >= 1e8 else f"{count / 1e6:.2f} M"
