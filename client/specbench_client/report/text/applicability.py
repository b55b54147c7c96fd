"""Conditions under which a run's results apply, with their values in this run.

The first six are the literature's checklist (workload, batch, output length, acceptance, memory, framework); the others
are the prompt cache, and what its authors report as not transferable: language, sampling, model, number format,
hardware. Unknown values are dashes, never guesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.plan.plan import Plan
from specbench_api.spec.dataset import Dataset, Selection
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import DialectName, Engine, PromptCache
from specbench_api.spec.workload import Workload
from specbench_client.documents.figure import StatusFigure
from specbench_client.documents.prompt_coverage import PromptCoverage, RowCoverage
from specbench_client.documents.summary import ArmEnvironment, Cell, RunSummary
from specbench_client.report.text.text_table import DASH, TextTable, figure_text, number, percent

_MIB = 1 << 20


ENVIRONMENT_COLUMNS = (
    "Arm", "Launches", "Engine", "Machine", "Number format", "Maximum length", "KV cache, tokens",
    "Lost to the drafter", "Drafter's weights",
)  # fmt: skip
ENVIRONMENTS_SAY = (
    "As the engines and their launchers reported them before the first point of each launch; – where nothing was"
    " reported. provenance.json contains everything, with its source or the reason why it is not known. Differences in"
    " more than the drafter are findings (ArmEnvironmentsDiffer)."
)


def environments_table(summary: RunSummary) -> TextTable:
    """Return engine and hardware of each arm that was launched; provenance.json has all facts."""
    rows = [_environment(seen) for seen in summary.arm_environments]
    words = [ENVIRONMENT_COLUMNS[index] for index in (0, 2, 3, 4)]
    return TextTable("Engines and hardware", ENVIRONMENT_COLUMNS, rows, words=words)


def _environment(seen: ArmEnvironment) -> list[str]:
    facts = seen.facts
    return [
        seen.arm,
        str(len(seen.launches)),
        _text(facts, FactName.ENGINE_VERSION),
        _machine(facts),
        _dtype(facts),
        _text(facts, FactName.MAX_MODEL_LEN),
        _text(facts, FactName.KV_CACHE_TOKENS),
        figure_text(seen.kv_cache_lost, percent),
        _mebibytes(facts, FactName.DRAFTER_WEIGHTS_BYTES),
    ]


def _known(texts: Iterable[str]) -> str:
    """Join the distinct texts that are known; a dash if there are none."""
    return _joined(text for text in texts if text != DASH)


def _text(facts: Mapping[FactName, Fact], name: FactName) -> str:
    fact = facts[name]
    if fact.number is not None:
        return f"{fact.number:,.0f}"
    return DASH if fact.value is None else str(fact.value)


def _machine(facts: Mapping[FactName, Fact]) -> str:
    """Return the GPUs; the processor where there are none."""
    gpu, count = _text(facts, FactName.GPU), facts[FactName.GPU_COUNT].value
    if gpu == DASH:
        return _text(facts, FactName.CPU)
    return f"{count} × {gpu}" if count else gpu


def _dtype(facts: Mapping[FactName, Fact]) -> str:
    formats = (_text(facts, name) for name in (FactName.DTYPE, FactName.QUANTIZATION))
    return ", ".join(text for text in formats if text not in (DASH, "none")) or DASH


def _mebibytes(facts: Mapping[FactName, Fact], name: FactName) -> str:
    value = facts[name].number
    return DASH if value is None else f"{value / _MIB:,.0f} MiB"


PROMPT_CACHE_WORDS = {PromptCache.DISABLED: "disabled", PromptCache.AS_SERVED: "as served"}
APPLICABILITY_TITLE = "When these results apply"
APPLICABILITY_COLUMNS = ("Look at", "In this run", "Elsewhere")


def applicability_table(plan: Plan, summary: RunSummary) -> TextTable:
    """Return the conditions, one row each."""
    return TextTable(APPLICABILITY_TITLE, APPLICABILITY_COLUMNS, _rows(plan, summary), words=APPLICABILITY_COLUMNS)


def applicability_line(plan: Plan, summary: RunSummary) -> str:
    """The same as one phrase, for a terminal; what is not known is left out."""
    format_ = _formats(summary)
    model = f"{plan.target.title} ({format_ if format_ != DASH else 'quantisation unknown'})"
    cache = DASH if _prompt_cache(plan) == DASH else f"prompt cache {_prompt_cache(plan)}"
    where = [model, _engine(plan, summary), _machines(summary), _loads(plan), cache]
    known = ", ".join(part for part in where if part != DASH)
    return f"these prompts and their language, {known}; the report lists what may differ elsewhere"


def _rows(plan: Plan, summary: RunSummary) -> list[Sequence[str]]:
    languages = _joined(", ".join(each.dataset.languages) for each in plan.workloads if each.dataset.languages)
    sampling = _joined(
        f"{_named(each, plan)}temperature "
        + ("chosen by the server" if each.greedy is None else f"{each.sampling.temperature:g}")
        for each in plan.workloads
    )
    return [
        ("Workload", _prompts(plan, summary), "acceptance differs by prompt: higher for code than for role play"),
        ("Batch", _loads(plan), "the gain falls as more requests share a step; other loads were not measured"),
        (
            "Output length",
            _lengths(plan, summary),
            "in short answers the time to the first token, which does not improve, weighs more",
        ),
        ("Acceptance", _accepted(summary), "depends on the prompts; its value depends on the cost of a step"),
        (
            "Memory",
            _memory(summary),
            "where the KV cache is full, the drafter's share of it reduces concurrent requests",
        ),
        ("Engine", _engine(plan, summary), "the cost of a step differs between versions and kernels"),
        (
            "Prompt cache",
            _prompt_cache(plan),
            "reused prompts have a shorter prefill; a drafter can lower the share that is reused",
        ),
        ("Language", languages, "drafters are trained more on some languages than on others"),
        ("Sampling", sampling, "acceptance falls with temperature"),
        (
            "Model",
            plan.target.name
            + ("" if plan.engine.is_external else f", revision {plan.target.revision}")
            + (f", with adapter {plan.target.adapter.model}" if plan.target.adapter else ""),
            "a drafter fits only the target that it was trained for, and the adapter that it was trained with",
        ),
        (
            "Quantisation",
            _formats(summary),
            "makes the target's step cheaper, and so the drafter's relatively more expensive",
        ),
        ("Hardware", _machines(summary), "the cost of a wider step depends on the ratio of bandwidth to compute"),
    ]


def _prompt_cache(plan: Plan) -> str:
    """Return the policy; it is unknown if another benchmark measured the run."""
    return DASH if plan.engine.is_imported else PROMPT_CACHE_WORDS[plan.prompt_cache]


def _prompts(plan: Plan, summary: RunSummary) -> str:
    used = {name: f", {each.used:,} prompts" for name, each in summary.coverage.items()}
    return _joined(
        f"{_named(each, plan)}{dataset_text(each.dataset)}{used.get(each.name, '')}" for each in plan.workloads
    )


def _named(workload: Workload, plan: Plan) -> str:
    return f"{workload.name}: " if len(plan.workloads) > 1 else ""


def _loads(plan: Plan) -> str:
    levels = plan.load.levels
    return ", ".join([levels[0].words, *(level.label for level in levels[1:])])


def _lengths(plan: Plan, summary: RunSummary) -> str:
    found = []
    for workload in plan.workloads:
        means = _values([cell for cell in summary.cells if cell.workload == workload.name], "output_tokens_mean")
        mean = f"{_range(means, 0)} tokens on average, " if means else ""
        found.append(f"{_named(workload, plan)}{mean}at most {workload.output.max_tokens:,}")
    return _joined(found)


def _accepted(summary: RunSummary) -> str:
    arms = dict.fromkeys(cell.arm for cell in summary.cells if cell.arm != BASELINE_NAME)
    lengths = {
        arm: _values([cell for cell in summary.cells if cell.arm == arm], StatusFigure.ACCEPTANCE_LENGTH)
        for arm in arms
    }
    return _joined(f"{arm} {_range(values, 2)} tokens a step" for arm, values in lengths.items() if values)


def _memory(summary: RunSummary) -> str:
    seen = [each for each in summary.arm_environments if each.arm != BASELINE_NAME]
    lost = [(each.arm, f"takes {figure_text(each.kv_cache_lost, percent)} of the KV cache") for each in seen]
    weights = [(each.arm, f"has {_mebibytes(each.facts, FactName.DRAFTER_WEIGHTS_BYTES)}") for each in seen]
    return _joined(f"{arm} {text}" for arm, text in (*lost, *weights) if DASH not in text)


def _engine(plan: Plan, summary: RunSummary) -> str:
    versions = _known(_text(each.facts, FactName.ENGINE_VERSION) for each in summary.arm_environments)
    version = versions if versions != DASH else plan.engine.version or ""
    if plan.engine.is_imported:
        return f"an engine of unknown version {version}".strip()
    kinds = {_server(plan.engine_of(arm)) if plan.engine.is_external else plan.engine.kind for arm in plan.arms}
    return f"{', '.join(sorted(kinds))} {version}".strip()


def _server(engine: Engine) -> str:
    return "an OpenAI-compatible server" if engine.dialect in (None, DialectName.OPENAI) else str(engine.dialect)


def _formats(summary: RunSummary) -> str:
    return _known(_dtype(each.facts) for each in summary.arm_environments)


def _machines(summary: RunSummary) -> str:
    return _known(_machine(each.facts) for each in summary.arm_environments)


def _values(cells: Sequence[Cell], name: str) -> list[float]:
    return [value for cell in cells if (value := cell.value(name)) is not None]


def _range(values: Sequence[float], digits: int) -> str:
    low, high = number(min(values), digits), number(max(values), digits)
    return low if low == high else f"{low} to {high}"


def _joined(parts: Iterable[str]) -> str:
    """Join distinct parts in order; a dash if there are none."""
    return "; ".join(dict.fromkeys(parts)) or DASH


# The prompts of a run: their source, how many were requested, and what was left out.

COVERAGE_COLUMNS = ("Workload", "Category", "Requested", "Used", "Turns", "Left out")
COVERAGE_SAYS = (
    "Rows that match the filters. Rows that are neither used nor left out were not drawn (count, turns, shares of a"
    " mix)."
)


def coverage_table(summary: RunSummary) -> TextTable:
    """Return every workload as a whole, then its categories where there are several."""
    rows = list[list[str]]()
    for workload, coverage in summary.coverage.items():
        rows.append(_counts(workload, "all", coverage))
        if len(coverage.by_category) > 1:
            rows += [_counts(workload, each.category or "(no category)", each) for each in coverage.by_category]
    return TextTable("Prompts", COVERAGE_COLUMNS, rows, words=("Workload", "Category", "Left out"))


def source_lines(summary: RunSummary) -> list[str]:
    """Return a line for each workload: where its prompts are from, its licence, and what was not requested."""
    return [f"{workload}: {_source(coverage)}" for workload, coverage in summary.coverage.items()]


def _source(coverage: PromptCoverage) -> str:
    config = f" {coverage.config}" if coverage.config else ""
    revision = f", revision `{coverage.revision}`" if coverage.revision else ""
    excluded = "; ".join(f"{count} x {reason}" for reason, count in coverage.excluded.items())
    recorded = coverage.recorded.temperatures.items() if coverage.recorded else ()
    temperatures = ", ".join(f"{temperature}: {count}" for temperature, count in recorded)
    notes = {
        "Licence: ": coverage.licence,
        "Not requested: ": excluded,
        "The log's own requests: temperatures ": temperatures,
    }
    return ". ".join([f"{coverage.source}{config}{revision}", *(name + text for name, text in notes.items() if text)])


def dataset_text(dataset: Dataset) -> str:
    """Return the requested data set as one line."""
    if dataset.members is None:
        return _selection(dataset)
    whole = sum(member.weight for member in dataset.members)
    parts = "; ".join(f"{member.weight / whole:.0%} {member.name}: {_selection(member)}" for member in dataset.members)
    return f"{_selection(dataset)}: {parts}"


def _selection(selection: Selection) -> str:
    chosen = {
        "": f"{selection.count} prompts" if selection.count else "",
        "only ": ", ".join(selection.categories or []),
        "sub-categories ": ", ".join(selection.sub_categories or []),
        "entropy ": ", ".join(selection.entropy or []).lower(),
        "difficulty ": ", ".join(selection.difficulty or []),
        "languages ": ", ".join(selection.languages or []),
        "seed ": "" if selection.seed is None else str(selection.seed),
        "revision ": selection.revision or "",
    }
    source = f"{selection.source} {selection.config}" if selection.config else str(selection.source)
    words = ", ".join([source, *(f"{word}{value}" for word, value in chosen.items() if value)])
    return words if selection.where == selection.source else f"{selection.where} ({words})"


def _counts(workload: str, category: str, counted: RowCoverage) -> list[str]:
    numbers = (f"{each:,}" for each in (counted.requested, counted.used, counted.turns))
    reasons = "; ".join(f"{count} x {reason}" for reason, count in counted.unusable.items())
    return [workload, category, *numbers, reasons or DASH]
