"""What a table is, and the few words with which its rows are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specbench_api.outcome.published import PublishedFigure, PublishedTable

Values = Mapping[tuple[str, str, int | None], str]
"""(dataset, method, draft tokens) → the values by batch, as `1.17 1.15 …`."""


@dataclass(frozen=True)
class Table:
    """A published table. `read`: how its numbers came here; `caution`: what is known to be wrong with it."""

    name: str
    title: str
    source: str
    read: str
    figures: tuple[PublishedFigure, ...]
    caution: str = ""

    @property
    def told(self) -> PublishedTable:
        """As documents list it."""
        return PublishedTable(
            name=self.name,
            title=self.title,
            source=self.source,
            read=self.read,
            caution=self.caution,
            rows=len(self.figures),
        )


def by_batch(batches: Iterable[int], values: Values, **common: Any) -> list[PublishedFigure]:
    """Rows of a figure over batches."""
    sizes = list(batches)
    return [
        PublishedFigure(dataset=dataset, method=method, draft_tokens=drafts, batch=batch, value=value, **common)
        for (dataset, method, drafts), text in values.items()
        for batch, value in zip(sizes, map(float, text.split()), strict=True)
    ]


def over_baseline(
    batches: Iterable[int | None], baseline: str, values: Mapping[tuple[str, int | None], str], **common: Any
) -> list[PublishedFigure]:
    """Speed-ups from published tokens a second. `values`: (method, draft tokens) → tokens a second by batch."""
    rates = list(map(float, baseline.split()))
    sizes = list(batches)
    return [
        PublishedFigure(
            method=method,
            draft_tokens=drafts,
            batch=batch,
            figure="speedup",
            value=round(value / rate, 3),
            note=f"from {value:g} over {rate:g} tokens a second",
            **common,
        )
        for (method, drafts), text in values.items()
        for batch, rate, value in zip(sizes, rates, map(float, text.split()), strict=True)
    ]
