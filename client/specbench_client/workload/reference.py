"""The table of sources in docs/workloads.md, with their templates, printed from the code that reads them."""

from __future__ import annotations

from specbench_api.spec.dataset import CONFIGS, Source
from specbench_client.workload.sources.source import Hub, Loader
from specbench_client.workload.sources.table import LOADERS

_UNPINNED = (
    "Not pinned: the revision could not be asked where this table was written. `dataset.revision` takes a commit of the"
    " hub;\nwithout one its newest is read, and the fingerprint of the prompts tells whether it is still what it was."
)


def render() -> str:
    """Both, as Markdown."""
    head = "| source | what | its rows hold | hub | licence |\n|---|---|---|---|---|"
    rows = [_row(source, loader) for source, loader in LOADERS.items()]
    return "\n".join([head, *rows, "", *_unpinned(), "### Templates", "", *_templates()])


def origin(source: Source, loader: Loader) -> str:
    """Where it is had from, in few words: its repositories on the hub, or a file."""
    if loader.hub is None:
        return "not there: give a file"
    names = dict.fromkeys(loader.hub(config).name for config in CONFIGS.get(source, (None,)))
    return f"{', '.join(names)}{' (gated)' if loader.gated else ''}"


def _row(source: Source, loader: Loader) -> str:
    columns = ", ".join(f"`{name}`" if " " not in name else name for name in loader.columns)
    cells = (f"`{source}`", loader.what, columns, _hub(source, loader), loader.licence)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _hub(source: Source, loader: Loader) -> str:
    if loader.hub is None:
        return "none: give `uri`"
    hubs = [loader.hub(config) for config in CONFIGS.get(source, (None,))]
    names = ", ".join(dict.fromkeys(f"`{hub.name}`" for hub in hubs))
    gated = "; gated" if loader.gated else ""
    return f"{names}, {_part(hubs[0])}; {_pin(hubs[0])}{gated}"


def _part(hub: Hub) -> str:
    if hub.file is not None:
        return f"file `{hub.file}`"
    return f"config `{hub.config}`, split `{hub.split}`" if hub.config else f"split `{hub.split}`"


def _pin(hub: Hub) -> str:
    return f"at `{hub.revision}`" if hub.revision else "not pinned"


def _unpinned() -> list[str]:
    """Why, where any is not pinned."""
    hubs = [loader.hub(None) for loader in LOADERS.values() if loader.hub]
    return [_UNPINNED, ""] if any(hub.revision is None for hub in hubs) else []


def _templates() -> list[str]:
    return [_template(source, loader) for source, loader in LOADERS.items()]


def _template(source: Source, loader: Loader) -> str:
    configs = CONFIGS.get(source)
    forms = f" `config`: {', '.join(configs)} (the first where none is given)." if configs else ""
    note = f" {loader.note[:1].upper()}{loader.note[1:]}." if loader.note else ""
    return f"- **{source}**: {loader.template}.{forms}{note}"
