"""Defines SourceLoader: which columns a source's rows have, and how a row becomes a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import BadRow

Columns = dict[str, Any]
CONFIG = "{config}"
Convert = Callable[[PromptRow, Selection], Columns]


@dataclass(frozen=True)
class HubDataset:
    """A dataset on the Hugging Face hub. Name and config may contain CONFIG, in place of which a source's config is."""

    name: str
    """OWNER/NAME."""
    split: str
    config: str | None = None
    revision: str | None = None
    """A commit, or None for the newest revision."""
    file: str | None = None
    """A file of the repository to read directly, where the hub's dataset builder does not read it correctly."""

    def of_config(self, config: str | None) -> HubDataset:
        """Return the dataset of a source's config."""
        chosen = config if self.config == CONFIG else self.config
        return replace(self, name=self.name.replace(CONFIG, config or ""), config=chosen)


@dataclass(frozen=True)
class SourceLoader:
    """One source. `convert` is pure: a published row → our columns (id, category; prompt, turns or messages)."""

    what: str
    """A short description for the docs."""
    columns: tuple[str, ...]
    """Columns that a row must have."""
    template: str
    """A description of how a prompt is built from the columns."""
    licence: str
    convert: Convert
    hub: HubDataset | None = None
    """None if it is not on the hub."""
    gated: bool = False
    """Whether the hub requires a login and accepted terms."""
    note: str = ""
    files: tuple[str, ...] = ()
    """File names to look for if `uri` is a folder; the first that exists is read. They may contain CONFIG."""
    split: Callable[[PromptRow], list[PromptRow]] | None = None
    """Splits a row with several prompts into one row per prompt; raises BadRow. None: each row is one prompt."""
    assemble: Callable[[Sequence[PromptRow]], Sequence[PromptRow]] = lambda rows: rows
    """Returns the rows of a source whose prompts are spread over several rows of its file, one row per prompt."""


def quoted(template: str) -> str:
    """Format a template for one line of a table."""
    return f"`{template}`".replace("\n", "⏎")


def text_at(row: PromptRow, name: str) -> str:
    """Return a text column unchanged. Raises BadRow."""
    value = row.columns.get(name)
    if value is None:
        present = ", ".join(known for known, found in row.columns.items() if found is not None)
        raise BadRow(f"the column {name} is missing; the row's columns are: {present or 'none'}")
    if not isinstance(value, str):
        raise BadRow(f"{name} is of type {type(value).__name__}: give a string")
    if not value.strip():
        raise BadRow(f"{name} is empty: fill it in, or remove the row")
    return value


def label_at(row: PromptRow, *names: str) -> str | None:
    """Return the first of these columns that has a value, as a string; None if none has."""
    found = next((row.columns[name] for name in names if row.columns.get(name) is not None), None)
    return None if found is None else str(found)


def key_at(row: PromptRow, *names: str) -> str | int:
    """Return the row's id: the first of these columns that has a value, or else its line or row number."""
    for name in names:
        value = row.columns.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return value
    return row.place.replace(" ", "-")


def single_turn_columns(prompt: str, row: PromptRow, *keys: str, category: str | None = None, **facts: Any) -> Columns:
    """Return our columns for a prompt of one turn."""
    return {"id": key_at(row, *keys), "category": category, "prompt": prompt, **facts}
