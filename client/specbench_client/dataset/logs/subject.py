"""What an oracle is asked about an engine's trace."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specbench_api.outcome.cost_model import CostModel
from specbench_client.analysis.oracle.charges import draft_cost
from specbench_client.analysis.oracle.report import Named, Subject
from specbench_client.analysis.oracle.told import both, single
from specbench_client.analysis.replay.lookup import Lookup
from specbench_client.analysis.replay.report import NGRAM
from specbench_client.dataset.logs.traces import ByKey, Traces
from specbench_client.errors import BadInput

REPLAY = "replay"
LIKE_VLLM = Lookup(3, 7, 20)
"""As the published traces were made."""


def trace_subject(traces: Traces, arm: str | None, second: str | None, cost: CostModel | None) -> Subject:
    """`arm`: whose drafts, by default the first that is no n-gram; `second`: with whom combined. Raises BadInput."""
    names = list(traces.drafters)
    main = arm or next((name for name in names if name != NGRAM), names[0])
    _known("--arm", main, names)
    told = _told(traces, main)
    subject = Subject(traces.source, Named(main, single(told.values()), draft_cost(cost, main)))
    if second is None:
        return subject
    _known("--with", second, [*(name for name in names if name != main), REPLAY])
    side = _replayed(traces, main) if second == REPLAY else _Side(second, _told(traces, second))
    checked = all(each.ids is not None for answers in (told, side.told) for each in answers.values())
    named = Named(side.name, single(side.told.values()), draft_cost(cost, side.name))
    return replace(subject, second=named, both=both(side.told, told, unchecked=not checked))


@dataclass(frozen=True)
class _Side:
    """A drafter's answers by name."""

    name: str
    told: ByKey


def _told(traces: Traces, name: str) -> ByKey:
    return traces.with_proposals(LIKE_VLLM, name) if name == NGRAM else traces.drafters[name]


def _replayed(traces: Traces, like: str) -> _Side:
    found = traces.replayed(LIKE_VLLM, like)
    if not found:
        raise BadInput(
            f"{traces.source}: no row has token ids that are as many as {like}'s answer: none can be replayed"
        )
    return _Side(NGRAM, found)


def _known(flag: str, name: str, there: list[str]) -> None:
    if name not in there:
        raise BadInput(f"{flag} {name}: the file tells of {', '.join(there)}")
