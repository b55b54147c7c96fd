"""The sections of docs/metrics.md on targets and on slices, printed from the code as the rest of it."""

from __future__ import annotations

from specbench_api.spec.slo import Slo
from specbench_client.analysis.slices import cell, requests, steps
from specbench_client.metrics import acceptance, goodput, walk

Row = tuple[str, str, str, str, str]

GOODPUT = """Only of a run with targets: `spec.slo`, or `--slo-ttft-ms`, `--slo-tpot-ms` and `--slo-e2e-ms` of
`specbench measure` and `specbench report`; in `cells[].goodput` of the run's `summary.json`. *Goodput* has a second
meaning in the field, tokens emitted over step time; this is not that one.
"""


def goodput_rows() -> list[Row]:
    """Return figure, unit, definition, when it is missing, and source; targets stand for any."""
    rate = (f"`{goodput.RATE}`", goodput.RATE_UNIT, goodput.RATE_DEFINITION, goodput.RATE_MISSING, "both")
    shares = (goodput.share(Slo(tpot_ms=35)), goodput.share_of_one("tpot_ms", 35))
    return [rate, *((f"`{one.name}`", one.unit, one.definition, one.missing, one.origin.told) for one in shares)]


def slices_section() -> str:
    """Return what each dimension is cut by, and when it is missing."""
    of_requests = ", ".join(f"`{ratio.name}`" for ratio in requests.RATIOS)
    lines = [
        "## Slices\n",
        "The same figures by where requests and steps stand, in `cells[].slices` of the run's `summary.json`, with the",
        "steps, requests and prompts of each class: [slices.md](slices.md). Of steps there is one figure,",
        f"`{acceptance.EMITTED_POOLED.name}`; records hold delivered drafts, of which the emitted and the verified",
        f"length are one: {steps.DEFINITION}. Of requests there are {of_requests}.\n",
        "| dimension | of | classes | missing when |",
        "|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in _rows()),
    ]
    return "\n".join(lines) + "\n"


def _rows() -> list[tuple[str, str, str, str]]:
    positions, contexts = (", ".join(f"{low:,}" for low in lows[1:4]) for lows in (walk.POSITIONS, walk.CONTEXTS))
    by_length = (
        f"{requests.BY_LITERATURE}, where two of these hold {requests.PROMPTS_OF_A_CLASS} prompts or more; else the"
        " quartiles of the cell's own requests"
    )
    return [
        (
            "`byPosition`",
            "steps",
            f"output position of the first token that a step emits: from 1, {positions}, …",
            f"{cell.NO_DRAFTS}; or {cell.UNPLACED}",
        ),
        (
            "`byContext`",
            "steps",
            f"tokens before the step, prompt and output: from 0, {contexts}, …",
            f"as `byPosition`; or {cell.NO_PROMPT_TOKENS}",
        ),
        ("`byPart`", "steps", "thought; answer", f"as `byPosition`; or {cell.NO_THOUGHTS}"),
        ("`byLength`", "requests; their steps by position", by_length, f"{cell.NO_TOKENS}; or {cell.ONE_LENGTH}"),
        ("`byTurn`", "requests", f"turn 1, turn 2, …, turn {requests.TURNS_MAX} and later", cell.NO_TURNS),
        ("`acceptanceByRequest`", "requests", "none: five numbers and the deciles of one request's", cell.NO_DRAFTS),
    ]
