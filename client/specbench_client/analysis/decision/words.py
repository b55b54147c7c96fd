"""A recommendation in one sentence, and what its reader must know."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.recommendation import Answer, Objective, WorkloadChoice
from specbench_api.outcome.summary import RunSummary
from specbench_client.analysis.decision.asked import Asked
from specbench_client.analysis.decision.constraints import words_of
from specbench_client.metrics.energy import JOULES

TRANSFER = (
    "It holds for these prompts and their language, this model and its quantisation, this engine's version and this"
    " hardware: other prompts and languages change acceptance; another quantisation, engine or machine the cost of a"
    " step."
)
BETWEEN = "Only measured loads are compared: what lies between two of them, or beyond the largest, is not known."
PERCENTILES = (
    "Each target is judged by its own percentile over all requests: the share of requests that meet all of them at once"
    " can be smaller. A target counts as met by value where its interval does not show it."
)
ACROSS = (
    "An arm and the baseline that are best at different loads are compared by their own figures: not paired, and each"
    " at the load where those figures look best."
)
COST = (
    "Cost is compared at the same load and where both meet the same targets. Prices are yours, lengths those of these"
    " prompts, and an engine is taken to be as busy all the time as it was here."
)
ENERGY_UNTOLD = (
    "Joules per token are missing: neither engines nor the client sample the power of GPUs"
    " (`specbench report --power FILE --recompute` takes samples)."
)
ENERGY_APART = "Joules per token stand in the run's report, and are in no cost: what an hour costs is yours to say."
SIMULATED = "Simulated: nothing here speaks of any engine."
_UNIT = {Objective.THROUGHPUT: "throughput", Objective.LATENCY: "token rate", Objective.COST: "tokens for the money"}


def sentence_of(summary: RunSummary, asked: Asked, choices: Sequence[WorkloadChoice]) -> str:
    """Return the answer; a simulation says so first, and what the checks doubt comes last."""
    head = "simulated, not a measurement: " if summary.simulated else ""
    where = f" with {' and '.join(target.words for target in asked.targets)}" if asked.targets else ""
    several = len(choices) > 1
    words = {cell.level.label: cell.level.words for cell in summary.cells}
    told = [
        f"{f'on {each.workload} ' if several else ''}{_clause(each, asked, words)}{_elsewhere(each)}"
        for each in choices
    ]
    trust = "" if summary.trustworthy else " (the run is not trustworthy)"
    held = "".join(f", {each}" for each in words_of(asked.constraints))
    return f"{head}for {asked.objective}{where}{held}: {'; '.join(told) or 'nothing was measured'}{trust}"


def limits_of(
    summary: RunSummary,
    asked: Asked,
    choices: Sequence[WorkloadChoice],
    doubted: Sequence[str],
    unknown: Sequence[str],
) -> list[str]:
    """What holds of every recommendation, and what of this one.

    `doubted`: checks that found more than a note; `unknown`: arms of which nobody tells whether they fit.
    """
    across = any(each.load not in (None, each.baseline_load) and each.baseline_load for each in choices)
    found = [
        SIMULATED if summary.simulated else "",
        f"The run is not trustworthy ({', '.join(doubted)}): so is this." if not summary.trustworthy else "",
        BETWEEN,
        PERCENTILES if asked.targets else "",
        ACROSS if across else "",
        COST if asked.prices else "",
        _energy(summary) if asked.objective is Objective.COST else "",
        f"Whether {', '.join(unknown)} fits into the spare memory is told by nobody: not ruled out." if unknown else "",
        TRANSFER,
    ]
    return [each for each in found if each]


def _energy(summary: RunSummary) -> str:
    told = [figure for cell in summary.cells if (figure := cell.figures.get(JOULES)) and figure.value is not None]
    return ENERGY_APART if told else ENERGY_UNTOLD


def _clause(choice: WorkloadChoice, asked: Asked, words: dict[str, str]) -> str:
    match choice.answer:
        case Answer.DRAFTER:
            return f"{choice.arm} at {words[str(choice.load)]}{_gain(choice, asked, words)}"
        case Answer.NO_DRAFTER:
            return f"no drafter pays; the baseline, at {words[str(choice.load)]}"
        case Answer.NOTHING_MEETS:
            return "nothing that was measured meets the targets"
        case Answer.CANNOT_TELL:
            return f"it cannot be told: {choice.reason}"


def _elsewhere(choice: WorkloadChoice) -> str:
    """Other drafters that pay at loads of their own: who runs at such a load wants to know."""
    paying = [each for each in choice.at_each_load if each.answer is Answer.DRAFTER and each.arm != choice.arm]
    loads = {arm: [each.load for each in paying if each.arm == arm] for arm in dict.fromkeys(e.arm for e in paying)}
    told = [f"{arm} pays at {', '.join(each)}" for arm, each in loads.items()]
    return f" (but {'; '.join(told)})" if told else ""


def _gain(choice: WorkloadChoice, asked: Asked, words: dict[str, str]) -> str:
    gain = choice.gain
    if gain is None or gain.value is None:
        return f" ({choice.reason})"
    bounds = f" [{gain.interval.low:.2f}, {gain.interval.high:.2f}]" if gain.interval else ""
    other = choice.baseline_load
    there = (
        " there, which misses the targets" if other is None else f" at {words[other]}" if other != choice.load else ""
    )
    return f", {gain.value:.2f}x{bounds} the baseline's {_UNIT[asked.objective]}{there}"
