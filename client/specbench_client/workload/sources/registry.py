"""Loaders by source, those of files of one's own, and the table for docs/reference/workloads.md.

`mix` and `sessions` read no file.
"""

from __future__ import annotations

from specbench_api.spec.dataset import CONFIGS, Selection, Source
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.sources import (
    agent_traces,
    openai_logs,
    published,
    random_words,
)
from specbench_client.workload.sources.loader import Columns, HubDataset, SourceLoader


def _unchanged(row: PromptRow, _: Selection) -> Columns:
    return row.columns


def _loader(what: str, note: str = "") -> SourceLoader:
    return SourceLoader(
        what=what,
        columns=("id", "category", "prompt | turns | messages | token_ids"),
        template="unchanged: `prompt` is one user message, `turns` are several, `messages` include the history",
        licence="yours",
        convert=_unchanged,
        note=note,
        ids=False,
    )


JSONL = _loader("your own JSON Lines")
PARQUET = _loader("your own Parquet file")
CSV = _loader(
    "your own CSV file, with a header",
    "the columns turns, messages and token_ids contain JSON; an empty cell is a missing value",
)


LOADERS: dict[Source, SourceLoader] = {
    Source.JSONL: JSONL,
    Source.PARQUET: PARQUET,
    Source.CSV: CSV,
    Source.SPEED_BENCH: published.SPEED_BENCH,
    Source.SPEC_BENCH: published.SPEC_BENCH,
    Source.MT_BENCH: published.MT_BENCH,
    Source.HUMANEVAL: published.HUMANEVAL,
    Source.GSM8K: published.GSM8K,
    Source.MATH_500: published.MATH_500,
    Source.MBPP: published.MBPP,
    Source.AIME: published.AIME,
    Source.GPQA: published.GPQA,
    Source.CNN_DAILYMAIL: published.CNN_DAILYMAIL,
    Source.SHAREGPT: published.SHAREGPT,
    Source.INSTRUCTCODER: published.INSTRUCTCODER,
    Source.EDIT: published.EDIT,
    Source.OPENAI_LOGS: openai_logs.LOADER,
    Source.AGENT_TRACES: agent_traces.LOADER,
    Source.MOONCAKE: random_words.MOONCAKE,
}

_UNPINNED = (
    "Not pinned: set `dataset.revision` to a commit of the hub. Without it the newest revision is read;\n"
    "the fingerprint of the prompts then shows whether the dataset has changed."
)


def render_sources() -> str:
    """Return the table of sources and the list of their templates as Markdown."""
    head = "| source | contents | columns | hub | licence |\n|---|---|---|---|---|"
    rows = [_row(source, loader) for source, loader in LOADERS.items()]
    return "\n".join([head, *rows, "", *_unpinned(), "### Templates", "", *_templates()])


def describe_origin(source: Source, loader: SourceLoader) -> str:
    """Describe briefly where a source comes from: its repositories on the hub, or a file."""
    if loader.hub is None:
        return "not on the hub: give a file"
    names = dict.fromkeys(loader.hub(config).name for config in CONFIGS.get(source, (None,)))
    return f"{', '.join(names)}{' (gated)' if loader.gated else ''}"


def _row(source: Source, loader: SourceLoader) -> str:
    columns = ", ".join(f"`{name}`" if " " not in name else name for name in loader.columns)
    cells = (f"`{source}`", loader.what, columns, _hub(source, loader), loader.licence)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _hub(source: Source, loader: SourceLoader) -> str:
    if loader.hub is None:
        return "not on the hub: set `uri`"
    hubs = [loader.hub(config) for config in CONFIGS.get(source, (None,))]
    names = ", ".join(dict.fromkeys(f"`{hub.name}`" for hub in hubs))
    gated = "; gated" if loader.gated else ""
    return f"{names}, {_part(hubs[0])}; {_pin(hubs[0])}{gated}"


def _part(hub: HubDataset) -> str:
    if hub.file is not None:
        return f"file `{hub.file}`"
    return f"config `{hub.config}`, split `{hub.split}`" if hub.config else f"split `{hub.split}`"


def _pin(hub: HubDataset) -> str:
    return f"at `{hub.revision}`" if hub.revision else "not pinned"


def _unpinned() -> list[str]:
    """Return the note about revisions if any source is not pinned."""
    hubs = [loader.hub(None) for loader in LOADERS.values() if loader.hub]
    return [_UNPINNED, ""] if any(hub.revision is None for hub in hubs) else []


def _templates() -> list[str]:
    return [_template(source, loader) for source, loader in LOADERS.items()]


def _template(source: Source, loader: SourceLoader) -> str:
    configs = CONFIGS.get(source)
    forms = f" `config`: {', '.join(configs)} (default: the first)." if configs else ""
    note = f" {loader.note[:1].upper()}{loader.note[1:]}." if loader.note else ""
    return f"- **{source}**: {loader.template}.{forms}{note}"
